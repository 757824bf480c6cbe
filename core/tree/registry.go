package tree

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

const (
	// registryAttempts bounds the tries of one registry operation.
	registryAttempts = 24
	backoffMin       = 2 * time.Millisecond
	backoffMax       = 500 * time.Millisecond
)

// errUnchanged, returned by the change of an update, ends it without a write.
var errUnchanged = errors.New("unchanged")

// registry reads and changes the rows of trees.
type registry struct {
	table store.Table
	clock clock.Source
}

// read returns the row of a tree: ErrTreeNotFound if there is none.
func (g *registry) read(ctx context.Context, name string) (stored, error) {
	var r store.Row
	err := g.retry(ctx, func() (err error) {
		r, err = g.table.Get(ctx, partitionRegistry, rowKey(name))
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return stored{}, fmt.Errorf("tree %q: %w", name, ErrTreeNotFound)
	}
	if err != nil {
		return stored{}, fmt.Errorf("read %s: %w", rowWhere(name), err)
	}
	decoded, err := decodeTreeRow(name, r.Data)
	return stored{row: decoded, etag: r.ETag}, err
}

// retry repeats f while it fails in a way that is known to pass.
func (g *registry) retry(ctx context.Context, f func() error) error {
	for attempt := 0; ; attempt++ {
		err := f()
		if err == nil || !store.Transient(err) || attempt == registryAttempts {
			return err
		}
		if g.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return err
		}
	}
}

// pause waits before attempt + 1: exponential, bounded, jittered, and at least
// as long as the storage asked.
func (g *registry) pause(ctx context.Context, attempt int, atLeast time.Duration) error {
	d := min(backoffMin<<min(attempt, 10), backoffMax)
	return g.clock.Sleep(ctx, max(clock.Jitter(g.clock, d), atLeast))
}

// insert writes the row of a new tree, under an id that was never used before,
// and reports whether it was this call that created it; otherwise the row that
// stands is returned.
func (g *registry) insert(ctx context.Context, r row) (stored, bool, error) {
	r.stamp(g.newID())
	mine := map[string]bool{}
	var before error
	for attempt := 0; ; attempt++ {
		// An insert of unknown outcome may have been applied, and the tree even
		// purged since; or it may be applied later still. So every attempt has
		// an id of its own, and each of them is ours.
		r.ID = g.newID()
		mine[r.ID] = true
		data, err := encodeTreeRow(&r)
		if err != nil {
			return stored{}, false, err
		}
		etags, err := g.table.Apply(ctx, partitionRegistry, []store.Op{store.Insert(rowKey(r.Name), data)})
		if err == nil {
			return stored{row: r, etag: etags[0]}, true, nil
		}
		if !uncertain(err) || attempt == registryAttempts {
			return stored{}, false, fmt.Errorf("create %s: %w", rowWhere(r.Name), afterwards(err, before))
		}
		if ctx.Err() == nil {
			before = err
		}
		switch s, rerr := g.read(ctx, r.Name); {
		case rerr == nil:
			return s, mine[s.ID], nil
		case !errors.Is(rerr, ErrTreeNotFound):
			return stored{}, false, afterwards(rerr, before)
		}
		if g.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return stored{}, false, fmt.Errorf("create %s: %w", rowWhere(r.Name), err)
		}
	}
}

// afterwards adds to an error, as words alone, the one for which there was another
// attempt: what time ran out on says little about why it took so long.
func afterwards(err, before error) error {
	if before == nil || errors.Is(err, before) {
		return err
	}
	return fmt.Errorf("%w; an attempt before failed with: %v", err, before)
}

// uncertain reports whether a failed write is worth a look at what is stored:
// it lost a race (perhaps against its own echo), passes by itself, or its reply
// was lost.
func uncertain(err error) bool {
	return store.LostRace(err) || store.Transient(err) || errors.Is(err, store.ErrOutcomeUnknown)
}

// update changes the row of a tree: it reads the row, applies change, and
// writes the result if nobody else wrote meanwhile; else it begins again. An
// update whose reply was lost is recognised by its id in the row, so that it
// counts once. What change returns as an error ends the update; errUnchanged
// returns the row as it is, without one.
//
// The change is durable when update returns without an error.
func (g *registry) update(ctx context.Context, name string, change func(*row) error) (stored, error) {
	id := g.newID()
	var last error
	for attempt := range registryAttempts {
		if attempt > 0 {
			// Whether a lost reply belonged to a success is looked up before
			// the wait: rows remember only so many updates.
			if s, err := g.read(ctx, name); err == nil && s.carries(id) {
				return s, nil
			}
			if g.pause(ctx, attempt, store.RetryAfter(last)) != nil {
				break
			}
		}
		s, err := g.read(ctx, name)
		if err != nil {
			return stored{}, err
		}
		if s.carries(id) {
			return s, nil
		}
		if err := change(&s.row); errors.Is(err, errUnchanged) {
			return s, nil
		} else if err != nil {
			return stored{}, err
		}
		s.stamp(id)
		if last = g.replace(ctx, &s); last == nil {
			return s, nil
		}
		if !uncertain(last) {
			break
		}
	}
	return stored{}, fmt.Errorf("update %s: %w", rowWhere(name), last)
}

func (g *registry) replace(ctx context.Context, s *stored) error {
	data, err := encodeTreeRow(&s.row)
	if err != nil {
		return err
	}
	etags, err := g.table.Apply(ctx, partitionRegistry, []store.Op{store.Replace(rowKey(s.Name), data, s.etag)})
	if err == nil {
		s.etag = etags[0]
	}
	return err
}

// list returns up to limit rows of trees, from a row key on, in order of names,
// and whether more may follow.
func (g *registry) list(ctx context.Context, from string, limit int) ([]stored, bool, error) {
	q := store.RangeQuery{From: from, To: endOfTrees, Limit: min(limit, store.MaxPageRows)}
	var page store.Page
	err := g.retry(ctx, func() (err error) {
		page, err = g.table.Range(ctx, partitionRegistry, q)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list trees: %w", err)
	}
	rows := make([]stored, 0, len(page.Rows))
	for _, r := range page.Rows {
		name, err := hex.DecodeString(r.Key)
		if err != nil {
			return nil, false, store.Corruptf("registry row %q is not named for a tree", r.Key)
		}
		decoded, err := decodeTreeRow(string(name), r.Data)
		if err != nil {
			return nil, false, err
		}
		rows = append(rows, stored{row: decoded, etag: r.ETag})
	}
	return rows, page.More, nil
}

// newID returns 64 random bits in hex.
func (g *registry) newID() string {
	return fmt.Sprintf("%016x", g.clock.Uint64())
}
