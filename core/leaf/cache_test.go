package leaf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/record"
)

// pageOf returns a page with one entry of about size bytes.
func pageOf(t testing.TB, size int) *Page {
	t.Helper()
	blob, _ := build(t, []record.Entry{{Key: "k", Value: make([]byte, size)}})
	return mustDecode(t, blob)
}

// loads returns a load function that counts its calls.
func loads(p *Page, n *atomic.Int64) func(context.Context) (*Page, error) {
	return func(context.Context) (*Page, error) {
		n.Add(1)
		return p, nil
	}
}

func TestCacheLoadsAPageOnce(t *testing.T) {
	c, p := NewCache(1<<20), pageOf(t, 100)
	var n atomic.Int64
	if _, ok := c.Lookup("a"); ok {
		t.Fatal("empty cache holds a page")
	}
	for range 3 {
		if got, err := c.Get(t.Context(), "a", loads(p, &n)); got != p || err != nil {
			t.Fatalf("get: %v, %v", got, err)
		}
	}
	if got, ok := c.Lookup("a"); got != p || !ok || n.Load() != 1 {
		t.Errorf("look-up: %v, %v after %d loads, want 1", got, ok, n.Load())
	}
	if s := c.Stats(); s.Hits != 3 || s.Misses != 1 || s.Pages != 1 || s.Bytes < int64(p.Bytes()) {
		t.Errorf("stats %+v, want 3 hits, 1 miss, 1 page", s)
	}
}

func TestCacheStaysWithinItsBytes(t *testing.T) {
	const limit = 100 << 10
	c, p := NewCache(limit), pageOf(t, 10<<10)
	var n atomic.Int64
	for i := range 100 {
		if _, err := c.Get(t.Context(), fmt.Sprint(i), loads(p, &n)); err != nil {
			t.Fatal(err)
		}
		if s := c.Stats(); s.Bytes > limit || s.Pages > 10 {
			t.Fatalf("after %d pages: %+v, limit %d", i+1, s, limit)
		}
	}
	if s := c.Stats(); s.Pages < 8 {
		t.Errorf("only %d pages kept", s.Pages)
	}
}

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c, p := NewCache(100<<10), pageOf(t, 10<<10)
	var n, hot atomic.Int64
	for i := range 200 {
		if _, err := c.Get(t.Context(), "hot", loads(p, &hot)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), fmt.Sprint(i), loads(p, &n)); err != nil {
			t.Fatal(err)
		}
	}
	if hot.Load() != 1 {
		t.Errorf("the page in use was loaded %d times, want once", hot.Load())
	}
	if s := c.Stats(); s.Hits != 199 || s.Misses != 201 {
		t.Errorf("stats %+v, want 199 hits, 201 misses", s)
	}
}

func TestPageLargerThanTheCacheIsServedAndNotKept(t *testing.T) {
	for _, limit := range []int64{0, 1000} {
		c, p := NewCache(limit), pageOf(t, 10<<10)
		var n atomic.Int64
		for range 2 {
			if got, err := c.Get(t.Context(), "a", loads(p, &n)); got != p || err != nil {
				t.Fatalf("get: %v, %v", got, err)
			}
		}
		if s := c.Stats(); n.Load() != 2 || s.Pages != 0 || s.Bytes != 0 {
			t.Errorf("limit %d: %d loads, %+v, want 2 and nothing kept", limit, n.Load(), s)
		}
	}
}

func TestConcurrentGetsShareOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := NewCache(1<<20), pageOf(t, 100)
		release := make(chan struct{})
		var n atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				got, err := c.Get(t.Context(), "a", func(context.Context) (*Page, error) {
					n.Add(1)
					<-release
					return p, nil
				})
				if got != p || err != nil {
					t.Errorf("get: %v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		if _, ok := c.Lookup("a"); ok {
			t.Error("look-up yields a page that is not loaded")
		}
		close(release)
		wg.Wait()
		if n.Load() != 1 {
			t.Errorf("%d loads, want 1", n.Load())
		}
	})
}

func TestFailedLoadIsNotRemembered(t *testing.T) {
	c, p := NewCache(1<<20), pageOf(t, 100)
	boom := errors.New("boom")
	fail := func(context.Context) (*Page, error) { return nil, boom }
	if _, err := c.Get(t.Context(), "a", fail); !errors.Is(err, boom) {
		t.Fatalf("error %v, want boom", err)
	}
	if _, ok := c.Lookup("a"); ok {
		t.Error("look-up finds a page that failed to load")
	}
	var n atomic.Int64
	if got, err := c.Get(t.Context(), "a", loads(p, &n)); got != p || err != nil {
		t.Errorf("second load: %v, %v", got, err)
	}
}

func TestWaiterOutlivesTheCancelledLoader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := NewCache(1<<20), pageOf(t, 100)
		// A storage tells of a cancellation in its own words.
		gone := errors.New("gone")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Get(ctx, "a", func(ctx context.Context) (*Page, error) {
				<-ctx.Done()
				return nil, gone
			})
			if !errors.Is(err, gone) {
				t.Errorf("loader: error %v, want its own", err)
			}
		})
		synctest.Wait()
		var n atomic.Int64
		wg.Go(func() {
			if got, err := c.Get(t.Context(), "a", loads(p, &n)); got != p || err != nil {
				t.Errorf("waiter: %v, %v", got, err)
			}
		})
		impatient, giveUp := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := c.Get(impatient, "a", loads(p, &n)); !errors.Is(err, context.Canceled) {
				t.Errorf("impatient waiter: error %v, want cancelled", err)
			}
		})
		synctest.Wait()
		giveUp()
		synctest.Wait()
		cancel()
		wg.Wait()
		if n.Load() != 1 {
			t.Errorf("%d loads by those who waited, want 1", n.Load())
		}
	})
}

func TestPanickingLoadLeavesNobodyWaiting(t *testing.T) {
	c, p := NewCache(1<<20), pageOf(t, 100)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = c.Get(t.Context(), "a", func(context.Context) (*Page, error) { panic("boom") })
	}()
	var n atomic.Int64
	if got, err := c.Get(t.Context(), "a", loads(p, &n)); got != p || err != nil {
		t.Errorf("after a panic: %v, %v", got, err)
	}
}

func TestCacheUnderConcurrentEviction(t *testing.T) {
	const limit = 64 << 10
	c := NewCache(limit)
	pages := make([]*Page, 40)
	for i := range pages {
		pages[i] = pageOf(t, 5<<10+i)
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				k := (i*7 + w*13) % len(pages)
				got, err := c.Get(t.Context(), fmt.Sprint(k), loads(pages[k], &n))
				if got != pages[k] || err != nil {
					t.Errorf("page %d: %v, %v", k, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	s := c.Stats()
	if s.Bytes > limit || s.Misses != n.Load() || s.Hits+s.Misses > 8000 {
		t.Errorf("stats %+v after %d loads of 8000 gets", s, n.Load())
	}
}

func BenchmarkCacheHit(b *testing.B) {
	c, p := NewCache(1<<20), pageOf(b, 100)
	names := make([]string, 64)
	var n atomic.Int64
	for i := range names {
		names[i] = fmt.Sprintf("trees/abcdef/0001/leaf/%016x", i)
		if _, err := c.Get(b.Context(), names[i], loads(p, &n)); err != nil {
			b.Fatal(err)
		}
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, ok := c.Lookup(names[i%len(names)]); !ok {
				b.Error("page is missing")
			}
		}
	})
}
