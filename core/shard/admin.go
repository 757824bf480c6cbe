package shard

import (
	"context"
	"errors"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/run"
)

// errAsIs: the head is already as wanted.
var errAsIs = errors.New("nothing to change")

// newRunStore returns the store of a partition's runs.
func newRunStore(p *Pool, partition string) *run.Store {
	return &run.Store{
		Blobs: p.cfg.Blobs, Cache: p.cache, Clock: p.cfg.Clock,
		Prefix: partition + "/", NewName: p.names.blob,
		Options: run.Options{LeafTarget: p.cfg.LeafTargetBytes},
	}
}

// SetClosed closes the shard to every read and write of every instance, or
// opens it again. It is in force when SetClosed returns nil, also if it was
// before.
func (s *Shard) SetClosed(ctx context.Context, closed bool) error {
	return s.change(ctx, "close", func(m *Meta) bool {
		changed := m.Closed != closed
		m.Closed = closed
		return changed
	})
}

// SetClosedAt is SetClosed for a decision that was given a number: it changes
// nothing if a later decision has been carried out, however long the caller was
// frozen in between. So a delete and a recovery that overlap leave every shard
// as the later of the two says.
func (s *Shard) SetClosedAt(ctx context.Context, closed bool, epoch uint64) error {
	return s.change(ctx, "close", func(m *Meta) bool {
		if epoch < m.Epoch || epoch == m.Epoch && closed == m.Closed {
			return false
		}
		m.Closed, m.Epoch = closed, epoch
		return true
	})
}

// MoveAway gives slots up for good: from then on every read and write of their
// keys is refused as stale routing, through whichever instance.
func (s *Shard) MoveAway(ctx context.Context, slots keyspace.SlotSet) error {
	return s.change(ctx, "move away", func(m *Meta) bool {
		before := m.Moved
		m.Moved.Union(&slots)
		return m.Moved != before
	})
}

// change appends a change of the rarely changing part of the head.
func (s *Shard) change(ctx context.Context, note string, edit func(*Meta) bool) error {
	err := s.submit(ctx, &pending{control: &control{note: note, apply: func(h *Head, _ clock.Instant) error {
		m := *h.Meta()
		if !edit(&m) {
			return errAsIs
		}
		return h.setMeta(m)
	}}})
	if errors.Is(err, errAsIs) {
		return nil
	}
	return err
}

// Stats describes a shard as the instance last saw it.
type Stats struct {
	// Seq is the last row of the log, TailRows and TailBytes what lies above
	// the checkpoint.
	Seq       uint64
	TailRows  int
	TailBytes int64
	// TailTombstones counts the keys that the tail deletes.
	TailTombstones int64
	// Live and Bytes estimate the live entries and their user data.
	Live, Bytes int64
	// Runs, Leaves and LeafBytes describe the checkpoint, Entries and
	// Tombstones what is in all its runs together.
	Runs, Leaves        int
	LeafBytes           int64
	Entries, Tombstones int64
	// LeaseOwner is 0 if nobody holds the lease; LeaseExpiry is a Unix
	// millisecond, 0 if nobody ever did.
	LeaseOwner  uint64
	LeaseExpiry int64
	// Closed says that the tree is deleted.
	Closed bool
}

// Stats returns the present figures, after one check.
func (s *Shard) Stats(ctx context.Context) (Stats, error) {
	if err := s.refresh(ctx); err != nil {
		return Stats{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	st, base := s.st, s.st.base.Stats()
	return Stats{
		Seq: st.head.Seq, TailRows: st.tail.rows(), TailBytes: st.tail.bytes, TailTombstones: st.tail.tombstones(),
		Live: st.head.Live, Bytes: st.head.Bytes,
		Runs: base.Runs, Leaves: base.Leaves, LeafBytes: base.Bytes,
		Entries: base.Entries, Tombstones: base.Tombstones,
		LeaseOwner: st.head.Lease.Owner, LeaseExpiry: st.head.Lease.Expiry, Closed: st.head.Meta().Closed,
	}, nil
}

// Lease returns the lease as it stands in the head now.
func (s *Shard) Lease(ctx context.Context) (Lease, error) {
	if err := s.refresh(ctx); err != nil {
		return Lease{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st.head.Lease, nil
}
