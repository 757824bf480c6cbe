package redissource

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/redis"
	"github.com/latticekv/lattice/migrate/source"
)

func TestKeysThatAreNotTextAreToldOrWrittenInLetters(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, c, ctx := start(t)
	keys := []string{"plain", "50%", "\xff\x00a", "a\xffé", "", "%FF", "FF", "\xff"}
	for _, k := range keys {
		must(t, c.Set(ctx, k, "of "+k, 0).Err())
	}
	for form, want := range map[redis.KeyForm][]string{
		redis.Reject:    {"plain", "50%", "", "%FF", "FF"},
		redis.Percent:   {"plain", "50%25", "%FF\x00a", "a%FFé", "", "%25FF", "FF", "%FF"},
		redis.Hex:       {"plain", "50%", "ff0061", "61ffc3a9", "", "%FF", "FF", "ff"},
		redis.Base64URL: {"plain", "50%", "_wBh", "Yf_DqQ", "", "%FF", "FF", "_w"},
	} {
		d := readAll(t, open(t, redis.Options{URL: server.URL, DB: -1, BinaryKeys: form}), nil)
		var got []string
		for _, r := range d.records {
			key, _ := r.Get("key")
			got = append(got, key.(string))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: keys %q, want %q", form, got, want)
		}
		if len(d.faults)+len(d.records) != len(keys) {
			t.Errorf("%s: %d records and %d faults of %d keys", form, len(d.records), len(d.faults), len(keys))
		}
		for _, f := range d.faults {
			if !strings.Contains(f.Reason, "--binary-keys") || !strings.Contains(f.Origin, `\xff`) {
				t.Errorf("fault %+v", f)
			}
		}
	}
}

// Match, type and database choose what is read.
func TestFilters(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, c, ctx := start(t)
	must(t, c.MSet(ctx, "a:1", "x", "a:2", "x", "b:1", "x").Err())
	must(t, c.SAdd(ctx, "a:3", "x").Err())
	must(t, c.Do(ctx, "COPY", "a:1", "other", "DB", 3).Err())
	for _, f := range []struct {
		o    redis.Options
		want int
	}{
		{redis.Options{DB: -1}, 4}, {redis.Options{DB: 3}, 1}, {redis.Options{DB: -1, Match: "a:*"}, 3},
		{redis.Options{DB: -1, Match: "a:*", Types: []string{"string"}}, 2}, {redis.Options{DB: -1, Types: []string{"set", "hash"}}, 1},
	} {
		f.o.URL = server.URL
		s := open(t, f.o)
		info, err := s.Inspect(ctx)
		must(t, err)
		if d := readAll(t, s, nil); len(d.records) != f.want || d.expired+int64(len(d.faults)) != 0 {
			t.Errorf("%s: %d records, want %d", info.Identity, len(d.records), f.want)
		}
		filtered := f.o.Match != "" || f.o.Types != nil
		if (info.Estimate == -1) != filtered || !filtered && info.Estimate != int64(f.want) {
			t.Errorf("%s: estimate %d", info.Identity, info.Estimate)
		}
		if strings.Contains(info.Identity, server.Password) || info.Version == "" || info.Cut != "" {
			t.Errorf("info %+v", info)
		}
	}
}

// While others write, expire and delete thousands of keys, each key that stays
// is read, with its own value and expiry, and three runs agree.
func TestStableKeysAreReadWhileOthersChange(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	const stable = 21_000
	server, c, ctx := start(t)
	far := time.UnixMilli(4_100_000_000_777)
	for i := 0; i < stable; i += 3000 {
		_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for j := i; j < i+3000; j++ {
				p.Set(ctx, fmt.Sprintf("stable:%d", j), j, 0)
				if j%3 == 0 {
					p.PExpireAt(ctx, fmt.Sprintf("stable:%d", j), far)
				}
			}
			return nil
		})
		must(t, err)
	}
	stop := churn(t, server.Client(t))
	defer stop()
	var counts []int
	for range 3 {
		d := readAll(t, open(t, redis.Options{URL: server.URL, DB: -1, ScanCount: 500}), nil)
		found := 0
		for _, r := range d.records {
			key, _ := r.Get("key")
			number, ok := strings.CutPrefix(key.(string), "stable:")
			if !ok {
				if got := string(r.Payload); got != "churn" {
					t.Fatalf("%s holds %q", r.Origin, got)
				}
				continue
			}
			found++
			var n int
			if _, err := fmt.Sscan(number, &n); err != nil || string(r.Payload) != number {
				t.Fatalf("%s holds %q", r.Origin, r.Payload)
			}
			if (n%3 == 0) != r.Expiry.Equal(far) || (n%3 != 0) != r.Expiry.IsZero() {
				t.Fatalf("%s expires %v", r.Origin, r.Expiry)
			}
		}
		if len(d.faults) > 0 {
			t.Fatalf("faults %v", d.faults)
		}
		t.Logf("%d pages, %d records, %d repeated, %d expired", d.pages, len(d.records), d.repeats, d.expired)
		counts = append(counts, found)
	}
	if want := []int{stable, stable, stable}; !slices.Equal(counts, want) {
		t.Fatalf("stable keys read %v, want %v", counts, want)
	}
}

// churn writes, expires and deletes keys until it is stopped, enough of them
// that the server's table grows and shrinks.
func churn(t *testing.T, c *goredis.Client) (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			_, err := c.Pipelined(t.Context(), func(p goredis.Pipeliner) error {
				for j := range 1000 {
					key := fmt.Sprintf("churn:%d", (i*1000+j)%60_000)
					switch i / 60 % 2 {
					case 0:
						p.Set(t.Context(), key, "churn", time.Duration(1+j)*time.Millisecond)
					default:
						p.Del(t.Context(), key)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); work.Wait() })
}

// A position that was kept is good until the server restarts: going on from
// each of them, what was read before and what comes after is everything.
func TestEveryPositionCanBeResumed(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, c, ctx := start(t)
	const n = 3000
	_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i := range n {
			p.Set(ctx, fmt.Sprintf("k%d", i), strings.Repeat("x", 10_000), 0)
		}
		return nil
	})
	must(t, err)
	o := redis.Options{URL: server.URL, DB: -1, ScanCount: 2000}
	var pages []source.Page
	readAll(t, open(t, o), func(p source.Page) { pages = append(pages, p) })
	if len(pages) < 4 {
		t.Fatalf("%d pages only; replies of 20 MB must be divided", len(pages))
	}
	for i := range pages[:len(pages)-1] {
		d := newDataset()
		for _, p := range pages[:i+1] {
			d.add(p)
		}
		for p, err := range open(t, o).Read(ctx, pages[i].Next) {
			must(t, err)
			d.add(p)
		}
		if len(d.records) != n || d.last != nil {
			t.Errorf("after page %d: %d keys, want %d", i, len(d.records), n)
		}
	}
}
