package shard_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/memory"
)

var (
	txA = record.ID{1}
	txB = record.ID{2}
)

func prepareOf(tx record.ID, key, value string) shard.Write {
	return shard.Write{Op: shard.OpPrepare, Tx: tx, Key: key, Value: []byte(value), Tombstone: value == ""}
}

func all() *keyspace.SlotSet {
	var s keyspace.SlotSet
	for slot := range uint16(keyspace.Slots) {
		s.Add(slot)
	}
	return &s
}

// prepared describes the undecided mutations.
func prepared(t *testing.T, s *shard.Shard) string {
	t.Helper()
	list, err := s.Prepared(t.Context(), all())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%d %s=%s(%v) ", p.Tx[0], p.Entry.Key, p.Entry.Value, p.Entry.Tombstone)
	}
	return b.String()
}

func TestPreparedMutationsAreInvisibleUntilTheirEnd(t *testing.T) {
	s := fresh(t, nil)
	put(t, s, "a", "old")
	put(t, s, "b", "old")
	write(t, s, prepareOf(txA, "a", "new"))
	write(t, s, prepareOf(txA, "b", ""))
	write(t, s, prepareOf(txB, "c", "never"))
	if got := contentsOf(t, s); got["a"] != "old" || got["b"] != "old" || len(got) != 2 {
		t.Fatalf("an undecided mutation is visible: %v", got)
	}
	commit := clock.Version{Time: clock.At(time.Now().Add(time.Second).UnixMilli()), Writer: 5}
	for range 2 { // a second commit changes nothing
		write(t, s, shard.Write{Op: shard.OpCommit, Tx: txA, Version: commit})
	}
	if e, _ := get(t, s, "a"); string(e.Value) != "new" || e.Version != commit {
		t.Errorf("committed: %q, version %s", e.Value, e.Version)
	}
	if _, ok := get(t, s, "b"); ok {
		t.Error("a committed deletion has not happened")
	}
	write(t, s, shard.Write{Op: shard.OpAbort, Tx: txB})
	if _, ok := get(t, s, "c"); ok {
		t.Error("an aborted mutation is there")
	}
	if got := prepared(t, s); got != "" {
		t.Errorf("left undecided: %s", got)
	}
	if r := put(t, s, "a", "later"); r.Version.Compare(commit) <= 0 {
		t.Error("a later write has a lower version than the commit")
	}
}

// A write that came after the commit's version stands; a late terminal does not
// undo it.
func TestCommitDoesNotOverwriteWhatIsNewer(t *testing.T) {
	s := fresh(t, nil)
	write(t, s, prepareOf(txA, "a", "prepared"))
	newer := clock.Version{Time: clock.At(time.Now().Add(time.Second).UnixMilli()), Writer: 5}
	write(t, s, shard.Write{Op: shard.OpMerge, Key: "a", Value: []byte("newer"), Version: newer})
	commit := clock.Version{Time: newer.Time - 1, Writer: newer.Writer}
	write(t, s, shard.Write{Op: shard.OpCommit, Tx: txA, Version: commit})
	if e, _ := get(t, s, "a"); string(e.Value) != "newer" {
		t.Errorf("the newer write lost: %q", e.Value)
	}
}

func TestPrepareJudgesItsCondition(t *testing.T) {
	s := fresh(t, nil)
	first := put(t, s, "a", "1")
	w := prepareOf(txA, "a", "2")
	w.IfAbsent = true
	if r := write(t, s, w); r.Status != shard.StatusMismatch || r.Version != first.Version {
		t.Errorf("if absent on a present key: %+v", r)
	}
	w.IfAbsent, w.IfVersion = false, first.Version
	r := write(t, s, w)
	if r.Status != shard.StatusApplied || !r.Existed {
		t.Errorf("matching version: %+v", r)
	}
	if again := write(t, s, prepareOf(txA, "a", "3")); again.Version != r.Version {
		t.Errorf("prepared twice under two versions: %+v, %+v", r, again)
	}
	res, err := s.Write(t.Context(), []shard.Write{
		prepareOf(txB, "x", "1"), prepareOf(txB, "y", "2"), {Op: shard.OpAbort, Tx: txB}, prepareOf(txB, "z", "3"),
	})
	if err != nil || len(res) != 4 || prepared(t, s) != "1 a=2(false) 2 z=3(false) " {
		t.Errorf("in one append: %v, undecided %q", err, prepared(t, s))
	}
}

// Checkpoints, truncation and cold starts keep undecided mutations, their large
// values included.
func TestPreparedMutationsSurviveCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("large ", 50)
		w := prepareOf(txA, "a", large)
		w.Expiry = far
		write(t, s, w)
		write(t, s, prepareOf(txA, "b", ""))
		for i := range 5 {
			put(t, s, fmt.Sprint("k", i), "v")
			maintain(t, s, src)
			cold := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
			list, err := cold.Prepared(t.Context(), all())
			if err != nil || len(list) != 2 || list[0].Entry.Expiry != far || !list[1].Entry.Tombstone {
				t.Fatalf("round %d: %+v, %v", i, list, err)
			}
		}
		heir := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		commit := clock.Version{Time: clock.At(time.Now().UnixMilli()), Writer: 1}
		write(t, heir, shard.Write{Op: shard.OpCommit, Tx: txA, Version: commit})
		maintain(t, heir, src)
		cold := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if e, ok := get(t, cold, "a"); !ok || !bytes.Equal(e.Value, []byte(large)) || e.Expiry != far {
			t.Errorf("committed after checkpoints: %v, %d bytes, expiry %d", ok, len(e.Value), e.Expiry)
		}
	})
}

// far is a Unix millisecond that no test reaches.
const far = 4_000_000_000_000
