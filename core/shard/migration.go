package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// ErrMigrating: another migration stands in the shard's head. One of a source
// at a time; a second with other slots must wait.
var ErrMigrating = errors.New("another migration is under way")

// ErrEnded: the migration is over, and cannot be opened again.
var ErrEnded = errors.New("the migration is over")

// Outgoing is the migration of which a shard is the source, as its head has it.
type Outgoing struct {
	// ID is that of the migration.
	ID string `json:"id"`
	// Target is the partition that receives the slots.
	Target string `json:"target"`
	// Slots are the slots that move.
	Slots keyspace.SlotSet `json:"slots"`
	// Since is the log row before which mirroring had not begun: rows after it
	// are kept until the migration ends, for those that no mirror carried over.
	Since uint64 `json:"since"`
	// Sealed says that the shard refuses the slots.
	Sealed bool `json:"sealed,omitempty"`
	// SealedAt is the log row of that.
	SealedAt uint64 `json:"sealedAt,omitempty"`
}

// Incoming is a migration of which a shard is the target. It takes entries of
// no other: what a frozen instance mirrors after the end is refused, and cannot
// bring back what was deleted and collected since.
type Incoming struct {
	ID     string           `json:"id"`
	Source string           `json:"source"`
	Slots  keyspace.SlotSet `json:"slots"`
}

// migrating reports whether the shard takes part in a migration.
func (m *Meta) migrating() bool { return m.Outgoing != nil || len(m.Incoming) > 0 }

// Migrations returns what the head says, after one check: the outgoing
// migration, nil if there is none, and the incoming ones.
func (s *Shard) Migrations(ctx context.Context) (*Outgoing, []Incoming, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := s.st.head.Meta()
	return m.Outgoing, m.Incoming, nil
}

// BeginIncoming opens a migration on its target. It changes nothing if that is
// open already, and is ErrEnded if it is over. From then on the shard takes
// merges that name the migration, and drops no tombstones.
func (s *Shard) BeginIncoming(ctx context.Context, in Incoming) error {
	return s.changeMigration(ctx, "begin incoming "+in.ID, func(_ *Head, m *Meta) error {
		switch {
		case m.find(in.ID) >= 0:
			return errAsIs
		case slices.Contains(m.Ended, in.ID):
			return fmt.Errorf("%w: %s", ErrEnded, in.ID)
		}
		m.Incoming = append(slices.Clip(m.Incoming), in)
		return nil
	})
}

// EndIncoming closes a migration on its target, also if it was closed before.
func (s *Shard) EndIncoming(ctx context.Context, id string) error {
	return s.changeMigration(ctx, "end incoming "+id, func(_ *Head, m *Meta) error {
		i := m.find(id)
		if i < 0 {
			return errAsIs
		}
		m.Incoming = slices.Delete(slices.Clone(m.Incoming), i, i+1)
		m.end(id)
		return nil
	})
}

// find returns the place of an incoming migration, -1 if it is not open.
func (m *Meta) find(id string) int {
	return slices.IndexFunc(m.Incoming, func(in Incoming) bool { return in.ID == id })
}

// keptEnded bounds the ended migrations that a head remembers.
const keptEnded = 32

// end remembers that a migration is over.
func (m *Meta) end(id string) {
	ended := append(slices.Clone(m.Ended), id)
	m.Ended = ended[max(0, len(ended)-keptEnded):]
}

// BeginOutgoing opens the shadow-write window on the source: every append that
// touches the slots from here on is mirrored to the target before it is
// answered. It changes nothing if that very migration is open, is ErrMigrating
// if another is, and ErrEnded if it is over.
func (s *Shard) BeginOutgoing(ctx context.Context, out Outgoing) error {
	return s.changeMigration(ctx, "begin shadow "+out.ID, func(h *Head, m *Meta) error {
		switch {
		case slices.Contains(m.Ended, out.ID):
			return fmt.Errorf("%w: %s", ErrEnded, out.ID)
		case m.Outgoing == nil:
			out.Since = h.Seq + 1 // the row of this very change
			m.Outgoing = &out
			return nil
		case m.Outgoing.ID == out.ID && m.Outgoing.Slots == out.Slots:
			return errAsIs
		default:
			return fmt.Errorf("%w: %s", ErrMigrating, m.Outgoing.ID)
		}
	})
}

// Seal makes the source refuse the slots of its migration, every read and write
// through whichever instance. It changes nothing if it is sealed, or if the
// slots have moved away already.
func (s *Shard) Seal(ctx context.Context, id string) error {
	return s.changeMigration(ctx, "seal "+id, func(h *Head, m *Meta) error {
		if m.Outgoing == nil || m.Outgoing.ID != id || m.Outgoing.Sealed {
			return errAsIs
		}
		sealed := *m.Outgoing
		sealed.Sealed, sealed.SealedAt = true, h.Seq+1 // the row of this very change
		m.Outgoing = &sealed
		return nil
	})
}

