package timers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/heartbeat"
)

// Recorder keeps heartbeats; a heartbeat.Book is one.
type Recorder interface {
	Record(ctx context.Context, r heartbeat.Run) error
}

// beatTimeout is how long a tick that is over waits for its heartbeat.
const beatTimeout = 2 * time.Second

// beat records a tick. One that its caller has cut off is not recorded: nothing
// is known of it but that it did not succeed, which the age of the last success
// says.
func (t *Timers) beat(ctx context.Context, name string, start clock.Instant, o *outcome, err error) {
	if t.cfg.Beats == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	r := heartbeat.Run{Timer: name, Started: start, Failed: o.failed, Err: err, Success: err == nil}
	if err == nil && len(o.failures) > 0 {
		f := &o.failures[0]
		r.Err = fmt.Errorf("tree %q shard %d: %w", f.Tree, f.Shard, f.Err)
	}
	if err := t.cfg.Beats.Record(ctx, r); err != nil {
		t.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "heartbeat was not recorded", slog.String("timer", name), slog.String("error", err.Error()))
	}
}
