package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

// defaultType is the media type of a value that was written without one.
const defaultType = "application/octet-stream"

// retryReads bounds how often a request looks again for what was replaced and
// collected under it.
const retryReads = 4

// itemOf turns an entry, complete with its value, into an Item. The value may
// be shared with caches: nobody changes it.
func itemOf(e *record.Entry) Item {
	it := Item{Key: e.Key, Value: e.Value, Type: e.Type, Version: e.Version}
	if it.Type == "" {
		it.Type = defaultType
	}
	if e.Expiry != 0 {
		it.Expiry = time.UnixMilli(e.Expiry).UTC()
	}
	return it
}

// Get reads one key and reports whether it exists. Without MaxAge the answer is
// linearizable. The Item's Value must not be changed.
func (t *Tree) Get(ctx context.Context, key string, o ReadOptions) (Item, bool, error) {
	if err := t.db.checkKey("key", key); err != nil {
		return Item{}, false, err
	}
	e, ok, err := t.find(ctx, key, shard.ReadOptions(o))
	if err != nil || !ok {
		return Item{}, false, err
	}
	return itemOf(&e), true, nil
}

// find reads the entry of a key from its owner. The common case, that what is
// remembered of the tree is right, costs no allocation here.
func (t *Tree) find(ctx context.Context, key string, o shard.ReadOptions) (record.Entry, bool, error) {
	e, ok, err := t.findOnce(ctx, key, o)
	for try := 0; err != nil && errors.Is(err, errForgotten) && try < retryReads; try++ {
		e, ok, err = t.findOnce(ctx, key, shard.ReadOptions{})
	}
	return e, ok, err
}

func (t *Tree) findOnce(ctx context.Context, key string, o shard.ReadOptions) (record.Entry, bool, error) {
	m, err := t.meta(ctx)
	if err != nil {
		return record.Entry{}, false, err
	}
	e, ok, err := t.owner(m, key).Read(ctx, key, o)
	if turnedAway(err) {
		e, ok, err = t.findAgain(ctx, m, err, key, o)
	}
	var pending *shard.PendingError
	if errors.As(err, &pending) {
		e, ok, err = t.settleRead(ctx, key, pending, o.MaxAge > 0)
	}
	if errors.Is(err, store.ErrNotFound) {
		return e, false, store.Corruptf("a blob of tree %q is missing: %v", t.name, err)
	}
	return e, ok, err
}

func (t *Tree) findAgain(ctx context.Context, m *meta, cause error, key string, o shard.ReadOptions) (e record.Entry, ok bool, err error) {
	err = t.reroute(ctx, m, cause, func(m *meta) (err error) {
		e, ok, err = t.owner(m, key).Read(ctx, key, o)
		return err
	})
	return e, ok, err
}

// Put writes one key. A condition that does not hold is a *MismatchError, and
// nothing was written. When Put returns nil the value is durable, and seen by
// every read that begins afterwards, through any instance. At an admission cap
// it is a *QuotaError, whatever the key holds, and nothing was written. After
// store.ErrOutcomeUnknown it may have been written or not.
func (t *Tree) Put(ctx context.Context, key string, value []byte, o PutOptions) (PutResult, error) {
	if err := t.db.checkKey("key", key); err != nil {
		return PutResult{}, err
	}
	if err := checkQualifiers("", o.TTL, o.IfAbsent, o.GetOrSet, o.IfVersion); err != nil {
		return PutResult{}, err
	}
	if err := t.db.checkValue(key, len(value)); err != nil {
		return PutResult{}, err
	}
	if err := t.checkQuota(ctx); err != nil {
		return PutResult{}, err
	}
	w := shard.Write{
		Op: shard.OpPut, Key: key, Value: value, Type: o.Type,
		Expiry: t.expiry(o.TTL), IfAbsent: o.IfAbsent, IfVersion: o.IfVersion,
	}
	if o.GetOrSet {
		w.Op = shard.OpGetOrSet
	}
	for range retryReads {
		res, again, err := t.put(ctx, w)
		if !again {
			return res, err
		}
	}
	return PutResult{}, fmt.Errorf("get or set a key that comes and goes: %w", store.ErrUnavailable)
}

// put writes once. It asks to be called again when the large value that a
// get-or-set found was gone before it could be read.
func (t *Tree) put(ctx context.Context, w shard.Write) (res PutResult, again bool, err error) {
	r, err := t.write(ctx, w)
	switch {
	case err != nil:
		return PutResult{}, false, err
	case r.Status == shard.StatusMismatch:
		return PutResult{}, false, &MismatchError{Current: r.Version}
	case r.Status != shard.StatusExisting:
		return PutResult{Created: !r.Existed, Version: r.Version}, false, nil
	}
	e := r.Entry
	if e.Ref != nil {
		var ok bool
		if e, ok, err = t.find(ctx, w.Key, shard.ReadOptions{}); err != nil || !ok {
			return PutResult{}, err == nil, err
		}
	}
	it := itemOf(&e)
	return PutResult{Version: it.Version, Existing: &it}, false, nil
}

// Delete removes a key and reports whether it existed. ifVersion, unless zero,
// demands that the key exists in that version: else a *MismatchError. Durable
// on return, as for Put.
func (t *Tree) Delete(ctx context.Context, key string, ifVersion clock.Version) (bool, error) {
	if err := t.db.checkKey("key", key); err != nil {
		return false, err
	}
	r, err := t.write(ctx, shard.Write{Op: shard.OpDelete, Key: key, IfVersion: ifVersion})
	if err != nil {
		return false, err
	}
	if r.Status == shard.StatusMismatch {
		return false, &MismatchError{Current: r.Version}
	}
	return r.Existed, nil
}

// write sends one write to the owner of its key, once no undecided batch stands in
// its way.
func (t *Tree) write(ctx context.Context, w shard.Write) (shard.WriteResult, error) {
	for try := 0; ; try++ {
		r, err := t.writeRouted(ctx, w)
		if err != nil || r.Status != shard.StatusPending {
			return r, err
		}
		if err := t.giveWay(ctx, w.Key, r.Tx, try, nil); err != nil {
			return shard.WriteResult{}, err
		}
	}
}

func (t *Tree) writeRouted(ctx context.Context, w shard.Write) (shard.WriteResult, error) {
	m, err := t.meta(ctx)
	if err != nil {
		return shard.WriteResult{}, err
	}
	r, err := t.writeUnder(ctx, m, w)
	if turnedAway(err) {
		err = t.reroute(ctx, m, err, func(m *meta) (err error) {
			r, err = t.writeUnder(ctx, m, w)
			return err
		})
	}
	return r, err
}

func (t *Tree) writeUnder(ctx context.Context, m *meta, w shard.Write) (shard.WriteResult, error) {
	rs, err := t.owner(m, w.Key).Write(ctx, []shard.Write{w})
	switch {
	case err != nil:
		return shard.WriteResult{}, err
	case rs[0].Status == shard.StatusStale:
		return shard.WriteResult{}, shard.ErrStaleRouting
	}
	return rs[0], nil
}
