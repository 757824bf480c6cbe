package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// Waits between attempts double from the first to the longest.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
	// strangerWait is how long a server that never answered is tried: more likely
	// the address is wrong.
	strangerWait = 3 * time.Second
)

// retry repeats what fails for a reason that passes: a server that is loading,
// busy or away. It ends after Options.RetryFor with the last error.
func (s *Source) retry(ctx context.Context, op func() error) error {
	start := time.Now()
	limit := s.opts.RetryFor
	if !s.answered {
		limit = min(limit, strangerWait)
	}
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := op()
		if _, ok := reply(err); ok || err == nil {
			s.answered, limit = true, s.opts.RetryFor
		}
		if err == nil || !transient(err) || ctx.Err() != nil {
			if ctx.Err() != nil {
				return source.Ended(ctx)
			}
			return err
		}
		if wait = min(wait, limit-time.Since(start)); wait <= 0 {
			return err
		}
		if s.opts.OnWait != nil {
			s.opts.OnWait(wait, s.explain(err))
		}
		if err := source.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// restart is source.ErrRestart with its reason.
func restart(format string, args ...any) error {
	return fmt.Errorf("%w: %s", source.ErrRestart, fmt.Sprintf(format, args...))
}

func isRestart(err error) bool { return errors.Is(err, source.ErrRestart) }
