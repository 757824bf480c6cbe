package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/source/sourcetest"
	"github.com/latticekv/lattice/migrate/spool"
)

// moving is a source with a tree that was filled from it.
type moving struct {
	*world
	store *sourcetest.Store
}

func newMoving(t *testing.T, n int) *moving {
	t.Helper()
	m := &moving{newWorld(t), &sourcetest.Store{Name: "store", PageSize: 18}}
	m.store.Now = m.clock.now
	for i := range n {
		// Ids that are not in order.
		m.row(fmt.Sprintf("p%d/%03d", i%3, (i*37)%n), fmt.Sprint("value ", i), 0)
	}
	return m
}

// row puts a record into the source and its entry into the tree.
func (m *moving) row(id, value string, ttl time.Duration) {
	m.put(id, value, ttl)
	m.only(id, value, ttl)
}

// only puts a record into the source alone.
func (m *moving) only(id, value string, ttl time.Duration) {
	r := sourcetest.Row{ID: id, Payload: []byte(value)}
	if ttl != 0 {
		r.Expiry = epoch.Add(ttl)
	}
	m.store.Put(r)
}

func (m *moving) job(s source.Source) Job {
	m.t.Helper()
	tpl, err := keys.Parse("{id:raw}", nil, keys.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	mapper, err := mapping.New(mapping.Options{Template: tpl, Now: m.clock.now})
	if err != nil {
		m.t.Fatal(err)
	}
	return Job{Source: s, Map: mapper.Map, Spool: spool.Options{SortMemory: 1 << 20}}
}

func (m *moving) run(ctx context.Context, job Job, path string, step func(string) error) (Report, error) {
	return Run(ctx, job, m.tree, Options{Dir: folder(m.t, path, step), Now: m.clock.now, Values: All, RangeSize: 60})
}

func TestRunReadsTheSourceAgain(t *testing.T) {
	m := newMoving(t, 100)
	m.row("p0/soon", "x", time.Minute)
	m.only("p1/lost", "x", 0)
	m.put("p2/extra", "x", 0)
	m.clock.set(epoch.Add(time.Minute))
	r, err := m.run(t.Context(), m.job(m.store.Source()), durabletest.Folder(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFound(t, r, "missing p1/lost", "extra p2/extra")
	c := r.Counted
	if c.Read != 101 || c.Expired != 1 || c.Before != 102 || c.After != 102 || r.Source != "store" || r.Total.Compared != 100 {
		t.Errorf("%+v, %+v", c, r.Total)
	}
}

// TestRecordsThatCannotBeComparedAreNoSuccess.
func TestRecordsThatCannotBeComparedAreNoSuccess(t *testing.T) {
	m := newMoving(t, 10)
	m.store.Put(sourcetest.Row{ID: "bad", Fault: "torn"}, sourcetest.Row{ID: "", Payload: []byte("x")})
	r, err := m.run(t.Context(), m.job(m.store.Source()), durabletest.Folder(t), nil)
	if err != nil || r.Equal() || r.Total.Differs() != 0 || r.Counted.Faults != 2 || !strings.Contains(strings.Join(r.Counted.FirstFaults, " "), "torn") {
		t.Fatalf("%v, %+v", err, r.Counted)
	}
}

// TestRecordsOfOneKey: the first is compared, the others are told; one that is
// read twice is one.
func TestRecordsOfOneKey(t *testing.T) {
	m := newMoving(t, 0)
	m.put("a", "1", 0)
	m.store.Put(sourcetest.Row{ID: "1", Payload: []byte("1"), Fields: []source.Field{{Name: "name", Value: "a"}}},
		sourcetest.Row{ID: "2", Payload: []byte("2"), Fields: []source.Field{{Name: "name", Value: "a"}}})
	job := m.job(m.store.Source())
	plain := job.Map
	job.Map = func(r *source.Record, e *spool.Entry) error {
		err := plain(r, e)
		name, _ := r.Get("name")
		e.Key = name.(string)
		return err
	}
	r, err := m.run(t.Context(), job, durabletest.Folder(t), nil)
	if err != nil || r.Total.Duplicates != 1 || r.Equal() || r.Total.Value != 0 || len(r.First) != 1 || !strings.Contains(r.First[0].Origin, `row "1" and row "2"`) {
		t.Fatalf("%v, %+v, %+v", err, r.Total, r.First)
	}
	job.Map = func(r *source.Record, e *spool.Entry) error {
		err := plain(r, e)
		e.Key, e.Origin = "a", "the same"
		return err
	}
	m.put("a", "2", 0)
	if r, err = m.run(t.Context(), job, durabletest.Folder(t), nil); err != nil || !r.Equal() || r.Total.Source != 1 {
		t.Fatalf("read twice: %v, %+v", err, r.Total)
	}
}

// TestChangesAreAskedOfTheSource since the cut.
func TestChangesAreAskedOfTheSource(t *testing.T) {
	m := newMoving(t, 50)
	src := m.store.Changing()
	info, err := src.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.only("p0/new", "x", 0)
	m.only("p1/001", "changed", 0)
	if _, err := m.tree.Delete(t.Context(), "p2/002", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.only("p2/002", "again", 0)
	m.put("p0/extra", "x", 0)
	job := m.job(src)
	job.Cut = info.Cut
	r, err := m.run(t.Context(), job, durabletest.Folder(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFound(t, r, "changed at the source p0/new", "changed at the source p1/001", "changed at the source p2/002", "extra p0/extra")
}

// TestARunIsKilledAnywhere: at every page of the source, at every change of the
// disk; the next one comes to the same end and reads no page twice in vain.
func TestARunIsKilledAnywhere(t *testing.T) {
	m := newMoving(t, 60)
	m.only("p1/lost", "x", 0)
	m.only("p1/000", "other", 0)
	src := m.store.Changing()
	job := m.job(src)
	job.Cut = "61"
	steps := 0
	want, err := m.run(t.Context(), job, durabletest.Folder(t), func(string) error { steps++; return nil })
	if err != nil || want.Total.Differs() != 2 || want.Total.Changed != 2 || steps < 20 {
		t.Fatalf("%v, %d steps, %+v", err, steps, want.Total)
	}
	same := func(job Job, path string) error {
		r, err := m.run(t.Context(), job, path, nil)
		if err == nil && plain(t, r) != plain(t, want) {
			err = fmt.Errorf("ends with\n%s\nwant\n%s", plain(t, r), plain(t, want))
		}
		return err
	}
	atEach(t, steps, func(at int, path string) error {
		job := m.job(src)
		job.Cut = "61"
		if _, err := m.run(t.Context(), job, path, killedAfter(at)); !errors.Is(err, errKilled) {
			return fmt.Errorf("not killed: %w", err)
		}
		return same(job, path)
	})
	for at := 0; ; at++ {
		path, n := durabletest.Folder(t), 0
		m.store.BeforePage = func(int) error {
			if n++; n > at {
				return errKilled
			}
			return nil
		}
		_, err := m.run(t.Context(), job, path, nil)
		m.store.BeforePage = nil
		if err == nil {
			if at < 4 {
				t.Errorf("only %d pages", at)
			}
			return
		}
		before := m.store.Pages()
		if err := same(job, path); err != nil {
			t.Fatal(at, err)
		}
		if again := m.store.Pages() - before; again > 5-at {
			t.Errorf("killed before page %d, %d pages were read afterwards", at, again)
		}
	}
}

// TestASourceThatCannotResume is begun anew, a number of times.
func TestASourceThatCannotResume(t *testing.T) {
	m := newMoving(t, 40)
	restarts := 0
	m.store.BeforePage = func(read int) error {
		if read == 2 && restarts == 0 {
			restarts++
			return fmt.Errorf("failed over: %w", source.ErrRestart)
		}
		return nil
	}
	r, err := m.run(t.Context(), m.job(m.store.Source()), durabletest.Folder(t), nil)
	if err != nil || !r.Equal() || r.Counted.Read != 40 || restarts != 1 {
		t.Fatalf("%v, %+v", err, r.Counted)
	}
	m.store.BeforePage = func(int) error { restarts++; return source.ErrRestart }
	restarts = 0
	if _, err := m.run(t.Context(), m.job(m.store.Source()), durabletest.Folder(t), nil); !errors.Is(err, source.ErrRestart) || restarts != maxRestarts+1 {
		t.Fatalf("%d restarts, %v", restarts, err)
	}
}

// TestAnotherSourceIsNoContinuation.
func TestAnotherSourceIsNoContinuation(t *testing.T) {
	m := newMoving(t, 40)
	path := durabletest.Folder(t)
	m.store.BeforePage = func(read int) error {
		if read == 1 {
			return errKilled
		}
		return nil
	}
	if _, err := m.run(t.Context(), m.job(m.store.Source()), path, nil); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	m.store.BeforePage = nil
	m.store.Name = "another"
	if _, err := m.run(t.Context(), m.job(m.store.Source()), path, nil); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), `was "store" and is "another"`) {
		t.Fatal(err)
	}
}

// TestTheSpoolsTakeNoRoomAfterwards.
func TestTheSpoolsTakeNoRoomAfterwards(t *testing.T) {
	m := newMoving(t, 40)
	path := durabletest.Folder(t)
	for range 2 {
		if r, err := m.run(t.Context(), m.job(m.store.Source()), path, nil); err != nil || !r.Equal() {
			t.Fatal(err)
		}
		left, err := os.ReadDir(path + "/" + entriesName)
		if err != nil || len(left) != 0 {
			t.Fatal(left, err)
		}
	}
}
