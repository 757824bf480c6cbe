package tree

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

func TestScanIsInBytewiseOrderBothWays(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DefaultShardCount = 7 })
	h := in.writer(t, "t")
	put(t, h, awkwardKeys...)
	want := slices.Sorted(slices.Values(awkwardKeys))
	for _, limit := range []int{1, 2, 7, 1000} {
		got, _ := walkPages(t, h, ScanQuery{Limit: limit})
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %q", limit, got)
		}
		got, _ = walkPages(t, h, ScanQuery{Limit: limit, Reverse: true})
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("limit %d in reverse: %q", limit, got)
		}
	}
}

func TestScanBounds(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	put(t, h, "a", "a\x00", "ab", "b", "b\U0010FFFF", "c", "é")
	for _, c := range []struct {
		name string
		b    Bounds
		want []string
	}{
		{"all", Bounds{}, []string{"a", "a\x00", "ab", "b", "b\U0010FFFF", "c", "é"}},
		{"start is included, end is not", Bounds{"a", "b"}, []string{"a", "a\x00", "ab"}},
		{"open end", Bounds{"b", ""}, []string{"b", "b\U0010FFFF", "c", "é"}},
		{"open start", Bounds{"", "ab"}, []string{"a", "a\x00"}},
		{"start equals end", Bounds{"b", "b"}, nil},
		{"start after end", Bounds{"c", "a"}, nil},
		{"between keys", Bounds{"aa", "az"}, []string{"ab"}},
		{"prefix", Prefix("a"), []string{"a", "a\x00", "ab"}},
		{"prefix of a whole key", Prefix("b"), []string{"b", "b\U0010FFFF"}},
		{"prefix with the highest character", Prefix("b\U0010FFFF"), []string{"b\U0010FFFF"}},
		{"prefix of half a character", Prefix("\xc3"), []string{"é"}},
		{"prefix of the highest byte", Prefix("\xff"), nil},
		{"empty prefix", Prefix(""), []string{"a", "a\x00", "ab", "b", "b\U0010FFFF", "c", "é"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := walkPages(t, h, ScanQuery{Bounds: c.b, Limit: 2})
			if !slices.Equal(got, c.want) {
				t.Errorf("scan %q, want %q", got, c.want)
			}
			back, _ := walkPages(t, h, ScanQuery{Bounds: c.b, Limit: 2, Reverse: true})
			slices.Reverse(back)
			if !slices.Equal(back, c.want) {
				t.Errorf("reverse scan %q, want %q", back, c.want)
			}
			if n, err := h.Count(t.Context(), c.b, ReadOptions{}); err != nil || n.Total != int64(len(c.want)) {
				t.Errorf("count %+v, %v", n, err)
			}
			streamed := 0
			if n, err := h.Stream(t.Context(), ScanQuery{Bounds: c.b}, func(*Item) error { streamed++; return nil }); err != nil || int(n) != len(c.want) || streamed != len(c.want) {
				t.Errorf("streamed %d, %d, %v", n, streamed, err)
			}
		})
	}
}

func TestPrefixEndsBehindAllItsKeys(t *testing.T) {
	for p, want := range map[string]string{"": "", "a": "b", "az": "a{", "a\xff": "b", "\xff\xff": "", "a\x00": "a\x01", "é": "ê"} {
		if got := prefixEnd(p); got != want {
			t.Errorf("prefix %q ends at %q, want %q", p, got, want)
		}
	}
}

func TestExactlyFullLastPageHasNoToken(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	load(t, h, 20)
	for _, reverse := range []bool{false, true} {
		for _, limit := range []int{5, 20, 7, 21} {
			keys, pages := walkPages(t, h, ScanQuery{Limit: limit, Reverse: reverse})
			if want := (20 + limit - 1) / limit; pages != want || len(keys) != 20 {
				t.Errorf("limit %d: %d pages of %d keys, want %d pages", limit, pages, len(keys), want)
			}
		}
	}
}

func TestEmptyTreeScansToNothing(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	p, err := h.Scan(t.Context(), ScanQuery{Limit: 1})
	if err != nil || len(p.Items) != 0 || p.NextToken != "" {
		t.Errorf("%+v %v", p, err)
	}
}

