package tree

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// crash runs an operation once for each storage call it makes, killed at that
// call before and after its effect, each time on a fresh store and in virtual
// time.
func crash(t *testing.T, setUp func(t *testing.T, in *instance), op func(ctx context.Context, in *instance) error, check func(t *testing.T, in *instance, err error)) {
	t.Helper()
	prepare := func(t *testing.T) (*memory.Store, *faulty.Instance, *instance) {
		m := memory.New(memory.Options{})
		setUp(t, open(t, m.Table(), m.Blobs()))
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		return m, f, open(t, f.Table(), f.Blobs())
	}
	var calls uint64
	synctest.Test(t, func(t *testing.T) {
		_, f, in := prepare(t)
		must(t, op(t.Context(), in))
		calls = f.Calls()
	})
	if calls < 2 {
		t.Fatalf("only %d calls", calls)
	}
	for n := uint64(1); n <= calls; n++ {
		for _, point := range faulty.Points {
			t.Run(fmt.Sprintf("call %d of %d %s", n, calls, point), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, f, in := prepare(t)
					f.KillAt(n, point)
					ctx, cancel := f.Context(t.Context())
					defer cancel()
					err := op(ctx, in)
					check(t, open(t, m.Table(), m.Blobs()), err)
				})
			})
		}
	}
}

func TestCreateSurvivesACrashAnywhere(t *testing.T) {
	crash(t, func(*testing.T, *instance) {}, func(ctx context.Context, in *instance) error {
		_, _, err := in.Create(ctx, "t", CreateOptions{ShardCount: 3})
		return err
	}, func(t *testing.T, in *instance, err error) {
		infos, _, lerr := in.List(t.Context(), "", 10)
		if lerr != nil || len(infos) > 1 || len(infos) == 1 && infos[0].State != StateActive {
			t.Fatalf("half a tree shows: %+v %v", infos, lerr)
		}
		h, oerr := in.Open(t.Context(), "t")
		if oerr != nil {
			wantErr(t, oerr, ErrTreeNotFound)
			h = in.writer(t, "t")
		}
		load(t, h, 30)
		if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 30 {
			t.Errorf("%+v %v", c, err)
		}
	})
}

func TestDeleteSurvivesACrashAnywhere(t *testing.T) {
	crash(t, func(t *testing.T, in *instance) { load(t, in.writer(t, "t"), 30) },
		func(ctx context.Context, in *instance) error { return in.Delete(ctx, "t") },
		func(t *testing.T, in *instance, err error) {
			rep, cerr := in.Collect(t.Context(), 0)
			must(t, cerr)
			info, ierr := in.Info(t.Context(), "t")
			must(t, ierr)
			if info.State == StateActive && len(rep.Finished) > 0 {
				t.Errorf("nothing was begun but %v finished", rep.Finished)
			}
			must(t, in.Delete(t.Context(), "t"))
			closed(t, in, true)
			must(t, in.Recover(t.Context(), "t"))
			if c, err := in.writer(t, "t").Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 30 {
				t.Errorf("%+v %v", c, err)
			}
		})
}

func TestRecoverSurvivesACrashAnywhere(t *testing.T) {
	crash(t, func(t *testing.T, in *instance) {
		load(t, in.writer(t, "t"), 30)
		must(t, in.Delete(t.Context(), "t"))
	}, func(ctx context.Context, in *instance) error { return in.Recover(ctx, "t") },
		func(t *testing.T, in *instance, err error) {
			h, oerr := in.Open(t.Context(), "t")
			if oerr != nil {
				wantErr(t, oerr, ErrTreeDeleted)
				must(t, in.Recover(t.Context(), "t"))
				h = in.writer(t, "t")
			}
			closed(t, in, false)
			if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 30 {
				t.Errorf("%+v %v", c, err)
			}
		})
}

func TestPurgeSurvivesACrashAnywhere(t *testing.T) {
	var partitions []string
	crash(t, func(t *testing.T, in *instance) {
		h := in.writer(t, "t")
		load(t, h, 30)
		_, err := h.Put(t.Context(), "large", make([]byte, 300<<10), PutOptions{})
		must(t, err)
		partitions = h.entry.cur.Load().partitions
		must(t, in.Delete(t.Context(), "t"))
	}, func(ctx context.Context, in *instance) error { return in.Purge(ctx, "t") },
		func(t *testing.T, in *instance, err error) {
			if _, oerr := in.Open(t.Context(), "t"); !errors.Is(oerr, ErrTreeDeleted) && !errors.Is(oerr, ErrTreeNotFound) {
				t.Fatal(oerr)
			}
			if perr := in.Purge(t.Context(), "t"); perr != nil && !errors.Is(perr, ErrTreeNotFound) {
				t.Fatal(perr)
			}
			for _, p := range partitions {
				if page, err := in.table.Range(t.Context(), p, store.RangeQuery{}); err != nil || len(page.Rows) != 1 {
					t.Errorf("%s holds %d rows, %v", p, len(page.Rows), err)
				}
			}
			h := in.writer(t, "t")
			if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 0 {
				t.Errorf("the new tree begins with %+v %v", c, err)
			}
		})
}

