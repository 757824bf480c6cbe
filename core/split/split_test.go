package split_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/providers/faulty"
)

// story is a scripted life of a tree around a split: values small and large,
// tombstones, entries that expire, writes before, during and after. It keeps
// what was acknowledged.
type story struct {
	n     *node
	acked map[string]string
	open  string
	err   error
}

func (s *story) do(ctx context.Context, w shard.Write) {
	if s.err != nil {
		return
	}
	s.open = w.Key
	res, err := s.n.write(ctx, w)
	if s.err = err; err != nil {
		return
	}
	s.open = ""
	if w.Op == shard.OpDelete {
		delete(s.acked, w.Key)
	} else {
		s.acked[w.Key] = fmt.Sprintf("%s expires %d version %s", w.Value, w.Expiry, res.Version)
	}
}

func (s *story) put(ctx context.Context, key, value string) {
	s.do(ctx, shard.Write{Op: shard.OpPut, Key: key, Value: []byte(value)})
}

const far = 4_000_000_000_000

// fill writes 60 keys of every kind.
func (s *story) fill(ctx context.Context, round int) {
	for i := range 90 {
		key := fmt.Sprintf("key-%02d", i)
		switch i % 6 {
		case 0:
			s.put(ctx, key, fmt.Sprint("large ", round, strings.Repeat("x", 100)))
		case 1:
			s.do(ctx, shard.Write{Op: shard.OpPut, Key: key, Value: []byte("expires"), Expiry: far + int64(i)})
		case 2:
			s.put(ctx, key, "to be deleted")
			s.do(ctx, shard.Write{Op: shard.OpDelete, Key: key})
		default:
			s.put(ctx, key, fmt.Sprint("value ", round))
		}
	}
}

// prepare leaves mutations of two transactions undecided, on every kind of key.
func (s *story) prepare(ctx context.Context) {
	for i := range 12 {
		if s.err != nil {
			return
		}
		w := shard.Write{
			Op: shard.OpPrepare, Tx: record.ID{byte(1 + i%2)}, Key: fmt.Sprintf("prepared-%02d", i),
			Value: []byte(strings.Repeat("p", 10*i)), Expiry: far + int64(i),
		}
		if i%5 == 4 {
			w.Value, w.Expiry, w.Tombstone = nil, 0, true
		}
		_, s.err = s.n.write(ctx, w)
	}
}

// decided ends one of them.
func (s *story) decide(ctx context.Context) {
	m, err := s.n.Map(ctx)
	for _, id := range m.Shards() {
		if err == nil {
			_, err = s.n.Shard(id).Write(ctx, []shard.Write{{Op: shard.OpAbort, Tx: record.ID{2}}})
		}
	}
	if s.err == nil {
		s.err = err
	}
}

// undecided describes the mutations that the owners of their keys hold.
func undecided(t *testing.T, n *node) map[string]string {
	t.Helper()
	m, err := n.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, id := range m.Shards() {
		var slots keyspace.SlotSet
		for slot := range uint16(keyspace.Slots) {
			if m.Owner(slot) == id {
				slots.Add(slot)
			}
		}
		list, err := n.Shard(id).Prepared(t.Context(), &slots)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			got[p.Entry.Key] = fmt.Sprintf("%d %s %d %v %s", p.Tx[0], p.Entry.Version, p.Entry.Expiry, p.Entry.Tombstone, p.Entry.Value)
		}
	}
	return got
}

// drive carries the split on step by step, with writes in between.
func (s *story) drive(ctx context.Context) {
	if s.err != nil {
		return
	}
	_, err := s.n.c.Begin(ctx, s.n, 0, "test")
	if err != nil && !errors.Is(err, split.ErrBusy) {
		s.err = err
		return
	}
	for i := 0; s.err == nil; i++ {
		st, err := s.n.c.Advance(ctx, s.n, 0, 0)
		if s.err = err; err != nil || st.Phase == split.PhaseDone {
			return
		}
		key := fmt.Sprintf("key-%02d", i*7%90)
		if i%3 == 2 {
			s.do(ctx, shard.Write{Op: shard.OpDelete, Key: key})
		} else {
			s.put(ctx, key, fmt.Sprint("during ", i))
		}
	}
}

func (s *story) run(ctx context.Context) {
	s.fill(ctx, 1)
	if s.err == nil {
		_, s.err = s.n.Shard(0).Checkpoint(ctx, shard.CheckpointOptions{Force: true})
	}
	s.fill(ctx, 2)
	s.drive(ctx)
	for i := range 10 {
		s.put(ctx, fmt.Sprintf("key-%02d", i), "after")
	}
}

func newStory(n *node) *story { return &story{n: n, acked: map[string]string{}} }

func TestSplitMovesHalfAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n, _ := w.node(t, nil)
		if err := n.found(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s := newStory(n)
		s.run(t.Context())
		if s.err != nil {
			t.Fatal(s.err)
		}
		cold, _ := w.node(t, nil)
		same(t, "after the split", cold.contents(t), s.acked)
		m, err := cold.Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Version != 1 || len(m.Shards()) != 2 || m.Owner(2047) != 0 || m.Owner(2048) != 1 {
			t.Errorf("map version %d, shards %v", m.Version, m.Shards())
		}
		active, done, err := n.c.List(t.Context(), treeID)
		if err != nil || len(active) != 0 || len(done) != 1 || done[0].MapVersion != 1 || len(done[0].Durations()) != 5 {
			t.Errorf("%d active, %+v, %v", len(active), done, err)
		}
	})
}

// A coordinator is killed at every storage operation of a split, before and
// after effect, with writes in between; another instance recovers.
func TestCrashAtEveryOperationOfASplit(t *testing.T) {
	points := 0
	for n := uint64(1); ; n++ {
		reached := false
		for _, point := range faulty.Points {
			synctest.Test(t, func(t *testing.T) {
				if crash(t, n, point) {
					reached = true
					points++
				}
			})
			if t.Failed() {
				t.Fatalf("killed at operation %d, %v its effect", n, point)
			}
		}
		if !reached {
			break
		}
	}
	t.Logf("%d crash points", points)
	if points < 200 {
		t.Errorf("only %d crash points", points)
	}
}

func crash(t *testing.T, at uint64, point faulty.Point) bool {
	w := newWorld()
	first, _ := w.node(t, nil)
	if err := first.found(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	before := newStory(first)
	before.fill(t.Context(), 1)
	if _, err := first.Shard(0).Checkpoint(t.Context(), shard.CheckpointOptions{Force: true}); err != nil || before.err != nil {
		t.Fatal(err, before.err)
	}
	before.fill(t.Context(), 2)
	before.prepare(t.Context())
	if before.err != nil {
		t.Fatal(before.err)
	}
	pending := undecided(t, first)
	n, in := w.node(t, nil)
	in.KillAt(at, point)
	ctx, cancel := in.Context(t.Context())
	defer cancel()
	s := newStory(n)
	s.acked = before.acked
	s.drive(ctx)
	if !in.Killed() {
		if s.err != nil {
			t.Fatalf("nobody was killed: %v", s.err)
		}
		return false
	}
	heir, _ := w.node(t, nil)
	recoverSplit(t, heir)
	got, want := heir.contents(t), maps.Clone(s.acked)
	if s.open != "" && got[s.open] != want[s.open] {
		if !strings.Contains(got[s.open], "during") && got[s.open] != "" {
			t.Fatalf("key %s holds %q, neither the old nor the new value", s.open, got[s.open])
		}
		delete(want, s.open)
		if got[s.open] != "" {
			want[s.open] = got[s.open]
		}
	}
	same(t, "after recovery", got, want)
	same(t, "undecided after recovery", undecided(t, heir), pending)
	if after := newStory(heir); len(pending) == 12 {
		after.decide(t.Context())
		if left := undecided(t, heir); after.err != nil || len(left) != 6 {
			t.Fatalf("after an abort %d mutations are left, %v", len(left), after.err)
		}
	}
	after := newStory(heir)
	after.acked = want
	after.fill(t.Context(), 3)
	if after.err != nil {
		t.Fatal(after.err)
	}
	same(t, "life goes on", heir.contents(t), after.acked)
	return true
}

// recoverSplit ends whatever split of shard 0 is recorded.
func recoverSplit(t *testing.T, n *node) {
	t.Helper()
	for range 1000 {
		st, err := n.c.Advance(t.Context(), n, 0, time.Minute)
		if err == nil && st.Phase == split.PhaseDone {
			return
		}
		if err != nil && !errors.Is(err, split.ErrDriven) {
			t.Fatal(err)
		}
		_ = n.src.Sleep(t.Context(), 100*time.Millisecond)
	}
	t.Fatal("the split does not end")
}

// The coordinator dies between seal and swap and no timer runs: a request that
// meets the sealed slots drives the split on, within two seconds.
func TestRequestDrivesADeadSplitOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n, in := w.node(t, nil)
		if err := n.found(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s := newStory(n)
		s.fill(t.Context(), 1)
		in.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition(mapTable)), Skip: 1, Times: 1, Do: faulty.Crash(faulty.BeforeEffect)})
		s.drive(t.Context())
		if !in.Killed() {
			t.Fatal("the coordinator survived")
		}
		client, _ := w.node(t, nil)
		start := time.Now()
		for i := range 90 {
			if _, _, err := client.get(t.Context(), fmt.Sprintf("key-%02d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("clients waited %s", d)
		}
	})
}

