package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
)

// awkwardKeys are keys that something on the way is tempted to change.
var awkwardKeys = []string{
	"\x00", "a", "a\x00", "a\x00b", " ", "/", "//", "a//b", "..", "a/../b", "%", "%2F", "%00", "?", "a?b=c", "#", "'", "''", `"`, `\`,
	"\n", "\r\n", "\t", "é", "e\u0301", "日本語", "😀", "😀😀", "\U0010FFFF", "\uFFFD", "~", "_", "+", "a+b", "key", "KEY", "ı",
	strings.Repeat("k", 1024),
}

func TestAwkwardKeysAreKeptApart(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	put(t, h, awkwardKeys...)
	for _, k := range awkwardKeys {
		it, ok, err := h.Get(t.Context(), k, ReadOptions{})
		if err != nil || !ok || it.Key != k || string(it.Value) != "value of "+k {
			t.Errorf("%q: %v %v %v", k, it, ok, err)
		}
	}
	existed, err := h.Delete(t.Context(), "a//b", clock.Version{})
	if err != nil || !existed {
		t.Errorf("delete: %v %v", existed, err)
	}
	if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != int64(len(awkwardKeys)-1) {
		t.Errorf("count %+v, %v", c, err)
	}
}

func TestBadKeysAndValuesAreRefusedAndChangeNothing(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.MaxValueSizeBytes = 100; o.MaxKeyLength = 10 })
	h := in.writer(t, "t")
	ctx := t.Context()
	for _, key := range []string{"", "\xff", "a\xc3"} {
		_, _, err := h.Get(ctx, key, ReadOptions{})
		wantArgument(t, err, "key")
		_, err = h.Put(ctx, key, nil, PutOptions{})
		wantArgument(t, err, "key")
		_, err = h.Delete(ctx, key, clock.Version{})
		wantArgument(t, err, "key")
		_, err = h.GetMany(ctx, []string{"a", key}, ReadOptions{})
		wantArgument(t, err, "keys[1]")
		_, err = h.Batch(ctx, []BatchOp{{Key: "a"}, {Key: key}})
		wantArgument(t, err, "operations[1].key")
	}
	var limit *LimitError
	_, err := h.Put(ctx, strings.Repeat("é", 6), nil, PutOptions{})
	if !errors.As(err, &limit) || limit.What != "key" || limit.Size != 12 || limit.Limit != 10 {
		t.Errorf("long key: %v", err)
	}
	_, err = h.Put(ctx, "k", make([]byte, 101), PutOptions{})
	if !errors.As(err, &limit) || limit.What != "value" || limit.Key != "k" || limit.Size != 101 || limit.Limit != 100 {
		t.Errorf("long value: %v", err)
	}
	version := clock.Version{Time: 1}
	for field, o := range map[string]PutOptions{
		"ttl":       {TTL: -1},
		"ifVersion": {IfAbsent: true, IfVersion: version},
		"mode":      {GetOrSet: true, IfVersion: version},
	} {
		_, err := h.Put(ctx, "k", nil, o)
		wantArgument(t, err, field)
	}
	_, err = h.Put(ctx, "k", nil, PutOptions{GetOrSet: true, IfAbsent: true})
	wantArgument(t, err, "mode")
	if c, err := h.Count(ctx, Bounds{}, ReadOptions{}); err != nil || c.Total != 0 {
		t.Errorf("something was written: %+v %v", c, err)
	}
}

func TestOverlongKeyIsShownInPartAndValid(t *testing.T) {
	for _, key := range []string{strings.Repeat("é", 100), strings.Repeat("x", 63) + "😀", "short"} {
		got := cut(key)
		if !strings.HasPrefix(key, got) || len(got) > shownKeyBytes || strings.ToValidUTF8(got, "!") != got {
			t.Errorf("%q is shown as %q", key, got)
		}
	}
}

func TestPutAnswersWhatHappened(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	ctx := t.Context()
	first, err := h.Put(ctx, "k", []byte("1"), PutOptions{Type: "text/plain"})
	if err != nil || !first.Created || first.Existing != nil {
		t.Fatalf("first: %+v %v", first, err)
	}
	second, err := h.Put(ctx, "k", nil, PutOptions{IfVersion: first.Version})
	if err != nil || second.Created || second.Version.Compare(first.Version) <= 0 {
		t.Fatalf("second: %+v %v", second, err)
	}
	it, ok, err := h.Get(ctx, "k", ReadOptions{})
	if err != nil || !ok || len(it.Value) != 0 || it.Version != second.Version || it.Type != "application/octet-stream" || !it.Expiry.IsZero() {
		t.Fatalf("an empty value is a value: %+v %v %v", it, ok, err)
	}
	var mismatch *MismatchError
	if _, err = h.Put(ctx, "k", nil, PutOptions{IfVersion: first.Version}); !errors.As(err, &mismatch) || mismatch.Current != second.Version {
		t.Errorf("stale version: %v", err)
	}
	if _, err = h.Put(ctx, "k", nil, PutOptions{IfAbsent: true}); !errors.As(err, &mismatch) || mismatch.Current != second.Version {
		t.Errorf("if absent: %v", err)
	}
	if _, err = h.Put(ctx, "no", nil, PutOptions{IfVersion: first.Version}); !errors.As(err, &mismatch) || !mismatch.Current.IsZero() {
		t.Errorf("version of an absent key: %v", err)
	}
	if _, err = h.Delete(ctx, "k", first.Version); !errors.As(err, &mismatch) || mismatch.Current != second.Version {
		t.Errorf("delete of a stale version: %v", err)
	}
	if existed, err := h.Delete(ctx, "k", second.Version); err != nil || !existed {
		t.Errorf("delete: %v %v", existed, err)
	}
	if existed, err := h.Delete(ctx, "k", clock.Version{}); err != nil || existed {
		t.Errorf("delete again: %v %v", existed, err)
	}
	if _, ok, err := h.Get(ctx, "k", ReadOptions{}); err != nil || ok {
		t.Errorf("after the delete: %v %v", ok, err)
	}
}

func TestGetOrSetReturnsWhatIsThere(t *testing.T) {
	for name, value := range map[string][]byte{"small": []byte("1"), "large": bytes.Repeat([]byte("ab"), 300<<10)} {
		t.Run(name, func(t *testing.T) {
			in, _ := fresh(t)
			h := in.writer(t, "t")
			r, err := h.Put(t.Context(), "k", value, PutOptions{GetOrSet: true, Type: "a/b"})
			if err != nil || !r.Created {
				t.Fatalf("first: %+v %v", r, err)
			}
			r2, err := h.Put(t.Context(), "k", []byte("2"), PutOptions{GetOrSet: true})
			if err != nil || r2.Created || r2.Existing == nil || !bytes.Equal(r2.Existing.Value, value) || r2.Existing.Type != "a/b" || r2.Version != r.Version {
				t.Fatalf("second: %v", err)
			}
		})
	}
}

func TestLargeValuesGoRoundEverywhere(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	ctx := t.Context()
	sizes := []int{0, 1, 64 << 10, 256 << 10, 256<<10 + 1, 1 << 20, 4 << 20}
	values := map[string][]byte{}
	for _, n := range sizes {
		key := fmt.Sprintf("k%08d", n)
		values[key] = bytes.Repeat([]byte{byte(n), byte(n >> 8), 7}, n/3+1)[:n]
		_, err := h.Put(ctx, key, values[key], PutOptions{})
		must(t, err)
	}
	keys := []string{}
	for key, want := range values {
		keys = append(keys, key)
		if it, ok, err := h.Get(ctx, key, ReadOptions{}); err != nil || !ok || !bytes.Equal(it.Value, want) {
			t.Errorf("get %s: %v %v", key, ok, err)
		}
	}
	items, err := h.GetMany(ctx, keys, ReadOptions{})
	must(t, err)
	n, err := h.Stream(ctx, ScanQuery{}, func(it *Item) error {
		if !bytes.Equal(it.Value, values[it.Key]) {
			t.Errorf("stream of %s differs", it.Key)
		}
		return nil
	})
	if err != nil || int(n) != len(sizes) || len(items) != len(sizes) {
		t.Errorf("%d items, %d streamed, %v", len(items), n, err)
	}
	for i, it := range items {
		if it.Key != keys[i] || !bytes.Equal(it.Value, values[it.Key]) {
			t.Errorf("get many of %s differs", it.Key)
		}
	}
}

func TestTimeToLiveEndsOnTimeEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t)
		h := in.writer(t, "t")
		ctx := t.Context()
		start := in.clock.Now().Milli()
		_, err := h.Put(ctx, "k", []byte("v"), PutOptions{TTL: 1500 * time.Microsecond})
		must(t, err)
		it, ok, err := h.Get(ctx, "k", ReadOptions{})
		if err != nil || !ok || it.Expiry.UnixMilli() != start+2 {
			t.Fatalf("rounded to %v, written at %d: %v", it.Expiry.UnixMilli(), start, err)
		}
		must(t, in.clock.Sleep(ctx, 2*time.Millisecond))
		if _, ok, _ := h.Get(ctx, "k", ReadOptions{}); ok {
			t.Error("the key outlived its time")
		}
		page, err := h.Scan(ctx, ScanQuery{Limit: 10})
		if err != nil || len(page.Items) != 0 {
			t.Errorf("the scan shows %v, %v", page.Items, err)
		}
		if r, err := h.Put(ctx, "k", nil, PutOptions{IfAbsent: true}); err != nil || !r.Created {
			t.Errorf("an expired key is absent: %+v %v", r, err)
		}
	})
}

func TestTimeToLiveDoesNotOverflow(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	_, err := h.Put(t.Context(), "k", nil, PutOptions{TTL: math.MaxInt64})
	must(t, err)
	it, ok, err := h.Get(t.Context(), "k", ReadOptions{})
	if err != nil || !ok || it.Expiry.Year() < 2200 || it.Expiry.Year() > 9999 {
		t.Errorf("%v %v %v", it.Expiry, ok, err)
	}
	far := &Tree{db: &DB{clock: &frozen{Source: in.clock, wall: math.MaxInt64}}}
	if got := far.expiry(math.MaxInt64); time.UnixMilli(got).Year() > 9999 || got <= 0 {
		t.Errorf("expiry %d from the end of time", got)
	}
	if h.expiry(0) != 0 {
		t.Error("no time to live became one")
	}
}

// frozen is a clock that stands still.
type frozen struct {
	clock.Source
	wall int64
}

func (f *frozen) Now() clock.Instant { return clock.Instant{Wall: f.wall} }

func TestReadsThatLostTheirBlobLookAgain(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	put(t, h, "a", "b")
	var loads atomic.Int32
	in.hooks.set(func(op, _ string) error {
		if op == "load" && loads.Add(1) <= 2 {
			return shard.ErrViewExpired
		}
		return nil
	})
	items, err := h.GetMany(t.Context(), []string{"a", "b"}, ReadOptions{})
	if err != nil || len(items) != 2 || loads.Load() < 3 {
		t.Errorf("%v %v", items, err)
	}
	in.hooks.set(func(op, _ string) error {
		if op == "load" {
			return shard.ErrViewExpired
		}
		return nil
	})
	_, err = h.GetMany(t.Context(), []string{"a", "b"}, ReadOptions{})
	wantErr(t, err, ErrTopologyUnstable)
	_, err = h.Scan(t.Context(), ScanQuery{Limit: 10})
	wantErr(t, err, ErrTopologyUnstable)
	if page, err := h.Scan(t.Context(), ScanQuery{Limit: 10, KeysOnly: true}); err != nil || len(page.Items) != 2 || page.Items[0].Value != nil {
		t.Errorf("keys only: %v %v", page, err)
	}
}

func TestCancelledRequestsEnd(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	put(t, h, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in.hooks.set(func(op, _ string) error { return shard.ErrStaleRouting })
	if _, _, err := h.Get(ctx, "a", ReadOptions{}); err == nil {
		t.Error("a cancelled get succeeded")
	}
	if _, err := h.Put(ctx, "a", nil, PutOptions{}); err == nil {
		t.Error("a cancelled put succeeded")
	}
}