func TestPagesEndByBytesAfterOneEntryAtLeast(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	for i := range 10 {
		_, err := h.Put(t.Context(), fmt.Sprint(i), make([]byte, 99), PutOptions{})
		must(t, err)
	}
	for maxBytes, want := range map[int64]int{1: 10, 100: 10, 199: 10, 200: 5, 1000: 1} {
		if keys, pages := walkPages(t, h, ScanQuery{Limit: 100, MaxBytes: maxBytes}); pages != want || len(keys) != 10 {
			t.Errorf("%d bytes: %d pages of %d keys, want %d", maxBytes, pages, len(keys), want)
		}
	}
	if _, pages := walkPages(t, h, ScanQuery{Limit: 100, MaxBytes: 10, KeysOnly: true}); pages != 1 {
		t.Errorf("keys only: %d pages; values must not count", pages)
	}
}

func TestScanRefusesBadArguments(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.MaxPageEntries = 5; o.DefaultPageEntries = 5 })
	h := in.writer(t, "t")
	for _, limit := range []int{-1, 0, 6} {
		_, err := h.Scan(t.Context(), ScanQuery{Limit: limit})
		wantArgument(t, err, "limit")
	}
	_, err := h.Scan(t.Context(), ScanQuery{Limit: 1, MaxBytes: -1})
	wantArgument(t, err, "maxBytes")
}

func TestTokensWorkOnEveryInstanceAndSurviveARestart(t *testing.T) {
	a, m := fresh(t)
	load(t, a.writer(t, "t"), 10)
	q := ScanQuery{Limit: 3}
	var keys []string
	for range 4 {
		in := open(t, m.Table(), m.Blobs()) // a new process for every page
		p, err := in.writer(t, "t").Scan(t.Context(), q)
		must(t, err)
		keys = append(keys, keysOf(p.Items)...)
		q.Token = p.NextToken
	}
	if len(keys) != 10 || !slices.IsSorted(keys) || q.Token != "" {
		t.Errorf("got %v", keys)
	}
}

func TestAskingAgainGivesThePageAgain(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	load(t, h, 10)
	first, err := h.Scan(t.Context(), ScanQuery{Limit: 3})
	must(t, err)
	for range 3 {
		p, err := h.Scan(t.Context(), ScanQuery{Limit: 3, Token: first.NextToken})
		if err != nil || !slices.Equal(keysOf(p.Items), []string{"key-000003", "key-000004", "key-000005"}) {
			t.Errorf("%v %v", keysOf(p.Items), err)
		}
	}
}

