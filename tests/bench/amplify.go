package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

const (
	// writeBatch is the number of entries written by one call.
	writeBatch = 100
	// mostWritten is the expectation for the bytes written per byte of data.
	mostWritten = 8.0
)

// amplify reports the bytes written to table and blobs for each byte of key and
// value, of one shard under uniform updates.
func amplify(ctx context.Context, s *settings, out io.Writer) error {
	fmt.Fprintf(out, "\nuniform updates of one shard, %d times over the data in batches of %d, values of %d bytes, seed %d\n\n",
		s.rounds, writeBatch, s.valueBytes, s.seed)
	fmt.Fprintln(out, "| entries  | loading | updates | of it log | of it blobs | writes/s | expected |")
	fmt.Fprintln(out, "|---------:|--------:|--------:|----------:|------------:|---------:|:---------|")
	for _, n := range s.entries {
		a, err := newAmplification(ctx, s)
		if err != nil {
			return err
		}
		got, err := a.run(ctx, n)
		if err != nil {
			return fmt.Errorf("%d entries: %w", n, err)
		}
		word := "pass"
		if got.update.total() > mostWritten {
			word = "over"
		}
		fmt.Fprintf(out, "| %8d | %7.2f | %7.2f | %9.2f | %11.2f | %8.0f | ≤ %.0f: %s |\n", n,
			got.load.total(), got.update.total(), got.update.log, got.update.blobs, got.perSecond, mostWritten, word)
	}
	return nil
}

// amplification is one shard on metered memory.
type amplification struct {
	s     *settings
	meter *metered.Store
	db    *tree.DB
	tree  *tree.Tree
	value func() []byte
	rnd   *rand.Rand
	user  int64
	calls int
}

func newAmplification(ctx context.Context, s *settings) (*amplification, error) {
	m := memory.New(memory.Options{})
	meter := metered.New(m.Table(), m.Blobs())
	o := options.Default()
	// The collector keeps up with a load that is compressed into seconds.
	o.WalGracePeriod, o.BlobGracePeriod = time.Second, 10*time.Second
	db, err := tree.New(tree.Config{Table: meter.Table(), Blobs: meter.Blobs(), Clock: clock.NewSystem(), Options: o})
	if err != nil {
		return nil, err
	}
	if _, _, err := db.Create(ctx, "bench", tree.CreateOptions{ShardCount: 1}); err != nil {
		return nil, err
	}
	t, err := db.OpenOrCreate(ctx, "bench")
	return &amplification{
		s: s, meter: meter, db: db, tree: t, value: values(s.seed, s.valueBytes), rnd: rand.New(rand.NewPCG(s.seed, 2)),
	}, err
}

// amplified is what was written while loading and while updating, and how many
// updates a second there were.
type amplified struct {
	load, update written
	perSecond    float64
}

func (a *amplification) run(ctx context.Context, entries int) (got amplified, err error) {
	loaded := 0
	if got.load, err = a.phase(ctx, entries, func() int { loaded++; return loaded - 1 }); err != nil {
		return got, err
	}
	begin := time.Now()
	got.update, err = a.phase(ctx, a.s.rounds*entries, func() int { return a.rnd.IntN(entries) })
	got.perSecond = float64(a.s.rounds*entries) / time.Since(begin).Seconds()
	return got, err
}

// written are bytes per byte of user data.
type written struct{ log, blobs float64 }

func (w written) total() float64 { return w.log + w.blobs }

// phase writes n entries in batches, with checkpoints as they fall due.
func (a *amplification) phase(ctx context.Context, n int, next func() int) (written, error) {
	before, user := a.meter.Snapshot(), a.user
	for range n / writeBatch {
		ops := make([]tree.BatchOp, writeBatch)
		for i := range ops {
			ops[i] = tree.BatchOp{Key: fmt.Sprintf("user-%08d", next()), Value: a.value()}
			a.user += int64(len(ops[i].Key) + len(ops[i].Value))
		}
		if _, err := a.tree.Batch(ctx, ops); err != nil {
			return written{}, err
		}
		if err := a.tick(ctx); err != nil {
			return written{}, err
		}
	}
	spent, data := a.meter.Snapshot().Sub(before), float64(a.user-user)
	return written{log: float64(spent.TableBytesWritten) / data, blobs: float64(spent.BlobBytesWritten) / data}, nil
}

// tick does what the schedule does in between.
func (a *amplification) tick(ctx context.Context) error {
	a.calls++
	if a.calls%10 != 0 {
		return nil
	}
	rep, err := a.db.Checkpoint(ctx, 0)
	if err == nil && a.calls%1000 == 0 {
		rep, err = a.db.Collect(ctx, 0)
	}
	if err == nil && rep.Failed > 0 {
		err = rep.Failures[0].Err
	}
	return err
}
