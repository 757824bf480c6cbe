package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// kindValue names blobs that hold one large value.
const kindValue = "value"

// storeValues writes the values that no row takes to blobs of their own. They
// are orphans, which the collector finds, until a row refers to them. It
// returns the writes with references in place of those values; what it was
// given stays as it is, fit for another shard.
func (s *Shard) storeValues(ctx context.Context, writes []Write) ([]Write, error) {
	limit := s.tuning.Load().InlineValueBytes
	large := func(w Write) bool { return w.Op != OpDelete && len(w.Value) > limit }
	if !slices.ContainsFunc(writes, large) {
		return writes, nil
	}
	writes = slices.Clone(writes)
	for i := range writes {
		w := &writes[i]
		if !large(*w) {
			continue
		}
		start := s.cfg.Clock.Now()
		ref, err := s.storeValue(ctx, w.Value)
		if err != nil {
			return nil, err
		}
		w.ref, w.stored, w.Value = ref, start, nil
	}
	return writes, nil
}

// storeValue writes a large value to a blob of its own, an orphan so far.
func (s *Shard) storeValue(ctx context.Context, value []byte) (*record.Ref, error) {
	ref := &record.Ref{Blob: s.partition + "/" + s.pool.names.blob(kindValue), Size: int64(len(value))}
	if err := s.putBlob(ctx, ref.Blob, record.EncodeValue(value)); err != nil {
		return nil, fmt.Errorf("store large value: %w", err)
	}
	return ref, nil
}

// putBlob writes a blob under a fresh name. A name that exists is this very
// blob, written by an attempt whose reply was lost.
func (s *Shard) putBlob(ctx context.Context, name string, data []byte) error {
	return s.retry(ctx, func() error {
		_, err := s.cfg.Blobs.Put(ctx, name, data, store.Create)
		if errors.Is(err, store.ErrExists) {
			return nil
		}
		return err
	})
}

// value returns the value of an entry, wherever it lies.
func (s *Shard) value(ctx context.Context, e *record.Entry) ([]byte, error) {
	if e.Ref == nil {
		return e.Value, nil
	}
	data, _, err := s.cfg.Blobs.Get(ctx, e.Ref.Blob)
	if err != nil {
		return nil, fmt.Errorf("read large value: %w", err)
	}
	return record.DecodeValue(*e.Ref, data)
}

// Load reads the value of an entry for a caller, from its blob if it is large and
// the context's Admission has no objection. store.ErrNotFound if it was collected,
// because the entry was replaced.
func (s *Shard) Load(ctx context.Context, e *record.Entry) ([]byte, error) {
	if e.Ref == nil {
		return s.value(ctx, e)
	}
	admit := admissionOf(ctx)
	if err := admit(e.Ref.Size); err != nil {
		return nil, err
	}
	value, err := s.value(ctx, e)
	if err != nil {
		_ = admit(-e.Ref.Size) // nothing is refused by that
	}
	return value, err
}

// Read returns the live entry of a key with its value at hand, from one moment.
func (s *Shard) Read(ctx context.Context, key string, o ReadOptions) (record.Entry, bool, error) {
	var missed error
	for range maxMissed {
		used := s.etag()
		e, ok, err := s.Get(ctx, key, o)
		if err != nil || !ok || e.Ref == nil {
			return e, ok, err
		}
		value, err := s.Load(ctx, &e)
		if err == nil {
			e.Value, e.Ref = value, nil
			return e, true, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return e, false, err
		}
		// The entry was replaced and its blob collected since memory was
		// current; what replaced it must be found, or the value is lost.
		missed = err
		o = ReadOptions{}
		if err := s.reopen(ctx, used, err); err != nil {
			return e, false, err
		}
	}
	return record.Entry{}, false, missed
}

// stale reports whether something was done so long ago, by either clock, that a
// collector may by now have taken its blobs for orphans.
func (s *Shard) stale(then, now clock.Instant) bool {
	return age(then, now) > s.cfg.BlobGracePeriod/2
}