// closed checks every shard of the tree.
func closed(t *testing.T, in *instance, want bool) {
	t.Helper()
	s, err := in.reg.read(t.Context(), "t")
	must(t, err)
	if !s.Settled {
		t.Error("the row is not settled")
	}
	must(t, in.eachShard(t.Context(), &s.row, func(ctx context.Context, l shardLog) error {
		_, err := l.View(ctx, shard.ReadOptions{})
		if errors.Is(err, shard.ErrClosed) != want {
			return fmt.Errorf("closed %v expected: %w", want, errors.Join(err, errors.New("x")))
		}
		return nil
	}))
}

func TestCreateCountsOnceThoughItsReplyIsLost(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{"applied": faulty.Lose(), "not applied": faulty.Drop(), "applied twice": faulty.Duplicate()} {
		t.Run(name, func(t *testing.T) {
			m := memory.New(memory.Options{})
			f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
			lost := f.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Times: 1, Do: fault})
			in := open(t, f.Table(), f.Blobs())
			_, created, err := in.Create(t.Context(), "t", CreateOptions{})
			if err != nil || !created || lost.Fired() != 1 {
				t.Errorf("created %v, %v, %d faults", created, err, lost.Fired())
			}
			put(t, in.writer(t, "t"), "k")
		})
	}
}

func TestCreateWhoseInsertLandsLateMakesOneTree(t *testing.T) {
	m := memory.New(memory.Options{})
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	f.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Times: 1, Do: faulty.Hold(0)})
	in := open(t, f.Table(), f.Blobs())
	_, created, err := in.Create(t.Context(), "t", CreateOptions{})
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	put(t, in.writer(t, "t"), "k")
	f.Release()
	if keys, _ := walkPages(t, open(t, m.Table(), m.Blobs()).writer(t, "t"), ScanQuery{Limit: 5}); len(keys) != 1 {
		t.Errorf("%d keys after the first insert landed", len(keys))
	}
}

func TestIdsAreNeverUsedAgain(t *testing.T) {
	m := memory.New(memory.Options{})
	other := open(t, m.Table(), m.Blobs())
	seen := map[string]int{}
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{Before: func(ctx context.Context, c *faulty.Call) error {
		if c.Kind != faulty.Apply || c.Partition == partitionRegistry || len(seen) >= 3 {
			return nil
		}
		// Before its first shard is made, the tree is finished, deleted and
		// purged by somebody else.
		s, err := other.reg.read(ctx, "t")
		if err != nil {
			return nil
		}
		seen[s.ID]++
		_, _ = other.settled(ctx, s)
		_ = other.Delete(ctx, "t")
		_ = other.Purge(ctx, "t")
		return nil
	}})
	in := open(t, f.Table(), f.Blobs(), func(o *options.Options) { o.DefaultShardCount = 1 })
	put(t, in.writer(t, "t"), "k")
	s, err := other.reg.read(t.Context(), "t")
	must(t, err)
	if seen[s.ID] > 0 || len(seen) != 3 {
		t.Errorf("the tree has the id %s of an earlier one: %v", s.ID, seen)
	}
	for id := range seen {
		r := row{ID: id}
		err := other.DB.shard(r.partition(0), in.tuning(&r)).Create(t.Context())
		must(t, err)
		_, err = other.DB.shard(r.partition(0), in.tuning(&r)).View(t.Context(), shard.ReadOptions{})
		wantErr(t, err, shard.ErrClosed) // a late creator does not bring it back
	}
}

func TestLostInsertOfATreePurgedMeanwhileIsNotRepeated(t *testing.T) {
	m := memory.New(memory.Options{})
	other := open(t, m.Table(), m.Blobs())
	var first string
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{Before: func(ctx context.Context, c *faulty.Call) error {
		if c.Kind != faulty.Get || first != "" {
			return nil
		}
		s, err := other.reg.read(ctx, "t")
		if err != nil {
			return nil
		}
		first = s.ID
		_, err = other.settled(ctx, s)
		return errors.Join(err, other.Delete(ctx, "t"), other.Purge(ctx, "t"))
	}})
	f.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Times: 1, Do: faulty.Lose()})
	in := open(t, f.Table(), f.Blobs())
	_, created, err := in.Create(t.Context(), "t", CreateOptions{})
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	put(t, in.writer(t, "t"), "k")
	if s, err := in.reg.read(t.Context(), "t"); err != nil || first == "" || s.ID == first {
		t.Errorf("id %q after %q, %v", s.ID, first, err)
	}
}