// EndOutgoing records the slots of a migration as moved away, and ends it on
// the source. It changes nothing if it has ended.
//
// A migration moves about half of what a shard holds, and so its estimates.
func (s *Shard) EndOutgoing(ctx context.Context, id string) error {
	return s.changeMigration(ctx, "end shadow "+id, func(h *Head, m *Meta) error {
		if m.Outgoing == nil || m.Outgoing.ID != id {
			return errAsIs
		}
		m.Moved.Union(&m.Outgoing.Slots)
		m.Outgoing = nil
		m.end(id)
		h.Live, h.Bytes = h.Live-h.Live/2, h.Bytes-h.Bytes/2
		return nil
	})
}

func (s *Shard) changeMigration(ctx context.Context, note string, edit func(*Head, *Meta) error) error {
	err := s.submit(ctx, &pending{control: &control{note: note, apply: func(h *Head, _ clock.Instant) error {
		m := *h.Meta()
		if err := edit(h, &m); err != nil {
			return err
		}
		return h.setMeta(m)
	}}})
	if errors.Is(err, errAsIs) {
		return nil
	}
	return err
}

// Walk bounds one pass of Moving.
type Walk struct {
	// After continues behind this key.
	After string
	// Entries and Bytes bound what is returned; at least one entry is.
	Entries int
	Bytes   int64
	// Scanned bounds the bytes of user data looked at, moving or not.
	Scanned int64
}

// Portion is what one pass found.
type Portion struct {
	Entries []record.Entry
	// Bytes is their size, Scanned that of all that was looked at.
	Bytes, Scanned int64
	// Last is where the next pass continues; Done says that there is none.
	Last string
	Done bool
}

// Moving returns entries of the given slots in key order, tombstones and
// expired ones included, as the log has them now. Large values are not loaded.
func (s *Shard) Moving(ctx context.Context, slots *keyspace.SlotSet, w Walk) (Portion, error) {
	for range maxMissed {
		if err := s.refresh(ctx); err != nil {
			return Portion{}, err
		}
		s.mu.Lock()
		v := s.st.view(s, s.cfg.Clock.Now())
		s.mu.Unlock()
		p, err := v.moving(ctx, slots, w)
		if !errors.Is(err, ErrViewExpired) {
			return p, err
		}
		if err := s.reopen(ctx, v.etag, err); err != nil {
			return Portion{}, err
		}
	}
	return Portion{}, fmt.Errorf("walk %s: %w", s.partition, ErrViewExpired)
}

func (v *View) moving(ctx context.Context, slots *keyspace.SlotSet, w Walk) (Portion, error) {
	b := Bounds{From: w.After}
	if w.After != "" {
		b.From += "\x00"
	}
	p := Portion{Last: w.After}
	it := v.iter(b, false)
	for it.Next(ctx) {
		e := it.Entry()
		p.Last = e.Key
		p.Scanned += e.Size()
		if slots.Has(keyspace.Slot(e.Key)) {
			p.Entries = append(p.Entries, *e)
			p.Bytes += e.Size()
		}
		if len(p.Entries) >= w.Entries || p.Bytes >= w.Bytes || p.Scanned >= w.Scanned {
			return p, nil
		}
	}
	p.Done = true
	return p, v.expired(it.Err())
}

// LogPortion is a part of the log.
type LogPortion struct {
	// Records are what the rows did to the slots, oldest first: entries of each
	// write, prepared mutations, and the ends of transactions.
	Records []record.Record
	// Last is the last row looked at, Head the last row of the log then.
	Last, Head uint64
}

// LogSince returns what rows after a number did to the given slots, of at most
// so many rows. The rows must not have been collected: those after the start of
// an outgoing migration are kept.
//
// The log ends for this purpose where an outgoing migration sealed its slots.
// Later rows tell how transactions ended here of which the target may have
// prepared mutations of its own, as the owner: that is not for a migration to
// end.
func (s *Shard) LogSince(ctx context.Context, after uint64, slots *keyspace.SlotSet, maxRows int) (LogPortion, error) {
	h, err := s.readHead(ctx)
	if err != nil {
		return LogPortion{}, err
	}
	p := LogPortion{Last: after, Head: h.Seq}
	if out := h.Meta().Outgoing; out != nil && out.SealedAt > 0 {
		p.Head = out.SealedAt
	}
	end := min(p.Head, after+uint64(maxRows))
	if end <= after {
		return p, nil
	}
	rows, err := s.readBetween(ctx, after+1, end)
	if err != nil {
		return LogPortion{}, fmt.Errorf("read log of %s since row %d: %w", s.partition, after, err)
	}
	for i := range rows {
		p.Records = appendMoving(p.Records, &rows[i], slots)
	}
	p.Last = end
	return p, nil
}

