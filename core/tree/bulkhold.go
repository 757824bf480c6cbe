package tree

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// loadPulse is how often a load in one request gives a sign of life.
const loadPulse = loadLease / 3

// errReleased ends the pulse of a load.
var errReleased = errors.New("released")

// holding is the registration of a load in one request.
type holding struct {
	rows loadRows
	load string
	// ctx ends with ErrOperationMismatch when another load has taken the place of
	// this one, which had not been able to give a sign of life for loadLease.
	ctx   context.Context
	end   context.CancelCauseFunc
	pulse sync.WaitGroup
}

// hold registers a load in one request as the current one of the tree, so that
// no other begins, and keeps it registered until release. Nothing is registered
// if check fails.
func (t *Tree) hold(ctx context.Context, treeID string, check func(context.Context) error) (*holding, error) {
	h := &holding{rows: t.db.loads(treeID), load: t.db.reg.newID()}
	if _, _, err := h.rows.claim(ctx, current{Load: h.load}, nil, t.db.opts.BulkLoadIdleTtl, check); err != nil {
		return nil, fmt.Errorf("begin bulk load of tree %q: %w", t.name, err)
	}
	h.ctx, h.end = context.WithCancelCause(ctx)
	h.pulse.Go(h.beat)
	return h, nil
}

// beat renews the registration until the context ends. A renewal that fails in
// passing is tried again with the next one.
func (h *holding) beat() {
	for h.rows.reg.clock.Sleep(h.ctx, loadPulse) == nil {
		if err := h.confirm(); errors.Is(err, ErrOperationMismatch) {
			h.end(err)
			return
		}
	}
}

// confirm returns nil if the load still holds its place: the last look before
// what it has prepared takes effect.
func (h *holding) confirm() error { return h.rows.renew(h.ctx, h.load, false) }

// release ends the registration, also when the request was cancelled: else others
// would wait for it.
func (h *holding) release() {
	h.end(errReleased)
	h.pulse.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), releaseTimeout)
	defer cancel()
	_ = h.rows.renew(ctx, h.load, true) // one that fails expires
}

// explain says of an error that the load had lost its place, if so.
func (h *holding) explain(err error) error {
	cause := context.Cause(h.ctx)
	if err != nil && errors.Is(cause, ErrOperationMismatch) && !errors.Is(err, ErrOperationMismatch) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// releaseTimeout bounds the end of a registration.
const releaseTimeout = 5 * time.Second

// vacant returns nil if no shard that owns slots holds anything: no live key, no
// tombstone, no expired entry. ErrTreeNotEmpty otherwise; a shard that cannot be
// asked is an error.
func (t *Tree) vacant(ctx context.Context, treeID string) error {
	var m *meta
	for try := 0; ; try++ {
		err := t.routed(ctx, func(now *meta) error {
			m = now
			if m.ID != treeID {
				return t.replaced()
			}
			return t.eachOwner(ctx, m, func(ctx context.Context, _ int, l shardLog) error {
				empty, err := l.Empty(ctx)
				if err == nil && !empty {
					err = ErrTreeNotEmpty
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		// The shards were asked one by one: between two answers a slot, and all
		// it holds, may have moved from one that had still to be asked to one
		// that had been.
		now, err := t.refresh(ctx)
		if err != nil {
			return err
		}
		if now.ID == m.ID && now.MapVersion == m.MapVersion {
			return nil
		}
		if try >= m.opts.MaxScanRetries {
			return fmt.Errorf("look whether tree %q is empty: %w: %w", t.name, ErrTopologyUnstable, errMapMoved)
		}
	}
}

// unlessMissing turns the absence of a blob of the load itself into an error that
// says so: it took longer than the collector spares what nothing refers to.
func unlessMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("the load took so long that what it had prepared was collected: %w: %v", store.ErrUnavailable, err)
	}
	return err
}
