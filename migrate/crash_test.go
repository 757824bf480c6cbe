package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// crasher stops a migration at one of its steps: from then on no change of the
// disk and no request succeeds, as if the process were dead. A step is each
// moment before and after a change of the disk, a request, and a page.
type crasher struct {
	mu   sync.Mutex
	stop int
	n    int
	name string
	end  context.CancelFunc
}

var errCrash = errors.New("crash")

func (c *crasher) step(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n == c.stop {
		c.name = name
		c.end()
	}
	if c.stop > 0 && c.n >= c.stop {
		return errCrash
	}
	return nil
}

// crashDataset has everything that a step could count twice: records seen
// twice, a conflict, faults, records that had expired.
func crashDataset(order Order) []source.Page {
	ids := upTo(36)
	if order == OrderSort {
		slices.SortFunc(ids, func(a, b int) int { return a*7%36 - b*7%36 })
	}
	records := numbered(ids...)
	for _, at := range []int{30, 20, 3} {
		records = slices.Insert(records, at, records[at-1])
	}
	conflict := record(ids[10], "another value")
	conflict.Origin += "b"
	for i := range records {
		if records[i].Origin == fmt.Sprintf("row %d", ids[10]) {
			records = slices.Insert(records, i+1, conflict)
			break
		}
	}
	pages := paged(6, records...)
	pages[2].Faults = []source.Fault{{Origin: "bad row", Reason: "bad"}}
	pages[1].Expired, pages[5].Expired = 1, 2
	return pages
}

// crashCounts is its account.
var crashCounts = Counts{Read: 36 + 3 + 1 + 1 + 3, Mapped: 40, Rejected: 2, Duplicates: 3, Expired: 3, Loaded: 36}

// run makes one run that ends at a step, 0 for none.
func (c *crasher) run(t *testing.T, dir string, order Order, s *service, stop int) (Report, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	*c = crasher{stop: stop, end: cancel}
	src := &listSource{pages: crashDataset(order), beforePage: func(i int) error {
		// Time passes, so that each page is a checkpoint.
		time.Sleep(time.Second)
		return c.step(fmt.Sprintf("page %d", i))
	}}
	s.before = func(what string) error { return c.step("before " + what) }
	s.after = func(what string) error { return c.step("after " + what) }
	defer func() { s.before, s.after = nil, nil }()
	o := options(t, dir, src, s)
	o.Order, o.MaxRejects, o.Step = order, -1, c.step
	o.Verify = func(ctx context.Context, v *Verification) (Verdict, error) {
		n := int64(0)
		for _, err := range v.Entries(ctx, "") {
			if err != nil {
				return Verdict{}, err
			}
			n++
		}
		return Verdict{Equal: n == v.LiveKeys}, c.step("verify")
	}
	return Run(ctx, o)
}

// checkOutcome compares the end with that of a run without a crash.
func checkOutcome(t *testing.T, what string, r Report, err error, s *service, dump string, rejects string) {
	t.Helper()
	if err != nil || !r.Complete || r.Counts != crashCounts || r.TotalLiveKeys != 36 {
		t.Fatalf("%s: %+v, %v", what, r, err)
	}
	if got := s.dump(t, "t"); got != dump {
		t.Fatalf("%s: the tree holds\n%s\nwant\n%s", what, got, dump)
	}
	if got := readFile(t, r.Rejects); got != rejects {
		t.Fatalf("%s: rejects are\n%s\nwant\n%s", what, got, rejects)
	}
}

// resent returns how many chunks came more than once; the bodies of one chunk
// must be the same.
func resent(t *testing.T, what string, s *service) int {
	t.Helper()
	twice := 0
	for chunk, bodies := range s.sent {
		for _, b := range bodies[1:] {
			twice++
			if b != bodies[0] {
				t.Fatalf("%s: chunk %s was sent again with other contents", what, chunk)
			}
		}
	}
	return twice
}

// MIGRATION-LESSONS 2 and 12, PITFALLS 43 and 45: a process that dies at any
// step, before or after it took effect, and with replies lost, is followed by
// one that comes to the same end, and sends at most one chunk again.
func TestEveryCrashPoint(t *testing.T) {
	for _, order := range []Order{OrderSort, OrderSource} {
		t.Run(string(order), func(t *testing.T) {
			var c crasher
			s := newService()
			var dump, rejects string
			synctest.Test(t, func(t *testing.T) {
				r, err := c.run(t, folder(t), order, s, 0)
				if err != nil {
					t.Fatal(err)
				}
				dump, rejects = s.dump(t, "t"), readFile(t, r.Rejects)
				checkOutcome(t, "undisturbed", r, err, s, dump, rejects)
			})
			steps := c.n
			if strings.Count(dump, "\n") != 36 || strings.Count(rejects, "\n") != 2 || steps < 50 {
				t.Fatalf("%d steps:\n%s\n%s", steps, dump, rejects)
			}
			t.Logf("%d steps", steps)
			for stop := 1; stop <= steps; stop++ {
				synctest.Test(t, func(t *testing.T) {
					s, dir := newService(), folder(t)
					r, err := c.run(t, dir, order, s, stop)
					what := fmt.Sprintf("crash at step %d of %d (%s)", stop, steps, c.name)
					if err == nil && stop < steps-3 {
						t.Fatalf("%s: the run ended well: %+v", what, r)
					}
					r, err = c.run(t, dir, order, s, 0)
					checkOutcome(t, what, r, err, s, dump, rejects)
					if n := resent(t, what, s); n > 1 {
						t.Fatalf("%s: %d chunks were sent again", what, n)
					}
				})
			}
		})
	}
}

// Many crashes in a row, each run dying at a random step.
func TestManyCrashes(t *testing.T) {
	const seed = 20261130
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for _, order := range []Order{OrderSort, OrderSource} {
		var c crasher
		s := newService()
		var dump, rejects string
		synctest.Test(t, func(t *testing.T) {
			r, err := c.run(t, folder(t), order, s, 0)
			if err != nil {
				t.Fatal(err)
			}
			dump, rejects = s.dump(t, "t"), readFile(t, r.Rejects)
		})
		for range 10 {
			synctest.Test(t, func(t *testing.T) {
				s, dir, crashes := newService(), folder(t), 0
				for {
					r, err := c.run(t, dir, order, s, 1+random.IntN(60))
					if err == nil && r.Complete {
						break
					}
					if crashes++; crashes > 200 {
						t.Fatalf("no progress: %+v, %v", r, err)
					}
				}
				r, err := c.run(t, dir, order, s, 0)
				what := fmt.Sprintf("after %d crashes", crashes)
				checkOutcome(t, what, r, err, s, dump, rejects)
				if n := resent(t, what, s); n > crashes {
					t.Fatalf("%s: %d chunks were sent again", what, n)
				}
			})
		}
	}
}
