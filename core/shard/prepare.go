package shard

import (
	"context"
	"maps"
	"slices"

	"github.com/tidwall/btree"

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

// preparedSet is the undecided mutations of a shard. It is guarded by the
// shard's lock; snapshots of byKey are immutable. A checkpoint does not hold
// them: the append that moves the head's pointer logs them anew.
//
// A shard that owns a key has one undecided mutation of it at most. The target
// of a migration may have several, until it has been told how they ended.
type preparedSet struct {
	byKey btree.Map[string, []Prepared]
	byTx  map[record.ID]map[string]struct{}
	bytes int
}

// add records a mutation; again with the same key it takes the former's place.
func (p *preparedSet) add(tx record.ID, e *record.Entry) {
	p.remove(tx, e.Key)
	at, _ := p.byKey.Get(e.Key)
	p.byKey.Set(e.Key, append(slices.Clip(at), Prepared{Tx: tx, Entry: *e}))
	if p.byTx == nil {
		p.byTx = make(map[record.ID]map[string]struct{})
	}
	if p.byTx[tx] == nil {
		p.byTx[tx] = make(map[string]struct{})
	}
	p.byTx[tx][e.Key] = struct{}{}
	p.bytes += preparedSize(e)
}

// preparedSize is what a mutation takes in the log, roughly.
func preparedSize(e *record.Entry) int { return len(e.Key) + len(e.Value) + writeOverhead }

// remove forgets a mutation, if it is there.
func (p *preparedSet) remove(tx record.ID, key string) {
	at, _ := p.byKey.Get(key)
	i := slices.IndexFunc(at, func(m Prepared) bool { return m.Tx == tx })
	if i < 0 {
		return
	}
	p.bytes -= preparedSize(&at[i].Entry)
	if rest := slices.Delete(slices.Clone(at), i, i+1); len(rest) > 0 {
		p.byKey.Set(key, rest)
	} else {
		p.byKey.Delete(key)
	}
	if delete(p.byTx[tx], key); len(p.byTx[tx]) == 0 {
		delete(p.byTx, tx)
	}
}

// end forgets what a transaction prepared.
func (p *preparedSet) end(tx record.ID) {
	for key := range p.byTx[tx] {
		p.remove(tx, key)
	}
}

// of returns what a transaction prepared, by key.
func (p *preparedSet) of(tx record.ID) map[string]record.Entry {
	out := make(map[string]record.Entry, len(p.byTx[tx]))
	for key := range p.byTx[tx] {
		at, _ := p.byKey.Get(key)
		for i := range at {
			if at[i].Tx == tx {
				out[key] = at[i].Entry
			}
		}
	}
	return out
}

// list returns all mutations, in order of keys.
func (p *preparedSet) list() []Prepared {
	var out []Prepared
	p.byKey.Scan(func(_ string, at []Prepared) bool {
		out = append(out, at...)
		return true
	})
	return out
}

// maxRelog bounds the undecided mutations that a checkpoint carries over, in
// bytes.
const maxRelog = 1 << 20

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
	return j.s.st.prepared.of(tx)
}

// locked returns another transaction that has an undecided mutation of the key,
// and whether there is one.
func (j *judge) locked(key string, own record.ID) (record.ID, bool) {
	for tx, of := range j.staged {
		if _, ok := of[key]; ok && tx != own {
			return tx, true
		}
	}
	j.s.mu.RLock()
	at, _ := j.s.st.prepared.byKey.Get(key)
	j.s.mu.RUnlock()
	for i := range at {
		if _, staged := j.staged[at[i].Tx]; at[i].Tx != own && !staged {
			return at[i].Tx, true
		}
	}
	return record.ID{}, false
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
	if old != nil && !old.Live(j.milli) {
		old = nil
	}
	res.Existed = old != nil
	of := j.undecided(w.Tx)
	if have, again := of[w.Key]; again {
		res.Status, res.Version = StatusApplied, have.Version
		return
	}
	if w.Migration == "" && !w.holds(old) {
		res.mismatch(old)
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
	if refused := j.head.meta.refused; w.Slots != nil && refused != nil && refused.Intersects(w.Slots) {
		res.Status = StatusStale
	}
	if len(of) == 0 {
		return nil
	}
	kind := record.KindAbort
	if w.Op == OpCommit {
		kind = record.KindCommit
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if j.head.meta.refuses(key) {
				continue // the new owner has it, and decides on it
			}
			if err := j.install(ctx, of[key], w.Version); err != nil {
				return err
			}
		}
		j.head.joins(w.Version)
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
		if moved := &s.st.head.Meta().Moved; moved.Has(keyspace.Slot(p.Entry.Key)) {
			continue // the new owner has it
		}
		out = append(out, record.Record{Kind: record.KindPrepare, Tx: p.Tx, Entry: p.Entry})
	}
	return out
}