func TestForeignAndTamperedTokensAreRefused(t *testing.T) {
	in, _ := fresh(t)
	h, other := in.writer(t, "t"), in.writer(t, "other")
	load(t, h, 10)
	load(t, other, 10)
	q := ScanQuery{Limit: 3, Bounds: Bounds{From: "a"}}
	p, err := h.Scan(t.Context(), q)
	must(t, err)
	token := p.NextToken
	for name, f := range map[string]func(q *ScanQuery) *Tree{
		"another tree":      func(*ScanQuery) *Tree { return other },
		"another start":     func(q *ScanQuery) *Tree { q.Bounds.From = "b"; return h },
		"another end":       func(q *ScanQuery) *Tree { q.Bounds.To = "z"; return h },
		"another direction": func(q *ScanQuery) *Tree { q.Reverse = true; return h },
		"not base64":        func(q *ScanQuery) *Tree { q.Token = "!!"; return h },
		"too short":         func(q *ScanQuery) *Tree { q.Token = token[:20]; return h },
		"cut":               func(q *ScanQuery) *Tree { q.Token = token[:len(token)-1]; return h },
		"longer":            func(q *ScanQuery) *Tree { q.Token = token + "AAAA"; return h },
		"huge":              func(q *ScanQuery) *Tree { q.Token = strings.Repeat("A", 1<<20); return h },
	} {
		q := q
		q.Token = token
		h := f(&q)
		_, err := h.Scan(t.Context(), q)
		t.Run(name, func(t *testing.T) { wantArgument(t, err, "pageToken") })
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	must(t, err)
	for i := range raw {
		bad := slices.Clone(raw)
		bad[i] ^= 1
		q.Token = base64.RawURLEncoding.EncodeToString(bad)
		if _, err := h.Scan(t.Context(), q); err == nil {
			t.Fatalf("byte %d of the token is not protected", i)
		}
	}
	q.Token, q.Limit, q.KeysOnly = token, 5, true
	if p, err := h.Scan(t.Context(), q); err != nil || p.Items[0].Key != "key-000003" {
		t.Errorf("the page size may change: %v %v", p, err)
	}
}

func TestTokenOfAPurgedTreeIsRefused(t *testing.T) {
	in, _ := fresh(t)
	load(t, in.writer(t, "t"), 10)
	p, err := in.writer(t, "t").Scan(t.Context(), ScanQuery{Limit: 3})
	must(t, err)
	must(t, in.Delete(t.Context(), "t"))
	must(t, in.Purge(t.Context(), "t"))
	load(t, in.writer(t, "t"), 10)
	_, err = in.writer(t, "t").Scan(t.Context(), ScanQuery{Limit: 3, Token: p.NextToken})
	wantArgument(t, err, "pageToken")
}

func TestSigningKeyIsOneForAllFirstUsers(t *testing.T) {
	m := memory.New(memory.Options{})
	keys := make(chan string, 32)
	for range cap(keys) {
		in := open(t, m.Table(), m.Blobs())
		go func() {
			k, err := in.signingKey(t.Context())
			keys <- fmt.Sprint(k, err)
		}()
	}
	first := <-keys
	for range cap(keys) - 1 {
		if k := <-keys; k != first {
			t.Fatalf("keys differ: %s and %s", first, k)
		}
	}
}

func TestDamagedSigningKeyIsReported(t *testing.T) {
	in, m := fresh(t)
	for _, data := range [][]byte{nil, []byte("x"), tokenKeyFormat.Seal([]byte("short"))} {
		_, _ = m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Delete(tokenKeyRow, "")})
		_, err := m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Insert(tokenKeyRow, data)})
		must(t, err)
		_, err = in.signingKey(t.Context())
		wantErr(t, err, store.ErrCorrupt)
	}
}

func FuzzTokensNeverPanic(f *testing.F) {
	in, _ := fresh(f)
	h, err := in.OpenOrCreate(f.Context(), "t")
	must(f, err)
	q := ScanQuery{Limit: 1}
	token, err := h.sealToken(f.Context(), h.entry.cur.Load().ID, &q, "key")
	must(f, err)
	f.Add(token)
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		q := ScanQuery{Limit: 1, Token: s}
		last, err := h.openToken(t.Context(), h.entry.cur.Load().ID, &q)
		var a *ArgumentError
		switch {
		case s == token && (err != nil || last != "key"):
			t.Fatalf("the genuine token gives %q, %v", last, err)
		case s != token && !errors.As(err, &a):
			t.Fatalf("%q gives %q, %v", s, last, err)
		}
	})
}

func TestEntriesOnAShardThatDoesNotOwnThemAreInvisible(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	keys := load(t, h, 100)
	m := h.entry.cur.Load()
	// What a drain brings ahead of the swap: copies and tombstones on another
	// shard, which owns slots of its own, and has a migration open for them.
	for _, id := range m.owners {
		must(t, h.shard(m, id).(hookedLog).shardLog.(log).BeginIncoming(t.Context(), shard.Incoming{ID: "drain"}))
	}
	for _, k := range keys {
		other := (m.shardMap.OwnerOf(k) + 1) % 4
		_, err := h.shard(m, other).Write(t.Context(), []shard.Write{{Op: shard.OpPut, Key: k, Value: []byte("wrong")}, {Op: shard.OpPut, Key: k + "x"}})
		must(t, err)
	}
	for _, reverse := range []bool{false, true} {
		p, err := h.Scan(t.Context(), ScanQuery{Limit: 1000, Reverse: reverse})
		must(t, err)
		for _, it := range p.Items {
			if string(it.Value) != "value of "+it.Key && m.shardMap.OwnerOf(it.Key) != (m.shardMap.OwnerOf(strings.TrimSuffix(it.Key, "x"))+1)%4 {
				t.Errorf("%s has the value %q", it.Key, it.Value)
			}
		}
		got := slices.DeleteFunc(keysOf(p.Items), func(k string) bool { return strings.HasSuffix(k, "x") })
		if slices.Sort(got); !slices.Equal(got, keys) {
			t.Errorf("reverse %v: %d entries", reverse, len(got))
		}
		if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != int64(len(p.Items)) {
			t.Errorf("count %+v, scan %d, %v", c, len(p.Items), err)
		}
		if d := diagnose(t, h, true); d.LiveKeys != int64(len(p.Items)) {
			t.Errorf("diagnostics count %d, scan %d", d.LiveKeys, len(p.Items))
		}
	}
}

