package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/history"
)

// skewed is a clock whose wall runs ahead of the machine's.
type skewed struct {
	clock.Source
	by time.Duration
}

func (s skewed) Now() clock.Instant {
	now := s.Source.Now()
	now.Wall += int64(s.by)
	return now
}

// crowd is a number of clients on several instances over one store.
type crowd struct {
	t      *testing.T
	src    clock.Source
	rnd    *rand.Rand
	start  time.Time
	shards []*shard.Shard
	faults []*faulty.Instance
	rec    history.Recorder
	mu     sync.Mutex
	seen   map[string]string
	serial int
}

func (c *crowd) version(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[key]
}

func (c *crowd) next(bound int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(bound)
}

func (c *crowd) value() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return fmt.Sprintf("v%d", c.serial)
}

// act does one random operation as a client.
func (c *crowd) act(ctx context.Context, client int) {
	s := c.shards[c.next(len(c.shards))]
	op := history.Op{Client: client, Key: fmt.Sprintf("k%d", c.next(3)), Call: int64(time.Since(c.start))}
	defer func() {
		op.Return = int64(time.Since(c.start))
		c.rec.Add(op)
		if op.Version != "" {
			c.mu.Lock()
			c.seen[op.Key] = op.Version
			c.mu.Unlock()
		}
	}()
	if kind := c.next(10); kind < 4 {
		op.Kind = history.Get
		e, ok, err := s.Read(ctx, op.Key, shard.ReadOptions{})
		op.Unknown = err != nil
		if ok {
			op.Seen, op.Version = string(e.Value), e.Version.String()
		}
		return
	}
	c.write(ctx, s, &op)
}

func (c *crowd) write(ctx context.Context, s *shard.Shard, op *history.Op) {
	w := shard.Write{Op: shard.OpPut, Key: op.Key}
	op.Kind = history.Put
	switch c.next(6) {
	case 0:
		op.IfAbsent, w.IfAbsent = true, true
	case 1:
		if v, err := clock.ParseVersion(c.version(op.Key)); err == nil {
			op.IfVersion, w.IfVersion = v.String(), v
		}
	case 2:
		op.Kind, w.Op = history.Delete, shard.OpDelete
	case 3:
		op.Kind, w.Op = history.GetOrSet, shard.OpGetOrSet
	}
	if w.Op != shard.OpDelete {
		op.Value = c.value()
		w.Value = []byte(op.Value)
	}
	res, err := s.Write(ctx, []shard.Write{w})
	if err != nil {
		op.Unknown = errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
		if !op.Unknown {
			// Known not to have happened: no part of the history.
			op.Kind, op.Unknown = history.Get, true
		}
		return
	}
	r := res[0]
	op.Found = r.Existed
	switch r.Status {
	case shard.StatusMismatch:
		op.Mismatch = true
		if !r.Version.IsZero() {
			op.Version = r.Version.String()
		}
	case shard.StatusExisting:
		if r.Entry.Ref != nil {
			// Nothing was written and the value is not at hand.
			op.Kind, op.Unknown = history.Get, true
			return
		}
		op.Seen, op.Version = string(r.Entry.Value), r.Version.String()
	default:
		if op.Kind != history.Delete {
			op.Version = r.Version.String()
		}
	}
}

// linearizable runs one random schedule in virtual time and checks its history.
func linearizable(t *testing.T, seed uint64, instances int, leases func(i int) bool) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		c := &crowd{t: t, src: src, rnd: rand.New(rand.NewPCG(seed, 1)), start: time.Now(), seen: map[string]string{}}
		mem := memory.New(memory.Options{Clock: src})
		for i := range instances {
			in := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
			in.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
			c.faults = append(c.faults, in)
			p := instance(t, in.Table(), in.Blobs(), func(cfg *shard.Config) {
				cfg.Leases = leases(i)
				cfg.Clock = skewed{src, time.Duration(c.next(400)) * time.Millisecond}
				cfg.LeaseDuration = 3 * time.Second
				cfg.LeaseContentionBackoff = 5 * time.Second
				cfg.WalGracePeriod = 300 * time.Millisecond
				cfg.BlobGracePeriod = 2 * time.Second
				cfg.Tuning.CheckpointTailRows = 4
				cfg.Tuning.InlineValueBytes = 3 // from v100 on
			})
			c.shards = append(c.shards, p.Shard("s-test-0"))
		}
		if err := c.shards[0].Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, in := range c.faults {
			in.Add(faulty.Storm(0.15, 20*time.Millisecond)...)
		}
		c.run(12, 40)
		for _, in := range c.faults {
			in.Wait()
		}
		ops := c.rec.Ops()
		if v := history.Check(ops, 30*time.Second); !v.OK() {
			path := fmt.Sprintf("%s/history-%d.html", t.ArtifactDir(), seed)
			_ = v.Draw(path)
			t.Errorf("seed %d: key %q is not linearizable (undecided %v); see %s", seed, v.Key, v.Undecided, path)
		}
	})
}

func (c *crowd) run(clients, each int) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, s := range c.shards {
		wg.Go(func() { c.maintain(s, stop) })
	}
	var active sync.WaitGroup
	for client := range clients {
		active.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
				c.act(ctx, client)
				cancel()
				_ = c.src.Sleep(context.Background(), time.Duration(c.next(30))*time.Millisecond)
			}
		})
	}
	active.Wait()
	close(stop)
	wg.Wait()
}

// maintain runs the ticks of one instance, which may fail as they like.
func (c *crowd) maintain(s *shard.Shard, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, cerr := s.Checkpoint(ctx, shard.CheckpointOptions{})
		_, gerr := s.Collect(ctx)
		cancel()
		for _, err := range []error{cerr, gerr} {
			if errors.Is(err, store.ErrCorrupt) {
				c.t.Errorf("tick: %v", err)
			}
		}
		_ = c.src.Sleep(context.Background(), time.Duration(100+c.next(400))*time.Millisecond)
	}
}

func TestLinearizableUnderFaults(t *testing.T) {
	modes := map[string]func(int) bool{
		"without leases": func(int) bool { return false },
		"with leases":    func(int) bool { return true },
		"mixed":          func(i int) bool { return i%2 == 0 },
	}
	for name, leases := range modes {
		t.Run(name, func(t *testing.T) {
			for i := range history.Seeds() {
				seed := uint64(i + 1)
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { linearizable(t, seed, 3, leases) })
			}
		})
	}
}
