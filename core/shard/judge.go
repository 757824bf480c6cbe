package shard

import (
	"context"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// control is a change of the head that is not an entry.
type control struct {
	// note names it in the log.
	note string
	// apply changes the head, or refuses with an error; it may be called again
	// on a newer head after a lost race.
	apply func(h *Head, now clock.Instant) error
	// records, unless nil, are logged with it.
	records func() []record.Record
	// base, unless nil, is the checkpoint to which the change moves the head.
	base *run.Set
	// grafts says that the checkpoint holds entries that no record tells of, and
	// clock is a time that the shard's clock is past afterwards.
	grafts bool
	clock  clock.HLC
	// hasty gives up at once where a lease of another instance bars the way.
	hasty bool
}

// plan is one append, made from a group and a head.
type plan struct {
	id      record.ID
	from    store.ETag
	fromSeq uint64
	now     clock.Instant
	head    Head
	rows    []record.Row
	sizes   []int
	ops     []store.Op
	records []record.Record
	base    *run.Set            // the checkpoint that the head is moved to, nil if it is not
	grafts  bool                // it may change any key
	reads   int64               // operations that the head takes along
	keys    map[string]struct{} // of a long append, for readers under a lease
	serves  []*pending          // the group, for those who follow appends
}

// empty reports whether there is nothing to append.
func (p *plan) empty() bool { return len(p.records) == 0 }

// changes reports whether the append changes the key.
func (p *plan) changes(key string) bool {
	if p.grafts {
		return true
	}
	if p.keys != nil {
		_, ok := p.keys[key]
		return ok
	}
	for i := range p.records {
		if p.records[i].Entry.Key == key {
			return true
		}
	}
	return false
}

// index prepares changes for a long append, before readers can see it.
func (p *plan) index() {
	if len(p.records) < 16 {
		return
	}
	p.keys = make(map[string]struct{}, len(p.records))
	for i := range p.records {
		p.keys[p.records[i].Entry.Key] = struct{}{}
	}
}

// judge evaluates a group on top of the present state: conditions, versions,
// estimates. It fills in the results, which hold only if the plan lands or, for
// an empty plan, if the state is shown to be current.
type judge struct {
	s    *Shard
	base *run.Set
	head Head
	plan *plan
	// milli is the time for expiry.
	milli int64
	first clock.HLC
	// overlay holds what earlier writes of the group left behind.
	overlay map[string]*record.Entry
	// staged are the undecided mutations of transactions that the group touched.
	staged map[record.ID]map[string]record.Entry
}

// judge makes a plan of a group.
func (s *Shard) judge(ctx context.Context, group []*pending) (*plan, error) {
	s.mu.RLock()
	st := s.st
	j := judge{s: s, base: st.base, head: st.head}
	p := &plan{from: st.etag, fromSeq: st.head.Seq, now: s.cfg.Clock.Now()}
	s.mu.RUnlock()
	j.plan, j.milli = p, max(p.now.Milli(), j.head.Clock.Milli())
	j.first = clock.Next(max(j.head.Clock, mergedClock(group)), p.now)
	if n := countRecords(group); n > 0 {
		p.records = make([]record.Record, 0, n)
		if n > 1 {
			j.overlay = make(map[string]*record.Entry, n)
		}
	}
	if err := s.checkLease(&j.head, p.now); err != nil {
		return p, err
	}
	for _, m := range group {
		if err := j.member(ctx, m); err != nil {
			return p, err
		}
	}
	if !p.empty() {
		s.stampLease(&j.head, p.now)
		j.finish()
	}
	return p, nil
}

// mergedClock returns the highest time among the versions that a group brings.
func mergedClock(group []*pending) clock.HLC {
	var last clock.HLC
	for _, m := range group {
		if m.control != nil {
			last = max(last, m.control.clock)
		}
		for i := range m.writes {
			last = max(last, m.writes[i].Version.Time)
		}
	}
	return last
}

func countRecords(group []*pending) int {
	n := 0
	for _, m := range group {
		n += max(len(m.writes), 1)
	}
	return n
}

// member evaluates one request. Its own faults go into it; an error is one of
// the storage.
func (j *judge) member(ctx context.Context, m *pending) error {
	m.err = nil
	if m.control != nil {
		m.err = j.control(m.control)
		return nil
	}
	if j.head.Meta().Closed {
		m.err = ErrClosed
		return nil
	}
	if m.err = j.freshValues(m); m.err != nil {
		return nil
	}
	if m.atomic {
		if ok, err := j.admits(ctx, m); !ok || err != nil {
			return err
		}
	}
	for i := range m.writes {
		if err := j.write(ctx, m, i); err != nil {
			return err
		}
	}
	return nil
}

// admits reports whether every write of an atomic request can be done, and files
// the results of those that cannot. The keys differ, so none depends on another.
func (j *judge) admits(ctx context.Context, m *pending) (bool, error) {
	ok := true
	for i := range m.writes {
		w, res := &m.writes[i], &m.results[i]
		*res = WriteResult{}
		if j.turnsAway(w) {
			res.Status = StatusStale
		} else if tx, locked := j.obstructed(w); locked {
			res.Status, res.Tx = StatusPending, tx
		} else if w.conditional() {
			old, err := j.find(ctx, m, i)
			if err != nil {
				return false, err
			}
			if old != nil && !old.Live(j.milli) {
				old = nil
			}
			if !w.holds(old) {
				res.mismatch(old)
			}
		}
		ok = ok && res.Status == 0
	}
	return ok, nil
}

// mismatch says that a condition does not hold on the live entry, nil if there is
// none.
func (r *WriteResult) mismatch(old *record.Entry) {
	r.Status, r.Existed = StatusMismatch, old != nil
	if old != nil {
		r.Version = old.Version
	}
}

// freshValues refuses to refer to a large value that was stored so long ago
// that a collector may have taken it for an orphan: the process was frozen.
func (j *judge) freshValues(m *pending) error {
	for i := range m.writes {
		w := &m.writes[i]
		if w.ref != nil && j.s.stale(w.stored, j.plan.now) {
			return fmt.Errorf("value of key stored too long ago to be logged: %w", store.ErrUnavailable)
		}
	}
	return nil
}

func (j *judge) control(c *control) error {
	before := j.head
	if err := c.apply(&j.head, j.plan.now); err != nil {
		j.head = before
		return err
	}
	j.plan.base, j.plan.grafts = c.base, c.grafts
	j.plan.records = append(j.plan.records, record.Record{Kind: record.KindControl, Note: []byte(c.note)})
	if c.records != nil {
		j.plan.records = append(j.plan.records, c.records()...)
	}
	return nil
}

// write evaluates one write.
func (j *judge) write(ctx context.Context, m *pending, i int) error {
	w, res := &m.writes[i], &m.results[i]
	*res = WriteResult{}
	if j.turnsAway(w) {
		res.Status = StatusStale
		return nil
	}
	if tx, ok := j.obstructed(w); ok {
		res.Status, res.Tx = StatusPending, tx
		return nil
	}
	if w.Op == OpPut && w.Blind && !w.conditional() {
		j.put(w, res, nil)
		return nil
	}
	if w.Op == OpCommit || w.Op == OpAbort {
		return j.decide(ctx, w, res)
	}
	old, err := j.find(ctx, m, i)
	if err != nil {
		return err
	}
	switch w.Op {
	case OpMerge:
		j.merge(w, res, old)
		return nil
	case OpPrepare:
		j.prepare(w, res, old)
		return nil
	}
	if old != nil && !old.Live(j.milli) {
		old = nil
	}
	res.Existed = old != nil
	switch {
	case !w.holds(old):
		res.mismatch(old)
	case w.Op == OpGetOrSet && old != nil:
		res.Status, res.Version, res.Entry = StatusExisting, old.Version, *old
	case w.Op == OpDelete:
		j.remove(w, res, old)
	default:
		j.put(w, res, old)
	}
	return nil
}

// obstructed returns the undecided transaction that a write has to wait for. What
// comes from a migration, or from a bulk load, has its version already.
func (j *judge) obstructed(w *Write) (record.ID, bool) {
	switch w.Op {
	case OpMerge, OpCommit, OpAbort:
		return record.ID{}, false
	case OpPrepare:
		if w.Migration != "" {
			return record.ID{}, false
		}
	}
	return j.locked(w.Key, w.Tx)
}

// conditional reports whether the write depends on the state.
func (w *Write) conditional() bool { return w.IfAbsent || !w.IfVersion.IsZero() }

// holds evaluates the condition on the live entry, nil if there is none.
func (w *Write) holds(old *record.Entry) bool {
	if w.IfAbsent && old != nil {
		return false
	}
	return w.IfVersion.IsZero() || old != nil && old.Version == w.IfVersion
}

// turnsAway reports whether the shard has no say in a write: a key that it
// does not own, or a merge of a migration that its head does not know.
func (j *judge) turnsAway(w *Write) bool {
	decides := w.Op == OpCommit || w.Op == OpAbort // of any key
	if w.Migration == "" {
		return !decides && j.head.meta.refuses(w.Key)
	}
	incoming := j.head.Meta().Incoming
	for i := range incoming {
		if in := &incoming[i]; in.ID == w.Migration {
			return !decides && !in.Slots.Has(keyspace.Slot(w.Key))
		}
	}
	return true
}

// find looks up the key of a write, with what was read before it queued.
func (j *judge) find(ctx context.Context, m *pending, i int) (*record.Entry, error) {
	key := m.writes[i].Key
	if m.prior != nil && m.prior[i].base == j.base {
		if e, ok := j.recent(key); ok {
			return e, nil
		}
		return m.prior[i].entry, nil
	}
	return j.lookup(ctx, key)
}

// recent looks a key up in the group and in the log's tail.
func (j *judge) recent(key string) (*record.Entry, bool) {
	if e, ok := j.overlay[key]; ok {
		return e, true
	}
	if it, ok := j.s.peek(key); ok {
		return &it.Entry, true
	}
	return nil, false
}

// lookup looks a key up: in the group, in the log's tail, in the checkpoint.
func (j *judge) lookup(ctx context.Context, key string) (*record.Entry, error) {
	if e, ok := j.recent(key); ok {
		return e, nil
	}
	e, ok, err := j.base.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	return &e, nil
}

// nextVersion is the version of the next record.
func (j *judge) nextVersion() clock.Version {
	return clock.Version{Time: j.first + clock.HLC(len(j.plan.records)), Writer: j.s.writer}
}

func (j *judge) put(w *Write, res *WriteResult, old *record.Entry) {
	e := record.Entry{
		Key: w.Key, Value: w.Value, Ref: w.ref, Type: w.Type, Expiry: w.Expiry,
		Version: j.nextVersion(),
	}
	res.Status, res.Version = StatusApplied, e.Version
	j.add(record.KindPut, e)
	j.head.Live++
	j.head.Bytes += e.Size()
	j.forget(old)
}

// remove writes a tombstone, unless there is nothing to delete.
func (j *judge) remove(w *Write, res *WriteResult, old *record.Entry) {
	res.Status = StatusApplied
	if old == nil {
		return
	}
	res.Version = j.nextVersion()
	j.add(record.KindTombstone, record.Entry{Key: w.Key, Version: res.Version, Tombstone: true})
	j.forget(old)
}

// merge takes an entry over unless a newer one is there: the log holds the
// versions of a key in their order, and so its last entry is the newest.
func (j *judge) merge(w *Write, res *WriteResult, old *record.Entry) {
	res.Status, res.Version = StatusApplied, w.Version
	res.Existed = old != nil && old.Live(j.milli)
	if old != nil && old.Version.Compare(w.Version) >= 0 {
		return
	}
	e := record.Entry{
		Key: w.Key, Value: w.Value, Ref: w.ref, Type: w.Type, Expiry: w.Expiry,
		Version: w.Version, Tombstone: w.Tombstone,
	}
	j.add(record.KindMerge, e)
	if w.Migration != "" {
		// It may be part of a batch; which, nobody here knows.
		j.head.joins(w.Version)
	}
	if e.Live(j.milli) {
		j.head.Live++
		j.head.Bytes += e.Size()
	}
	if res.Existed {
		j.forget(old)
	}
}

// forget takes a replaced entry out of the estimates.
func (j *judge) forget(old *record.Entry) {
	if old != nil {
		j.head.Live--
		j.head.Bytes -= old.Size()
	}
}

func (j *judge) add(kind record.Kind, e record.Entry) {
	j.plan.records = append(j.plan.records, record.Record{Kind: kind, Entry: e})
	if j.overlay != nil {
		j.overlay[e.Key] = &j.plan.records[len(j.plan.records)-1].Entry
	}
}

// finish cuts the records into rows and encodes the append.
func (j *judge) finish() {
	p, h := j.plan, &j.head
	p.id = j.s.pool.names.id()
	h.Append = p.id
	h.Clock = j.first + clock.HLC(len(p.records)) - 1
	h.Writes += uint64(len(p.records))
	p.reads = j.s.reads.Load()
	h.Reads += uint64(p.reads)
	p.cutRows(j.first, j.s.writer)
	h.Seq = p.fromSeq + uint64(len(p.rows))
	p.ops = make([]store.Op, 0, len(p.rows)+1)
	for i := range p.rows {
		data := record.EncodeRow(&p.rows[i])
		p.sizes = append(p.sizes, len(data))
		p.ops = append(p.ops, store.Insert(logKey(p.rows[i].Seq), data))
	}
	p.head = *h
	p.ops = append(p.ops, store.Replace(headKey, h.encode(make([]byte, 0, headFixedSize+len(h.meta.raw))), p.from))
}

// cutRows distributes the records over as few rows as hold them.
func (p *plan) cutRows(first clock.HLC, writer uint32) {
	start, size := 0, 0
	cut := func(end int) {
		p.rows = append(p.rows, record.Row{
			Seq: p.fromSeq + uint64(len(p.rows)) + 1, Append: p.id,
			Base: first + clock.HLC(start), Writer: writer, Records: p.records[start:end:end],
		})
		start, size = end, 0
	}
	for i := range p.records {
		n := record.RecordSize(&p.records[i])
		if i > start && size+n > store.MaxRowBytes-record.RowOverhead {
			cut(i)
		}
		size += n
	}
	cut(len(p.records))
}