func TestScanFollowsSplitsBetweenPages(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		t.Run(fmt.Sprint("reverse ", reverse), func(t *testing.T) {
			in, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 2 })
			keys := load(t, in.writer(t, "t"), 300)
			old := open(t, m.Table(), m.Blobs()).writer(t, "t")
			if reverse {
				slices.Reverse(keys)
			}
			q := ScanQuery{Limit: 50, Reverse: reverse}
			var got []string
			for page := 0; ; page++ {
				p, err := old.Scan(t.Context(), q)
				must(t, err)
				got = append(got, keysOf(p.Items)...)
				if q.Token = p.NextToken; q.Token == "" {
					break
				}
				if page < 3 {
					in.split(t, "t", 0, nil)
				}
			}
			if !slices.Equal(got, keys) {
				t.Errorf("%d keys, in order: %v", len(got), slices.IsSorted(got))
			}
		})
	}
}

func TestStreamGoesOnWhenItsViewsExpire(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.MaxPageEntries = 40; o.DefaultPageEntries = 40 })
	h := in.writer(t, "t")
	keys := load(t, h, 200)
	var n atomic.Int32
	in.hooks.set(func(op, _ string) error {
		if op == "next" || op == "load" {
			if n.Add(1)%17 == 0 {
				return fmt.Errorf("x: %w", shard.ErrViewExpired)
			}
		}
		return nil
	})
	for _, reverse := range []bool{false, true} {
		var got []string
		count, err := h.Stream(t.Context(), ScanQuery{Reverse: reverse}, func(it *Item) error {
			if string(it.Value) != "value of "+it.Key {
				t.Errorf("%s has the value %q", it.Key, it.Value)
			}
			got = append(got, it.Key)
			return nil
		})
		if reverse {
			slices.Reverse(got)
		}
		if err != nil || count != 200 || !slices.Equal(got, keys) {
			t.Errorf("reverse %v: %d entries, %v", reverse, count, err)
		}
	}
}

// A stream shows one moment, and a later one only once its views are about to
// expire.
func TestStreamIsOfOneMomentWhileItsViewsLast(t *testing.T) {
	for name, pause := range map[string]time.Duration{"a quick one": time.Second, "a slow one": 6 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, _ := fresh(t)
				h := in.writer(t, "t")
				load(t, h, 30)
				seen := false
				n, err := h.Stream(t.Context(), ScanQuery{}, func(it *Item) error {
					if it.Key == "key-000003" {
						put(t, h, "key-000029x")
						return in.clock.Sleep(t.Context(), pause)
					}
					seen = seen || it.Key == "key-000029x"
					return nil
				})
				if slow := pause > time.Minute; err != nil || seen != slow {
					t.Errorf("%d entries, the later write seen: %v, %v", n, seen, err)
				}
			})
		})
	}
}

func TestStreamStopsOnError(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	load(t, h, 30)
	stop := errors.New("stop")
	n, err := h.Stream(t.Context(), ScanQuery{}, func(it *Item) error {
		if it.Key == "key-000005" {
			return stop
		}
		return nil
	})
	if n != 5 || !errors.Is(err, stop) {
		t.Errorf("%d, %v", n, err)
	}
}