// appendMoving adds the records of a row that concern the slots.
func appendMoving(dst []record.Record, row *record.Row, slots *keyspace.SlotSet) []record.Record {
	for i := range row.Records {
		r := &row.Records[i]
		switch {
		case writesEntry(r.Kind) || r.Kind == record.KindPrepare:
			if slots.Has(keyspace.Slot(r.Entry.Key)) {
				dst = append(dst, *r)
			}
		case r.Kind == record.KindCommit || r.Kind == record.KindAbort:
			dst = append(dst, *r)
		}
	}
	return dst
}

// writesEntry reports whether a record of the kind leaves an entry behind.
func writesEntry(k record.Kind) bool {
	return k == record.KindPut || k == record.KindTombstone || k == record.KindMerge
}

// Forward brings records of this shard to the target of a migration: entries
// with their versions, expiry and large values, prepared mutations with their
// transactions. The target takes what it does not have. hasty gives up where a
// lease bars the way. When it returns nil the target has them durably;
// ErrStaleRouting says that the migration is not open there.
func (s *Shard) Forward(ctx context.Context, target *Shard, id string, records []record.Record, hasty bool) error {
	if len(records) == 0 {
		return nil
	}
	writes := make([]Write, 0, len(records))
	for i := range records {
		w, err := s.forwarded(ctx, &records[i])
		if errors.Is(err, store.ErrNotFound) {
			if err = s.replaced(ctx, &records[i], err); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		w.Migration, w.hasty = id, hasty
		writes = append(writes, w)
	}
	results, err := target.Write(ctx, writes) // of none, nothing
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Status == StatusStale {
			return fmt.Errorf("%s takes nothing of migration %s: %w", target.partition, id, ErrStaleRouting)
		}
	}
	return nil
}

// forwarded makes the write that does on the target what a record did here. What
// a commit installed comes as entries; its end, like that of an abort, makes
// the target forget what was prepared.
func (s *Shard) forwarded(ctx context.Context, r *record.Record) (Write, error) {
	if r.Kind == record.KindCommit || r.Kind == record.KindAbort {
		return Write{Op: OpAbort, Tx: r.Tx}, nil
	}
	e := &r.Entry
	value, err := s.value(ctx, e)
	if err != nil {
		return Write{}, err
	}
	w := Write{
		Op: OpMerge, Key: e.Key, Value: value, Type: e.Type, Expiry: e.Expiry,
		Version: e.Version, Tombstone: e.Tombstone,
	}
	if r.Kind == record.KindPrepare {
		w.Op, w.Tx = OpPrepare, r.Tx
	}
	return w, nil
}

// replaced accounts for a large value whose blob is gone: its record was
// replaced by a later one of the log, which is forwarded in its turn, and the
// collector took it. If it was not, the value is lost, which is said loudly.
func (s *Shard) replaced(ctx context.Context, r *record.Record, cause error) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	base, prepared := s.st.base, s.st.prepared.of(r.Tx)
	it, inTail := s.st.tail.get(r.Entry.Key)
	s.mu.RUnlock()
	if r.Kind == record.KindPrepare {
		if _, ok := prepared[r.Entry.Key]; !ok {
			return nil
		}
		return store.Corruptf("%s: a prepared value is gone: %v", s.partition, cause)
	}
	var now clock.Version
	if inTail {
		now = it.Version
	} else if e, ok, err := base.Get(ctx, r.Entry.Key); err != nil {
		return err
	} else if ok {
		now = e.Version
	}
	if now.Compare(r.Entry.Version) > 0 {
		return nil
	}
	return store.Corruptf("%s: a value is gone: %v", s.partition, cause)
}

// Merges returns entries as records for Forward.
func Merges(entries []record.Entry) []record.Record {
	out := make([]record.Record, len(entries))
	for i, e := range entries {
		out[i] = record.Record{Kind: record.KindMerge, Entry: e}
	}
	return out
}

// mirrorTimeout bounds how long callers wait for the mirror of their append:
// without it, the drain brings the entries over.
const mirrorTimeout = 2 * time.Second

// mirrored reports whether one of the appends is to be mirrored.
func mirrored(landed []*plan) bool {
	for _, p := range landed {
		if out := p.head.Meta().Outgoing; out != nil && !out.Sealed {
			return true
		}
	}
	return false
}

// mirror forwards what an append wrote to slots that are on the move, before
// its callers are answered. It is not needed for anything to be right: the log
// keeps what was appended, and the migration reads it before it completes. It
// keeps the rest small that must be read while the slots are sealed.
func (s *Shard) mirror(ctx context.Context, p *plan) {
	out := p.head.Meta().Outgoing
	if out == nil || out.Sealed {
		return
	}
	var records []record.Record
	for i := range p.rows {
		records = appendMoving(records, &p.rows[i], &out.Slots)
	}
	if len(records) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	target := s.pool.Shard(out.Target)
	target.SetTuning(*s.tuning.Load()) // it is of the same tree
	if err := s.Forward(ctx, target, out.ID, records, true); err != nil {
		s.pool.mirrorFailures.Add(1)
		return
	}
	s.pool.mirrored.Add(uint64(len(records)))
}
