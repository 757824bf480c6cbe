package shard

import (
	"context"
	"maps"
	"slices"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
)

// Prepared is a mutation of a transaction that is not decided yet: it is in the
// log and no reader sees it.
type Prepared struct {
	Tx    record.ID
	Entry record.Entry
}

// preparedSet is the undecided mutations of a shard, by transaction and key. It
// is guarded by the shard's lock. A checkpoint does not hold them: the append
// that moves the head's pointer logs them anew.
type preparedSet map[record.ID]map[string]record.Entry

// add records a mutation; again with the same key changes nothing of the
// others.
func (p preparedSet) add(tx record.ID, e *record.Entry) {
	of := p[tx]
	if of == nil {
		of = make(map[string]record.Entry)
		p[tx] = of
	}
	of[e.Key] = *e
}

// list returns all mutations, in order of transaction and key.
func (p preparedSet) list() []Prepared {
	var out []Prepared
	for tx, of := range p {
		for _, e := range of {
			out = append(out, Prepared{Tx: tx, Entry: e})
		}
	}
	slices.SortFunc(out, func(a, b Prepared) int {
		if c := slices.Compare(a.Tx[:], b.Tx[:]); c != 0 {
			return c
		}
		if a.Entry.Key < b.Entry.Key {
			return -1
		}
		return 1
	})
	return out
}

// maxRelog bounds the undecided mutations that a checkpoint carries over.
const maxRelog = 1 << 20

// size is that of the mutations in the log, roughly.
func (p preparedSet) size() int {
	n := 0
	for _, of := range p {
		for key, e := range of {
			n += len(key) + len(e.Value) + writeOverhead
		}
	}
	return n
}

// Prepared returns the undecided mutations of keys in the given slots, as the
// log has them now.
func (s *Shard) Prepared(ctx context.Context, slots *keyspace.SlotSet) ([]Prepared, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.DeleteFunc(s.st.prepared.list(), func(p Prepared) bool {
		return !slots.Has(keyspace.Slot(p.Entry.Key))
	}), nil
}

// undecided returns the mutations that a transaction has here, those of the
// group at hand included.
func (j *judge) undecided(tx record.ID) map[string]record.Entry {
	of, staged := j.staged[tx]
	if staged {
		return of
	}
	j.s.mu.RLock()
	defer j.s.mu.RUnlock()
	return maps.Clone(j.s.st.prepared[tx])
}

// stage notes what the group leaves of a transaction's mutations.
func (j *judge) stage(tx record.ID, of map[string]record.Entry) {
	if j.staged == nil {
		j.staged = make(map[record.ID]map[string]record.Entry)
	}
	j.staged[tx] = of
}

// prepare logs a mutation that takes effect when its transaction commits. One
// that is there already stays as it is.
func (j *judge) prepare(w *Write, res *WriteResult, old *record.Entry) {
	of := j.undecided(w.Tx)
	if have, again := of[w.Key]; again {
		res.Status, res.Version = StatusApplied, have.Version
		return
	}
	if old != nil && !old.Live(j.milli) {
		old = nil
	}
	res.Existed = old != nil
	if w.Migration == "" && !w.holds(old) {
		res.Status = StatusMismatch
		if old != nil {
			res.Version = old.Version
		}
		return
	}
	e := record.Entry{
		Key: w.Key, Value: w.Value, Ref: w.ref, Type: w.Type, Expiry: w.Expiry,
		Version: w.Version, Tombstone: w.Tombstone,
	}
	if w.Migration == "" {
		e.Version = j.nextVersion()
	}
	if of == nil {
		of = make(map[string]record.Entry)
	}
	of[w.Key] = e
	j.stage(w.Tx, of)
	res.Status, res.Version = StatusApplied, e.Version
	j.plan.records = append(j.plan.records, record.Record{Kind: record.KindPrepare, Tx: w.Tx, Entry: e})
}

// decide ends a transaction here. A commit makes its mutations entries of the
// commit's version, each unless a newer one stands; an abort only forgets.
func (j *judge) decide(ctx context.Context, w *Write, res *WriteResult) error {
	of := j.undecided(w.Tx)
	res.Status = StatusApplied
	if len(of) == 0 {
		return nil
	}
	kind := record.KindAbort
	if w.Op == OpCommit {
		kind = record.KindCommit
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if err := j.install(ctx, of[key], w.Version); err != nil {
				return err
			}
		}
	}
	j.stage(w.Tx, nil)
	j.plan.records = append(j.plan.records, record.Record{Kind: kind, Tx: w.Tx})
	return nil
}

// install merges a committed mutation.
func (j *judge) install(ctx context.Context, e record.Entry, version clock.Version) error {
	old, err := j.lookup(ctx, e.Key)
	if err != nil {
		return err
	}
	m := Write{
		Op: OpMerge, Key: e.Key, Value: e.Value, Type: e.Type, Expiry: e.Expiry,
		Version: version, Tombstone: e.Tombstone, ref: e.Ref,
	}
	var res WriteResult
	j.merge(&m, &res, old)
	return nil
}

// relog returns records that carry the undecided mutations over a checkpoint.
func (s *Shard) relog() []record.Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []record.Record
	for _, p := range s.st.prepared.list() {
		out = append(out, record.Record{Kind: record.KindPrepare, Tx: p.Tx, Entry: p.Entry})
	}
	return out
}
