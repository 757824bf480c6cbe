package tree

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// crashChunks are chunks of which two are large on every shard, one is small, and
// one has large values.
func crashChunks() [][]BulkEntry {
	all := noise(0, 150, 60)
	all[148].Value = make([]byte, 3000)
	return [][]BulkEntry{all[:64], all[64:72], all[72:136], all[136:]}
}

func crashOptions(o *options.Options) {
	o.DefaultShardCount, o.BulkGraftBytes, o.LeafTargetBytes, o.InlineValueBytes = 4, 700, 4<<10, 2000
}

// loadSession drives a session to its end from wherever it stands.
func loadSession(ctx context.Context, in *instance, chunks [][]BulkEntry) error {
	h, err := in.OpenOrCreate(ctx, "t")
	if err != nil {
		return err
	}
	s, _, err := h.BeginBulkLoad(ctx, "op")
	if err != nil {
		return err
	}
	for i := s.NextChunk; i < int64(len(chunks)); i++ {
		ack, err := h.AppendBulkLoad(ctx, "op", i, from(chunks[i]), BulkOptions{})
		if err != nil {
			return err
		}
		if ack.Chunk != i || ack.NextChunk != i+1 || ack.Accepted != int64(len(chunks[i])) {
			return fmt.Errorf("chunk %d is acknowledged with %+v", i, ack)
		}
	}
	_, err = h.CommitBulkLoad(ctx, "op")
	return err
}

// A session is killed at every storage operation it makes, before and after the
// effect of it, and finished by another instance.
func TestSessionSurvivesACrashAnywhere(t *testing.T) {
	chunks := crashChunks()
	var want []BulkEntry
	for _, c := range chunks {
		want = append(want, c...)
	}
	prepare := func(t *testing.T) (*memory.Store, *faulty.Instance, *instance) {
		m := memory.New(memory.Options{})
		open(t, m.Table(), m.Blobs(), crashOptions).writer(t, "t")
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		return m, f, open(t, f.Table(), f.Blobs(), crashOptions)
	}
	var calls uint64
	synctest.Test(t, func(t *testing.T) {
		_, f, in := prepare(t)
		must(t, loadSession(t.Context(), in, chunks))
		calls = f.Calls()
		if g, w := in.hooks.count("graft"), in.hooks.count("write"); g < 8 || w < 4 {
			t.Fatalf("%d grafts and %d writes: not all that should be tried", g, w)
		}
	})
	t.Logf("%d storage operations", calls)
	for n := uint64(1); n <= calls; n++ {
		for _, point := range faulty.Points {
			t.Run(fmt.Sprintf("call %d of %d %s", n, calls, point), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, f, in := prepare(t)
					f.KillAt(n, point)
					ctx, cancel := f.Context(t.Context())
					defer cancel()
					_ = loadSession(ctx, in, chunks)
					checkRecovery(t, m, chunks, want)
				})
			})
		}
	}
}

func checkRecovery(t *testing.T, m *memory.Store, chunks [][]BulkEntry, want []BulkEntry) {
	t.Helper()
	in := open(t, m.Table(), m.Blobs(), crashOptions)
	h := in.writer(t, "t")
	before := BulkState{}
	if s, err := h.BulkLoadState(t.Context(), "op"); err == nil {
		before = s
	} else {
		wantErr(t, err, ErrOperationNotFound)
	}
	// Whatever was acknowledged is there before anything is sent again.
	var whole []BulkEntry
	for _, c := range chunks[:before.NextChunk] {
		whole = append(whole, c...)
	}
	if before.Accepted != int64(len(whole)) {
		t.Errorf("%d accepted after %d chunks", before.Accepted, before.NextChunk)
	}
	for _, e := range whole {
		it, ok, err := h.Get(t.Context(), e.Key, ReadOptions{})
		if err != nil || !ok || string(it.Value) != string(e.Value) {
			t.Fatalf("acknowledged %q: %v %v", e.Key, ok, err)
		}
	}
	must(t, loadSession(t.Context(), in, chunks))
	holds(t, h, want)
	s, err := h.BulkLoadState(t.Context(), "op")
	must(t, err)
	if s.Status != BulkCommitted || s.Accepted != int64(len(want)) || s.NextChunk != int64(len(chunks)) || s.Pending || s.LastKey != want[len(want)-1].Key {
		t.Errorf("%+v", s)
	}
	settleAndCollect(t, in, h, want)
}

