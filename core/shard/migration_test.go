package shard_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/memory"
)

// migrating is a shard whose slots are all on the move to another.
func migrating(t *testing.T) (source, target *shard.Shard) {
	t.Helper()
	m := memory.New(memory.Options{})
	pool := instance(t, m.Table(), m.Blobs(), quick)
	source, target = pool.Shard("s-test-0"), pool.Shard("s-test-1")
	for _, s := range []*shard.Shard{source, target} {
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	put(t, source, "before", "v")
	if err := target.BeginIncoming(t.Context(), shard.Incoming{ID: "m", Source: "s-test-0", Slots: *all()}); err != nil {
		t.Fatal(err)
	}
	if err := source.BeginOutgoing(t.Context(), shard.Outgoing{ID: "m", Target: "s-test-1", Slots: *all()}); err != nil {
		t.Fatal(err)
	}
	return source, target
}

// What is appended from the window's opening on can be read from the log in
// portions, from there on, whatever is checkpointed and collected meanwhile.
func TestLogOfAMigrationIsReadInPortions(t *testing.T) {
	source, _ := migrating(t)
	out, _, err := source.Migrations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		put(t, source, fmt.Sprint("k", i), "v")
	}
	if _, err := source.Checkpoint(t.Context(), force()); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	last := out.Since
	for {
		p, err := source.LogSince(t.Context(), last, all(), 2)
		if err != nil || p.Last > last+2 {
			t.Fatalf("from row %d: to row %d, %v", last, p.Last, err)
		}
		for _, r := range p.Records {
			got = append(got, r.Entry.Key)
		}
		if last = p.Last; last == p.Head {
			break
		}
	}
	if fmt.Sprint(got) != "[k0 k1 k2 k3 k4 k5 k6 k7 k8]" {
		t.Errorf("the log holds %v", got)
	}
	if _, err := source.LogSince(t.Context(), 0, all(), 100); err != nil {
		t.Errorf("rows within their grace: %v", err)
	}
}

// Every append is mirrored before it is answered: the target has it already.
func TestAppendsAreMirroredBeforeTheyAreAnswered(t *testing.T) {
	source, target := migrating(t)
	r := put(t, source, "k", "v")
	large := put(t, source, "large", string(make([]byte, 1000)))
	write(t, source, shard.Write{Op: shard.OpDelete, Key: "before"})
	for key, want := range map[string]shard.WriteResult{"k": r, "large": large} {
		e, ok := get(t, target, key)
		if !ok || e.Version != want.Version {
			t.Errorf("the target has %s: %v, version %s", key, ok, e.Version)
		}
	}
	if _, ok := get(t, target, "before"); ok {
		t.Error("a deleted key is live on the target")
	}
}

func TestSealAndEndOfAMigration(t *testing.T) {
	source, target := migrating(t)
	for i := range 10 {
		put(t, source, fmt.Sprint("k", i), "v")
	}
	for range 2 { // everything may be repeated
		if err := source.Seal(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
	}
	if r := put(t, source, "k0", "w"); r.Status != shard.StatusStale {
		t.Errorf("a sealed slot takes a write: %+v", r)
	}
	if _, _, err := source.Get(t.Context(), "k0", shard.ReadOptions{}); !errors.Is(err, shard.ErrStaleRouting) {
		t.Errorf("a sealed slot is read: %v", err)
	}
	before, err := source.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(target.EndIncoming(t.Context(), "m"), source.EndOutgoing(t.Context(), "m")); err != nil {
			t.Fatal(err)
		}
	}
	after, err := source.Stats(t.Context())
	if err != nil || after.Live >= before.Live {
		t.Errorf("%d live entries before, %d after, %v", before.Live, after.Live, err)
	}
	if r := put(t, source, "k0", "w"); r.Status != shard.StatusStale {
		t.Errorf("a slot that moved away takes a write: %+v", r)
	}
	var one keyspace.SlotSet
	one.Add(1)
	begin := source.BeginOutgoing(t.Context(), shard.Outgoing{ID: "m", Target: "s-test-1", Slots: one})
	if open := target.BeginIncoming(t.Context(), shard.Incoming{ID: "m"}); !errors.Is(begin, shard.ErrEnded) || !errors.Is(open, shard.ErrEnded) {
		t.Errorf("a migration that is over begins again: %v, %v", begin, open)
	}
}

// Nobody holds the lease of a shard that takes part in a migration, and it is
// taken again afterwards.
func TestNoLeaseDuringAMigration(t *testing.T) {
	m := memory.New(memory.Options{})
	pool := instance(t, m.Table(), m.Blobs(), withLeases)
	source, target := pool.Shard("s-test-0"), pool.Shard("s-test-1")
	for _, s := range []*shard.Shard{source, target} {
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	put(t, source, "k", "v")
	if l := owner(t, source); l.Owner == 0 {
		t.Fatal("no lease to begin with")
	}
	in := shard.Incoming{ID: "m", Source: "s-test-0", Slots: *all()}
	out := shard.Outgoing{ID: "m", Target: "s-test-1", Slots: *all()}
	if err := errors.Join(target.BeginIncoming(t.Context(), in), source.BeginOutgoing(t.Context(), out)); err != nil {
		t.Fatal(err)
	}
	put(t, source, "k", "w")
	get(t, source, "k")
	for _, s := range []*shard.Shard{source, target} {
		if l := owner(t, s); l.Owner != 0 {
			t.Errorf("%s is leased during a migration: %+v", s.Partition(), l)
		}
	}
	if err := errors.Join(source.Seal(t.Context(), "m"), target.EndIncoming(t.Context(), "m"), source.EndOutgoing(t.Context(), "m")); err != nil {
		t.Fatal(err)
	}
	put(t, target, "k", "x")
	if l := owner(t, target); l.Owner == 0 {
		t.Error("no lease after the migration")
	}
}
