package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"golang.org/x/sync/errgroup"
)

// Batch performs operations that are independent of each other: each key by
// itself, in any order between keys, in the given order for one key. Results
// stand in the order of ops.
//
// A fault of form in any operation is an *ArgumentError and nothing is done. At
// an admission cap a batch that sets a key is a *QuotaError and nothing is done.
// When Batch returns without an error every result is decided, and what was
// written is durable. After an error some operations may have been done.
//
// BatchResult.Existed tells of deletes and conditional writes only; an
// unconditional set does not look.
func (t *Tree) Batch(ctx context.Context, ops []BatchOp) ([]BatchResult, error) {
	if len(ops) > t.db.opts.MaxBatchOperations {
		return nil, &ArgumentError{Field: "operations", Reason: fmt.Sprintf("%d operations, at most %d allowed", len(ops), t.db.opts.MaxBatchOperations)}
	}
	out := make([]BatchResult, len(ops))
	writes, place, err := t.plan(ops, out)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(writes, func(w shard.Write) bool { return w.Op == shard.OpPut }) {
		if err := t.checkQuota(ctx); err != nil {
			return nil, err
		}
	}
	results, err := t.writeAll(ctx, writes)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		out[place[i]] = batchResult(r)
	}
	return out, nil
}

// plan turns operations into writes, and returns the place of each in ops.
// Those beyond a limit are answered in out.
func (t *Tree) plan(ops []BatchOp, out []BatchResult) (writes []shard.Write, place []int, err error) {
	var total int64
	writes, place = make([]shard.Write, 0, len(ops)), make([]int, 0, len(ops))
	for i := range ops {
		w, err := t.planOne(&ops[i])
		if err != nil {
			if out[i].Err, err = planFault(i, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		total += int64(len(w.Key) + len(w.Value))
		writes, place = append(writes, w), append(place, i)
	}
	if limit := max(t.db.opts.MaxBatchBytes, t.db.opts.MaxValueSizeBytes+int64(t.db.opts.MaxKeyLength)); total > limit {
		return nil, nil, &LimitError{What: "batch", Size: total, Limit: limit}
	}
	return writes, place, nil
}

// planFault tells a fault of one key, which is its result, from a fault of form,
// which names the operation and is that of the batch.
func planFault(i int, err error) (result, fault error) {
	var (
		limit *LimitError
		form  *ArgumentError
	)
	switch {
	case errors.As(err, &limit):
		return limit, nil
	case errors.As(err, &form):
		return nil, &ArgumentError{Field: operation(i) + form.Field, Reason: form.Reason}
	}
	return nil, err
}

func (t *Tree) planOne(op *BatchOp) (shard.Write, error) {
	if err := t.db.checkKey("key", op.Key); err != nil {
		return shard.Write{}, err
	}
	if op.Delete {
		if op.IfAbsent || op.TTL != 0 {
			return shard.Write{}, &ArgumentError{Field: "op", Reason: "a delete takes no ifAbsent and no ttl"}
		}
		return shard.Write{Op: shard.OpDelete, Key: op.Key, IfVersion: op.IfVersion}, nil
	}
	if err := checkQualifiers("", op.TTL, op.IfAbsent, false, op.IfVersion); err != nil {
		return shard.Write{}, err
	}
	if err := t.db.checkValue(op.Key, len(op.Value)); err != nil {
		return shard.Write{}, err
	}
	return shard.Write{
		Op: shard.OpPut, Key: op.Key, Value: op.Value, Type: op.Type, Expiry: t.expiry(op.TTL),
		IfAbsent: op.IfAbsent, IfVersion: op.IfVersion,
		Blind: !op.IfAbsent && op.IfVersion.IsZero(),
	}, nil
}

func batchResult(r shard.WriteResult) BatchResult {
	if r.Status == shard.StatusMismatch {
		return BatchResult{Err: &MismatchError{Current: r.Version}}
	}
	return BatchResult{Version: r.Version, Existed: r.Existed}
}

// writeAll sends writes to the owners of their keys, shard by shard in
// parallel, until every one is decided. A write that a shard turned away is
// routed again by itself; one that was decided is never sent again.
//
// The order of writes to one key is kept: they are in one request to one shard,
// and a shard that has refused a slot refuses it for the rest of the request.
func (t *Tree) writeAll(ctx context.Context, writes []shard.Write) ([]shard.WriteResult, error) {
	results := make([]shard.WriteResult, len(writes))
	pending := make([]int, len(writes))
	for i := range pending {
		pending[i] = i
	}
	if len(writes) == 0 {
		_, err := t.meta(ctx)
		return results, err
	}
	for try := 0; ; try++ {
		err := t.routed(ctx, func(m *meta) (err error) {
			pending, err = t.writeRound(ctx, m, writes, results, pending)
			return err
		})
		if err != nil {
			return results, err
		}
		if pending, err = t.giveWayAll(ctx, writes, results, try); err != nil || len(pending) == 0 {
			return results, err
		}
	}
}

// giveWayAll removes undecided batches from the way of those writes that met one,
// and returns their places.
func (t *Tree) giveWayAll(ctx context.Context, writes []shard.Write, results []shard.WriteResult, try int) (places []int, err error) {
	met := map[record.ID]bool{}
	for i := range results {
		if results[i].Status != shard.StatusPending {
			continue
		}
		places = append(places, i)
		if tx := results[i].Tx; !met[tx] {
			met[tx] = true
			if err := t.giveWay(ctx, writes[i].Key, tx, try, nil); err != nil {
				return nil, err
			}
		}
	}
	return places, nil
}

// writeRound sends the pending writes once, and returns those that were turned
// away, in order. The error is nil only if there are none; one that is not
// about routing goes before one that is.
func (t *Tree) writeRound(ctx context.Context, m *meta, writes []shard.Write, results []shard.WriteResult, pending []int) ([]int, error) {
	var (
		mu     sync.Mutex
		left   []int
		routed error
		g      errgroup.Group // not tied to ctx: one failure does not leave the others' outcome open
	)
	g.SetLimit(fanOut)
	for id, places := range byOwner(m, pending, func(i int) string { return writes[i].Key }) {
		g.Go(func() error {
			away, err := t.writeGroup(ctx, t.shard(m, id), writes, results, places)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, away...)
			if turnedAway(err) {
				routed, err = err, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(left)
	return left, routed
}

// byOwner groups places by the shard that owns their key, keeping the order.
func byOwner(m *meta, places []int, key func(int) string) map[keyspace.ShardID][]int {
	groups := make(map[keyspace.ShardID][]int, len(m.owners))
	for _, i := range places {
		id := m.shardMap.OwnerOf(key(i))
		groups[id] = append(groups[id], i)
	}
	return groups
}

// writeGroup sends the writes at places to one shard and files the results. It
// returns the places that were turned away, with the reason.
func (t *Tree) writeGroup(ctx context.Context, l shardLog, writes []shard.Write, results []shard.WriteResult, places []int) (away []int, err error) {
	batch := make([]shard.Write, len(places))
	for i, p := range places {
		batch[i] = writes[p]
	}
	rs, err := l.Write(ctx, batch)
	if err != nil && !turnedAway(err) {
		return nil, err
	}
	var met shard.WriteResult
	for i, p := range places {
		switch {
		case i < len(rs) && rs[i].Status == 0 && met.Status != 0:
			results[p] = met // it was not tried, so that nothing is overtaken
		case i >= len(rs) || rs[i].Status == 0 || rs[i].Status == shard.StatusStale:
			away = append(away, p)
		default:
			results[p] = rs[i]
			if rs[i].Status == shard.StatusPending {
				met = rs[i]
			}
		}
	}
	if len(away) > 0 && err == nil {
		err = shard.ErrStaleRouting
	}
	return away, err
}

// GetMany reads keys and returns those that exist, in the order of the request,
// once for each time they were asked for. Of an atomic batch all is seen or
// nothing, and the keys of one shard come from one moment. The values together may have MaxValueSizeBytes: beyond that it is a
// *LimitError.
func (t *Tree) GetMany(ctx context.Context, keys []string, o ReadOptions) ([]Item, error) {
	if len(keys) > t.db.opts.MaxBatchOperations {
		return nil, &ArgumentError{Field: "keys", Reason: fmt.Sprintf("%d keys, at most %d allowed", len(keys), t.db.opts.MaxBatchOperations)}
	}
	for i, key := range keys {
		if err := t.db.checkKey(fmt.Sprintf("keys[%d]", i), key); err != nil {
			return nil, err
		}
	}
	var expired error
	for range retryReads {
		items, err := t.getMany(ctx, keys, shard.ReadOptions(o))
		if !errors.Is(err, shard.ErrViewExpired) {
			return items, err
		}
		expired, o.MaxAge = err, 0
	}
	return nil, fmt.Errorf("%w: %w", ErrTopologyUnstable, expired)
}

// found is the answer for one key of GetMany.
type found struct {
	item Item
	ok   bool
}

func (t *Tree) getMany(ctx context.Context, keys []string, o shard.ReadOptions) ([]Item, error) {
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	answers := make([]found, len(keys))
	err := t.routed(ctx, func(m *meta) error {
		// Everything is read again when one shard turns a key away: what is
		// answered comes from one round of views.
		groups := byOwner(m, all, func(i int) string { return keys[i] })
		ids := slices.Sorted(maps.Keys(groups))
		views, err := t.settledViews(ctx, m, ids, spanOf(keys), o)
		if err != nil {
			return err
		}
		budget := &byteBudget{left: t.db.opts.MaxValueSizeBytes, limit: t.db.opts.MaxValueSizeBytes}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(fanOut)
		for i, id := range ids {
			g.Go(func() error { return getGroup(ctx, views[i], keys, answers, groups[id], budget) })
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	items := make([]Item, 0, len(keys))
	for i := range answers {
		if answers[i].ok {
			items = append(items, answers[i].item)
		}
	}
	return items, nil
}

// spanOf returns bounds that hold all the keys.
func spanOf(keys []string) shard.Bounds {
	if len(keys) == 0 {
		return shard.Bounds{}
	}
	return shard.Bounds{From: slices.Min(keys), To: slices.Max(keys) + "\x00"}
}

func getGroup(ctx context.Context, v shardView, keys []string, answers []found, places []int, b *byteBudget) error {
	for _, p := range places {
		answers[p] = found{}
		e, ok, err := v.Get(ctx, keys[p])
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := b.take(e.ValueSize()); err != nil {
			return err
		}
		if e.Value, err = v.Load(ctx, &e); err != nil {
			return err
		}
		answers[p] = found{item: itemOf(&e), ok: true}
	}
	return nil
}

// byteBudget bounds what goroutines gather together.
type byteBudget struct {
	mu          sync.Mutex
	left, limit int64
}

func (b *byteBudget) take(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left -= n; b.left < 0 {
		return &LimitError{What: "response", Size: b.limit - b.left, Limit: b.limit}
	}
	return nil
}