// An instance that mirrors is frozen until long after the split has ended, the
// key was deleted on the target and its tombstone collected.
func TestLateMirrorIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n, in := w.node(t, func(c *shard.Config) { c.Tuning.TombstoneGracePeriod = time.Second })
		if err := n.found(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		key := movedKey(t, n)
		if _, err := n.c.Begin(t.Context(), n, 0, "test"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := n.c.Advance(t.Context(), n, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		mirror := in.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition(n.Partition(1))), Times: 1, Do: faulty.Hold(0)})
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := n.write(short, shard.Write{Op: shard.OpPut, Key: key, Value: []byte("old")}); err != nil {
			t.Fatal(err)
		}
		if mirror.Fired() != 1 {
			t.Fatal("nothing was mirrored")
		}
		other, _ := w.node(t, func(c *shard.Config) { c.Tuning.TombstoneGracePeriod = time.Second })
		_ = w.src.Sleep(t.Context(), 2*time.Second)
		recoverSplit(t, other)
		if _, err := other.write(t.Context(), shard.Write{Op: shard.OpDelete, Key: key}); err != nil {
			t.Fatal(err)
		}
		_ = w.src.Sleep(t.Context(), time.Minute)
		if _, err := other.Shard(1).Checkpoint(t.Context(), shard.CheckpointOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		in.Release()
		out := shard.Write{Op: shard.OpMerge, Key: key, Value: []byte("old"), Version: clock.Version{Time: 1}, Migration: splitID(t, n)}
		if res, err := other.Shard(1).Write(t.Context(), []shard.Write{out}); err != nil || res[0].Status != shard.StatusStale {
			t.Errorf("a late mirror is answered %+v, %v", res, err)
		}
		if e, ok, err := other.get(t.Context(), key); ok || err != nil {
			t.Errorf("the deleted key is back: %q, %v", e.Value, err)
		}
	})
}

func splitID(t *testing.T, n *node) string {
	t.Helper()
	_, done, err := n.c.List(t.Context(), treeID)
	if err != nil || len(done) == 0 {
		t.Fatal(len(done), err)
	}
	return done[0].ID
}

// movedKey returns a key that a split of a lone shard moves.
func movedKey(t *testing.T, n *node) string {
	t.Helper()
	for i := range 1000 {
		if key := fmt.Sprint("moved-", i); keyspace.Slot(key) >= keyspace.Slots/2 {
			return key
		}
	}
	t.Fatal("no such key")
	return ""
}

func TestSecondSplitOfASourceIsRefused(t *testing.T) {
	w := newWorld()
	n, _ := w.node(t, nil)
	if err := n.found(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	first, err := n.c.Begin(t.Context(), n, 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	if have, err := n.c.Begin(t.Context(), n, 0, "test"); !errors.Is(err, split.ErrBusy) || have.ID != first.ID {
		t.Errorf("a second split: %+v, %v", have, err)
	}
	for range 2 {
		if _, err := n.c.Advance(t.Context(), n, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	var slots keyspace.SlotSet
	slots.Add(1)
	err = n.Shard(0).BeginOutgoing(t.Context(), shard.Outgoing{ID: "other", Target: n.Partition(7), Slots: slots})
	if !errors.Is(err, shard.ErrMigrating) {
		t.Errorf("another migration of the source: %v", err)
	}
}

// Splits go on until every shard has one slot, and then stop.
func TestShardWithOneSlotIsNotDivided(t *testing.T) {
	w := newWorld()
	n, _ := w.node(t, nil)
	if err := n.found(t.Context(), keyspace.Slots); err == nil {
		if _, err := n.c.Begin(t.Context(), n, 0, "test"); !errors.Is(err, split.ErrTooSmall) {
			t.Errorf("got %v", err)
		}
	} else {
		t.Fatal(err)
	}
}

// A coordinator wakes up long after others have completed its split: at every
// phase it must not open, seal or move anything again.
func TestFrozenCoordinatorChangesNothing(t *testing.T) {
	for skip := range 12 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			n, in := w.node(t, nil)
			if err := n.found(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			s := newStory(n)
			s.fill(t.Context(), 1)
			if _, err := n.c.Begin(t.Context(), n, 0, "test"); err != nil || s.err != nil {
				t.Fatal(err, s.err)
			}
			other, _ := w.node(t, nil)
			var after map[string]string
			in.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Skip: skip, Times: 1, Do: faulty.Do(func(context.Context, *faulty.Call) error {
				_ = w.src.Sleep(context.Background(), 5*time.Second)
				recoverSplit(t, other)
				heir := newStory(other)
				heir.fill(context.Background(), 2)
				after = heir.acked
				return heir.err
			})})
			_, err := n.c.Advance(t.Context(), n, 0, time.Hour)
			if after == nil {
				return
			}
			if err == nil {
				t.Log("the frozen coordinator noticed nothing, and did no harm")
			}
			same(t, "afterwards", other.contents(t), after)
			_, done, err := other.c.List(t.Context(), treeID)
			if err != nil || len(done) != 1 {
				t.Fatal(len(done), err)
			}
			for _, id := range []keyspace.ShardID{0, done[0].Target} {
				out, incoming, err := other.Shard(id).Migrations(t.Context())
				if err != nil || out != nil || len(incoming) != 0 {
					t.Errorf("shard %d is left with %v, %v (%v)", id, out, incoming, err)
				}
			}
		})
	}
}
