package split

import (
	"context"
	"fmt"
	"strings"

	"github.com/latticekv/lattice/core/store"
)

// Survey is everything that is recorded about the splits of a tree.
type Survey struct {
	// Active are the splits in flight, in order of sources.
	Active []*State
	// Done are the latest that are over, newest first.
	Done []*State
	// Monitor is what the monitor remembers; nil before its first pass.
	Monitor *MonitorState
	// Reshard is the reshard that runs, or nil.
	Reshard *Reshard
}

// Survey reads what is recorded about the splits of a tree: one query.
func (c *Coordinator) Survey(ctx context.Context, treeID string) (Survey, error) {
	return rows{c.Table}.survey(ctx, treeID)
}

// List returns the splits of a tree in flight, and the latest that are over.
func (c *Coordinator) List(ctx context.Context, treeID string) (active, done []*State, err error) {
	s, err := c.Survey(ctx, treeID)
	return s.Active, s.Done, err
}

// InFlight returns the splits of a tree in flight. It reads no more than them:
// many instances may ask at once, when slots are sealed that many want.
func (c *Coordinator) InFlight(ctx context.Context, treeID string) ([]*State, error) {
	x := surveyor{treeID: treeID}
	// What follows the prefix is hexadecimal.
	q := store.RangeQuery{From: activePrefix, To: activePrefix + "~"}
	err := x.read(ctx, c.Table, q)
	return x.Active, err
}

// surveyor gathers a survey row by row.
type surveyor struct {
	Survey
	treeID string
	// old are deletions of history that nobody wants any more.
	old []store.Op
}

// survey reads the partition of a tree, and deletes what history is too old.
func (r rows) survey(ctx context.Context, treeID string) (Survey, error) {
	x := surveyor{treeID: treeID}
	if err := x.read(ctx, r.table, store.RangeQuery{}); err != nil {
		return Survey{}, err
	}
	if len(x.old) > 0 {
		// Losing this to another reader, or altogether, does no harm.
		_, _ = r.table.Apply(ctx, partition(treeID), x.old)
	}
	return x.Survey, nil
}

// read adds the rows of a query, page by page.
func (x *surveyor) read(ctx context.Context, table store.Table, q store.RangeQuery) error {
	for {
		page, err := table.Range(ctx, partition(x.treeID), q)
		if err != nil {
			return fmt.Errorf("list splits: %w", err)
		}
		for _, row := range page.Rows {
			if err := x.add(row); err != nil {
				return err
			}
		}
		if !page.More || len(page.Rows) == 0 {
			return nil
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
}

func (x *surveyor) add(row store.Row) (err error) {
	switch {
	case row.Key == monitorKey:
		x.Monitor, err = decodeMonitor(x.treeID, row)
	case row.Key == reshardKey:
		x.Reshard, err = decodeReshard(x.treeID, row)
	case strings.HasPrefix(row.Key, activePrefix):
		x.Active, err = x.state(x.Active, row)
	case strings.HasPrefix(row.Key, historyPrefix) && len(x.Done) < keptHistory:
		x.Done, err = x.state(x.Done, row)
	case strings.HasPrefix(row.Key, historyPrefix) && len(x.old) < store.MaxTransactionOps:
		x.old = append(x.old, store.Delete(row.Key, row.ETag))
	}
	return err
}

func (x *surveyor) state(to []*State, row store.Row) ([]*State, error) {
	s, err := decodeState(x.treeID, row)
	if err != nil {
		return nil, err
	}
	return append(to, s), nil
}
