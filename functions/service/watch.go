package service

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/telemetry"
)

// storageWatch tells of every call of the storage: in figures, in spans, and the
// log of those that somebody should look into.
type storageWatch struct {
	clock     clock.Source
	metrics   *storageMetrics
	telemetry *telemetry.Telemetry
	logger    *slog.Logger
	// nameOf finds the name of a tree by its id; empty is unknown.
	nameOf func(treeID string) string
	// lines bounds what is logged, by outcome.
	lines map[string]*pace
}

// alarming are the outcomes that are logged, and at which level. The others are
// normal, or end in an error that is.
var alarming = map[string]slog.Level{
	"throttled": slog.LevelWarn, "unknown": slog.LevelWarn, "corrupt": slog.LevelError,
}

// faults are the outcomes that are faults of the storage.
var faults = []string{"throttled", "unavailable", "unknown", "too_large", "invalid", "corrupt", "error"}

func newStorageWatch(c clock.Source, m *storageMetrics, t *telemetry.Telemetry, logger *slog.Logger) *storageWatch {
	w := &storageWatch{
		clock: c, metrics: m, telemetry: t, logger: logger,
		nameOf: func(string) string { return "" }, lines: map[string]*pace{},
	}
	for outcome := range alarming {
		w.lines[outcome] = &pace{}
	}
	return w
}

// call is one call of the storage.
type call struct {
	w     *storageWatch
	ctx   context.Context
	kind  string
	where string
	start time.Duration
	span  telemetry.StorageSpan
}

// begin starts the watch for one call; where names the partition or the blob, or
// how its name begins.
func (w *storageWatch) begin(ctx context.Context, kind, where string) (context.Context, call) {
	spanned, span := w.telemetry.StartStorage(ctx, kind)
	if span.Recording() {
		if _, id, ok := shardOf(where); ok {
			span.AtShard(uint32(id))
		}
	}
	return spanned, call{w: w, ctx: spanned, kind: kind, where: where, start: w.clock.Now().Mono, span: span}
}

// shardOf takes the name of a partition or of a blob apart.
func shardOf(where string) (treeID string, id keyspace.ShardID, ok bool) {
	if treeID, id, ok = tree.ParsePartition(where); ok {
		return treeID, id, true
	}
	return tree.FindShard(where)
}

// end is the result of the call.
func (c *call) end(bytes int, err error) {
	outcome, took := outcomeOf(err), c.w.clock.Now().Mono-c.start
	c.w.metrics.observe(c.kind, outcome, took, bytes, err)
	if level, ok := alarming[outcome]; ok {
		c.log(level, outcome, took, err)
	}
	c.span.End(bytes, outcome, slices.Contains(faults, outcome))
}

// log writes the line of an outcome that somebody should know of. The error names
// rows and blobs, and never values.
func (c *call) log(level slog.Level, outcome string, took time.Duration, err error) {
	skipped, due := c.w.lines[outcome].due(c.w.clock.Now().Mono)
	if !due {
		return
	}
	attrs := []slog.Attr{
		slog.String("kind", c.kind), slog.String("outcome", outcome), slog.Duration("took", took),
		slog.String("error", err.Error()), slog.Int("notTold", skipped),
	}
	if treeID, id, ok := shardOf(c.where); ok {
		attrs = append(attrs, slog.Int64(telemetry.Shard, int64(id)))
		if name := c.w.nameOf(treeID); name != "" {
			attrs = append(attrs, slog.String(telemetry.Tree, name))
		}
	}
	c.w.logger.LogAttrs(c.ctx, level, "storage operation", attrs...)
}

// linePause is the time between two lines of one outcome.
const linePause = time.Second

// pace lets one line through at a time, and counts the others.
type pace struct {
	mu      sync.Mutex
	begun   bool
	next    time.Duration
	skipped int
}

func (p *pace) due(now time.Duration) (skipped int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun && now < p.next {
		p.skipped++
		return 0, false
	}
	skipped, p.skipped, p.next, p.begun = p.skipped, 0, now+linePause, true
	return skipped, true
}
