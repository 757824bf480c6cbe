package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// Order says who brings the entries in order.
type Order string

// The orders.
const (
	// OrderSort sorts the entries on disk.
	OrderSort Order = "sort"
	// OrderSource relies on the source to yield ascending keys, and checks it.
	OrderSource Order = "source"
)

// Target is the tree to fill; a *client.Tree is one. Its client must not repeat
// calls by itself: the migration does, and says so.
type Target interface {
	Info(ctx context.Context) (client.TreeInfo, error)
	Count(ctx context.Context, r client.Range, o client.CountOptions) (client.Count, error)
	Diagnostics(ctx context.Context, deep bool) (client.Diagnostics, error)
	BeginBulkLoad(ctx context.Context, operationID string) (client.BulkState, bool, error)
	AppendBulkLoad(ctx context.Context, operationID string, chunk int64, body []byte, o client.BulkOptions) (client.BulkAck, error)
	CommitBulkLoad(ctx context.Context, operationID string) (client.BulkState, error)
	BulkLoadState(ctx context.Context, operationID string) (client.BulkState, error)
	AbortBulkLoad(ctx context.Context, operationID string) (client.BulkState, error)
}

// The defaults.
const (
	DefaultChunkEntries    = 10_000
	DefaultChunkBytes      = 4 << 20
	DefaultRetryFor        = 5 * time.Minute
	DefaultCheckpointEvery = 15 * time.Second
	// firstContact is how long the first answer of the service may take: waiting
	// does not help where nothing runs.
	firstContact = 10 * time.Second
	// maxRestarts bounds how often one run begins the reading anew.
	maxRestarts = 100
)

// Options configure a migration. Dir, Source, Info, Target, TargetName, Tree
// and Mapper must be set; other zero values stand for the defaults.
type Options struct {
	// Dir is the folder of the state.
	Dir    string
	Source source.Source
	// Info is what Source.Inspect said.
	Info   source.Info
	Target Target
	// TargetName names the tree and its service, without secrets; Tree is the
	// name of the tree alone.
	TargetName, Tree string
	// Mapper makes the mapper; times to live count from start.
	Mapper func(start time.Time) (*mapping.Mapper, error)
	// Shape are the options, by flag, that decide what keys and values are. A
	// folder that was begun with others is refused.
	Shape map[string]string
	Order Order
	// ChunkEntries and ChunkBytes bound a chunk; one entry is always allowed.
	ChunkEntries, ChunkBytes int
	// MaxRejects is how many records may be rejected before the migration stops
	// short of loading; negative is any number.
	MaxRejects int64
	// Rate bounds the records read per second; 0 does not.
	Rate float64
	// RetryFor is how long a service that is busy or gone is waited for.
	RetryFor time.Duration
	// CheckpointEvery is how much reading time a crash may cost.
	CheckpointEvery time.Duration
	// Restart discards what the folder holds of an earlier run.
	Restart bool
	Spool   spool.Options
	// Verify compares the tree with what was loaded; nil does not.
	Verify func(ctx context.Context, v *Verification) (Verdict, error)
	// Stats can be watched while the migration runs.
	Stats *Stats
	// Notify is told what happens, from the goroutine of Run. It must not block.
	Notify func(Event)
	// Step is told of each change on the disk; for tests.
	Step durable.Step
}

func (o Options) withDefaults() (Options, error) {
	o.Order = cmp.Or(o.Order, OrderSort)
	o.ChunkEntries = cmp.Or(o.ChunkEntries, DefaultChunkEntries)
	o.ChunkBytes = cmp.Or(o.ChunkBytes, DefaultChunkBytes)
	o.RetryFor = cmp.Or(o.RetryFor, DefaultRetryFor)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, DefaultCheckpointEvery)
	if o.Stats == nil {
		o.Stats = &Stats{}
	}
	if o.Notify == nil {
		o.Notify = func(Event) {}
	}
	switch {
	case o.Order != OrderSort && o.Order != OrderSource:
		return o, fmt.Errorf("the order is sort or source, not %q", o.Order)
	case o.ChunkEntries < 1 || o.ChunkBytes < 1:
		return o, errors.New("a chunk holds at least one entry and one byte")
	case o.Rate < 0 || o.RetryFor < 0 || o.CheckpointEvery < 0:
		return o, errors.New("rates and durations are not negative")
	}
	return o, nil
}
