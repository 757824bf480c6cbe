package split

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// Footprint is what a tree has on the move, as its monitor last reported.
type Footprint struct {
	// InFlight counts its migrations, Granted the splits it was allowed to
	// begin then.
	InFlight int `json:"inFlight"`
	Granted  int `json:"granted,omitempty"`
	// Expires is the Unix millisecond from which it no longer counts. A monitor
	// that lives reports again before that; so what a dead one holds comes back
	// by itself.
	Expires int64 `json:"expires"`
	// ObservedOnly says that the tree has set no ceiling: the footprint is seen
	// by those who ask, and takes nothing of what others may use.
	ObservedOnly bool `json:"observedOnly,omitempty"`
}

// Activity is the sum of the footprints that have not expired.
type Activity struct{ InFlight, ReportingTrees int }

// Gate admits automatic splits while the migrations in flight on all trees that
// set a ceiling leave room under it. All its state is one row.
type Gate struct {
	Table store.Table
	Clock clock.Source
}

const (
	gatePartition = "cluster"
	gateKey       = "splits"
	// maxFootprints bounds the trees that have anything in flight at once. What
	// is beyond is not admitted.
	maxFootprints = 5000
	gateAttempts  = 12
	gateBackoff   = 5 * time.Millisecond
)

var gateFormat = frame.Format{Magic: "LTCG", Version: 1, MaxSize: 640 << 10}

// gateRow is the row: the footprints by the id of the tree.
type gateRow struct {
	Footprints map[string]Footprint `json:"footprints"`
	etag       store.ETag
}

// Request is what the monitor of a tree reports and asks for.
type Request struct {
	// Tree is the id of the tree.
	Tree string
	// InFlight counts its migrations, Want the splits that it would begin.
	InFlight, Want int
	// Ceiling is the tree's MaxClusterConcurrentAutoSplits; 0 is none.
	Ceiling int
	// TTL is how long the footprint lasts.
	TTL time.Duration
}

// Report records the footprint of a tree in place of its last one, and returns
// how many of the wanted splits may begin: all of them if the tree has set no
// ceiling. A tree without anything in flight or granted leaves no footprint. It
// is durable on return.
func (g *Gate) Report(ctx context.Context, q Request) (granted int, err error) {
	var last error
	for attempt := range gateAttempts {
		if attempt > 0 {
			if err := g.Clock.Sleep(ctx, clock.Jitter(g.Clock, gateBackoff<<min(attempt, 6))); err != nil {
				break
			}
		}
		row, err := g.load(ctx)
		if err != nil {
			last = err
		} else if changed := row.admit(q, g.Clock.Now().Milli(), &granted); !changed {
			return granted, nil
		} else if last = g.save(ctx, row); last == nil {
			return granted, nil
		}
		if !lost(last) && !store.Transient(last) && !errors.Is(last, store.ErrOutcomeUnknown) {
			break
		}
	}
	return 0, fmt.Errorf("report splits to the cluster: %w", last)
}

// admit drops what has expired, grants what fits, and notes it. It reports
// whether the row needs to be written.
func (r *gateRow) admit(q Request, now int64, granted *int) bool {
	changed, others := false, 0
	for id, f := range r.Footprints {
		switch {
		case id == q.Tree:
		case f.Expires <= now:
			delete(r.Footprints, id)
			changed = true
		case !f.ObservedOnly:
			others += f.InFlight + f.Granted
		}
	}
	_, known := r.Footprints[q.Tree]
	full := !known && len(r.Footprints) >= maxFootprints
	*granted = q.Want
	switch {
	case q.Ceiling > 0 && full:
		*granted = 0
	case q.Ceiling > 0:
		*granted = max(0, min(q.Want, q.Ceiling-others-q.InFlight))
	}
	if q.InFlight+*granted == 0 {
		delete(r.Footprints, q.Tree)
		return changed || known
	}
	if full {
		return changed
	}
	r.Footprints[q.Tree] = Footprint{
		InFlight: q.InFlight, Granted: *granted, Expires: now + q.TTL.Milliseconds(), ObservedOnly: q.Ceiling <= 0,
	}
	return true
}

// Activity sums what the trees have reported: one read.
func (g *Gate) Activity(ctx context.Context) (Activity, error) {
	row, err := g.load(ctx)
	if err != nil {
		return Activity{}, fmt.Errorf("read the splits of the cluster: %w", err)
	}
	now := g.Clock.Now().Milli()
	var a Activity
	for _, f := range row.Footprints {
		if f.Expires > now {
			a.InFlight += f.InFlight + f.Granted
			a.ReportingTrees++
		}
	}
	return a, nil
}

func (g *Gate) load(ctx context.Context) (*gateRow, error) {
	row, err := g.Table.Get(ctx, gatePartition, gateKey)
	if errors.Is(err, store.ErrNotFound) {
		return &gateRow{Footprints: map[string]Footprint{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeGate(row)
}

func decodeGate(row store.Row) (*gateRow, error) {
	where := fmt.Sprintf("row %s of %s", gateKey, gatePartition)
	r := &gateRow{etag: row.ETag}
	if err := openJSON(gateFormat, where, row.Data, r); err != nil {
		return nil, err
	}
	if r.Footprints == nil {
		r.Footprints = map[string]Footprint{}
	}
	for id, f := range r.Footprints {
		if f.InFlight < 0 || f.Granted < 0 {
			return nil, store.Corruptf("%s: footprint of %s is negative", where, id)
		}
	}
	return r, nil
}

func (g *Gate) save(ctx context.Context, r *gateRow) error {
	data, err := sealJSON(gateFormat, "the splits of the cluster", r)
	if err != nil {
		return err
	}
	op := store.Insert(gateKey, data)
	if r.etag != "" {
		op = store.Replace(gateKey, data, r.etag)
	}
	_, err = g.Table.Apply(ctx, gatePartition, []store.Op{op})
	return err
}