// A page whose views expire in the middle begins anew: it shows one moment.
func TestPageIsOfOneMoment(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	load(t, h, 20)
	var steps atomic.Int64
	in.hooks.set(func(op, _ string) error {
		if op == "next" && steps.Add(1) == 15 {
			mustBatch(t, h, []BatchOp{setOf("key-000001", "later"), setOf("key-000019", "later")}, "")
			return fmt.Errorf("x: %w", shard.ErrViewExpired)
		}
		return nil
	})
	p, err := h.Scan(t.Context(), ScanQuery{Limit: 100})
	if err != nil || len(p.Items) != 20 || string(p.Items[1].Value) != string(p.Items[19].Value) {
		t.Errorf("%d entries, %v: %q and %q", len(p.Items), err, p.Items[1].Value, p.Items[19].Value)
	}
}

func TestScanFailsWhenTheTreeIsReplacedUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, m := fresh(t)
		other := open(t, m.Table(), m.Blobs())
		load(t, other.writer(t, "t"), 30)
		h := in.writer(t, "t")
		_, err := h.Stream(t.Context(), ScanQuery{}, func(it *Item) error {
			if it.Key == "key-000003" {
				must(t, other.Delete(t.Context(), "t"))
				must(t, other.Purge(t.Context(), "t"))
				load(t, other.writer(t, "t"), 30)
				return in.clock.Sleep(t.Context(), 6*time.Minute) // the views must be renewed
			}
			return nil
		})
		wantErr(t, err, ErrTopologyUnstable)
	})
}

func TestCountIsPerOwnerUnderOneMap(t *testing.T) {
	in, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 2 })
	h := in.writer(t, "t")
	load(t, h, 500)
	old := open(t, m.Table(), m.Blobs()).writer(t, "t")
	in.split(t, "t", 0, nil)
	for name, h := range map[string]*Tree{"of then": old, "of now": h} {
		c, err := h.Count(t.Context(), Bounds{}, ReadOptions{})
		if err != nil || c.Total != 500 || c.MapVersion != 1 || len(c.PerShard) != 3 {
			t.Errorf("map %s: %+v %v", name, c, err)
		}
		var sum int64
		for i, s := range c.PerShard {
			sum += s.Count
			if int(s.Shard) != i || s.Count == 0 {
				t.Errorf("map %s: shards %+v", name, c.PerShard)
			}
		}
		if sum != c.Total {
			t.Errorf("parts add up to %d", sum)
		}
	}
}

func TestCountGivesUpOnAMapThatKeepsMoving(t *testing.T) {
	in, m := fresh(t)
	mover := open(t, m.Table(), m.Blobs())
	h := in.writer(t, "t")
	load(t, h, 10)
	moves := 0
	in.hooks.set(func(op, partition string) error { // one shard's views come one at a time
		if op == "view" && strings.HasSuffix(partition, "-0") && moves > 0 {
			moves--
			_, err := mover.reg.update(t.Context(), "t", func(r *row) error { r.MapVersion++; return nil })
			return err
		}
		return nil
	})
	moves = 3
	if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 10 || c.MapVersion != 3 {
		t.Errorf("three moves are within MaxScanRetries: %+v %v", c, err)
	}
	moves = 4
	_, err := h.Count(t.Context(), Bounds{}, ReadOptions{})
	wantErr(t, err, ErrTopologyUnstable)
}

func TestDeleteRangeRemovesAllAndCountsExactly(t *testing.T) {
	in, m := fresh(t)
	h := in.writer(t, "t")
	load(t, h, 3500)
	put(t, h, "a", "z")
	old := open(t, m.Table(), m.Blobs()).writer(t, "t")
	in.split(t, "t", 1, nil)
	n, err := old.DeleteRange(t.Context(), Prefix("key-"))
	if err != nil || n != 3500 {
		t.Errorf("deleted %d, %v", n, err)
	}
	if keys, _ := walkPages(t, h, ScanQuery{Limit: 10}); !slices.Equal(keys, []string{"a", "z"}) {
		t.Errorf("left: %v", keys)
	}
	for _, b := range []Bounds{Prefix("key-"), {From: "z", To: "a"}, {From: "b", To: "b"}} {
		if n, err := h.DeleteRange(t.Context(), b); err != nil || n != 0 {
			t.Errorf("%v: deleted %d, %v", b, n, err)
		}
	}
}
