package shard

import (
	"github.com/tidwall/btree"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// state is what an instance knows of a shard: the head it saw last and the
// entries that the log had made by then. Everything in it is durable. It is
// guarded by the shard's lock.
type state struct {
	head Head
	etag store.ETag
	// base is the newest checkpoint that was loaded, tail the log above it.
	base *run.Set
	tail *tail
	// prepared are the mutations of transactions that are not decided.
	prepared preparedSet
	// snap is the present snapshot of the tail, nil if it changed since.
	snap *tailSnapshot
	// locks is the present snapshot of prepared, nil if that changed since or is
	// empty.
	locks *btree.Map[string, []Prepared]

	// proven is a moment at which the state was current for certain.
	proven clock.Instant
	// lease is this object's own hold on the shard, if any.
	lease localLease
	// inflight is the append under way, whose outcome leased reads of its keys
	// must await; idle, if somebody waits, is closed when it ends.
	inflight *plan
	idle     chan struct{}
	// awaited is its id, echoed the last awaited id met in the log.
	awaited, echoed record.ID
	// suspect is the head on which an append of unknown outcome was sent: as
	// long as the head is still that one, the append may yet land, and memory
	// proves nothing.
	suspect store.ETag
}

// absorb applies a log row, of so many stored bytes, to the tail.
func (st *state) absorb(row *record.Row, size int) {
	for i := range row.Records {
		r := &row.Records[i]
		switch {
		case writesEntry(r.Kind):
			st.tail.set(row.Seq, &r.Entry)
		case r.Kind == record.KindPrepare:
			st.prepared.add(r.Tx, &r.Entry)
			st.locks = nil
		case r.Kind == record.KindCommit, r.Kind == record.KindAbort:
			st.prepared.end(r.Tx)
			st.locks = nil
		}
	}
	st.tail.mark(row.Seq, size)
	st.snap = nil
}

// advance moves to a newer head, all rows of which were absorbed.
func (st *state) advance(h Head, etag store.ETag) {
	st.head, st.etag = h, etag
	st.suspect = ""
}

// behind reports whether the head names another checkpoint than the one that was
// loaded. It never does: whoever takes a head takes its checkpoint along. It is
// asked all the same, since a checkpoint may hold a graft that no row tells of.
func (st *state) behind() bool { return st.head.Meta().Checkpoint.Manifest != st.base.Name() }

// prove records that the state was current at the given moment or later.
func (st *state) prove(at clock.Instant) {
	if at.Mono > st.proven.Mono {
		st.proven = at
	}
}

// adopt switches to a newer checkpoint.
func (st *state) adopt(base *run.Set) {
	st.base = base
	st.tail = st.tail.above(base.Seq())
	st.snap = nil
}

// milli is the time for expiry: never behind the shard's own clock, so that
// what one instance saw expire stays expired for all.
func (st *state) milli(now clock.Instant) int64 {
	return max(now.Milli(), st.head.Clock.Milli())
}