// settleAndCollect folds and collects whatever is left, and looks once more.
func settleAndCollect(t *testing.T, in *instance, h *Tree, want []BulkEntry) {
	t.Helper()
	for range 3 {
		_, err := in.Checkpoint(t.Context(), 0)
		must(t, err)
		_, err = in.Collect(t.Context(), 0)
		must(t, err)
		time.Sleep(in.opts.BlobGracePeriod + time.Minute)
	}
	holds(t, h, want)
}

func TestOneShotSurvivesACrashAnywhere(t *testing.T) {
	small := func(o *options.Options) {
		crashOptions(o)
		o.BulkLoadBufferBytes = 64 << 10
	}
	want := noise(0, 600, 150)
	load := func(ctx context.Context, in *instance) (BulkResult, error) {
		h, err := in.OpenOrCreate(ctx, "t")
		if err != nil {
			return BulkResult{}, err
		}
		return h.BulkLoad(ctx, from(shuffled(want, 3)), BulkOptions{})
	}
	prepare := func(t *testing.T) (*memory.Store, *faulty.Instance, *instance) {
		m := memory.New(memory.Options{})
		open(t, m.Table(), m.Blobs(), small).writer(t, "t")
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		return m, f, open(t, f.Table(), f.Blobs(), small)
	}
	var calls uint64
	synctest.Test(t, func(t *testing.T) {
		_, f, in := prepare(t)
		_, err := load(t.Context(), in)
		must(t, err)
		calls = f.Calls()
	})
	t.Logf("%d storage operations", calls)
	for n := uint64(1); n <= calls; n++ {
		for _, point := range faulty.Points {
			t.Run(fmt.Sprintf("call %d of %d %s", n, calls, point), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, f, in := prepare(t)
					f.KillAt(n, point)
					ctx, cancel := f.Context(t.Context())
					defer cancel()
					res, err := load(ctx, in)
					again := open(t, m.Table(), m.Blobs(), small)
					h := again.writer(t, "t")
					c, cerr := h.Count(t.Context(), Bounds{}, ReadOptions{})
					must(t, cerr)
					if c.Total < res.Accepted {
						t.Errorf("%d entries, %d were accepted", c.Total, res.Accepted)
					}
					if err == nil && c.Total != int64(len(want)) {
						t.Errorf("%d entries after success", c.Total)
					}
					time.Sleep(loadLease)
					// What is there in part is filled up by a stream, which asks for
					// no empty tree.
					if c.Total == 0 {
						_, err = h.BulkLoad(t.Context(), from(want), BulkOptions{})
					} else {
						_, err = h.BulkLoad(t.Context(), from(want), BulkOptions{})
						wantErr(t, err, ErrTreeNotEmpty)
						_, err = h.BulkStream(t.Context(), from(want), BulkOptions{})
					}
					must(t, err)
					holds(t, h, want)
				})
			})
		}
	}
}

func TestLostRepliesOfShards(t *testing.T) {
	chunks := crashChunks()
	var want []BulkEntry
	for _, c := range chunks {
		want = append(want, c...)
	}
	for name, fault := range map[string]func() faulty.Fault{"applied": faulty.Lose, "not applied": faulty.Drop, "applied twice": faulty.Duplicate} {
		for every := range 4 {
			t.Run(fmt.Sprintf("%s, from write %d on", name, every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := memory.New(memory.Options{})
					open(t, m.Table(), m.Blobs(), crashOptions).writer(t, "t")
					f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
					lost := f.Add(faulty.Rule{When: faulty.Writes, Skip: 3 + every, Chance: 0.3, Times: 12, Do: fault()})
					in := open(t, f.Table(), f.Blobs(), crashOptions)
					var err error
					for range 20 {
						if err = loadSession(t.Context(), in, chunks); err == nil {
							break
						}
						if !errors.Is(err, store.ErrOutcomeUnknown) && !store.Transient(err) {
							t.Fatal(err)
						}
					}
					must(t, err)
					if lost.Fired() == 0 {
						t.Error("no reply was lost")
					}
					holds(t, in.writer(t, "t"), want)
				})
			})
		}
	}
}
