package load

import (
	"context"
	"sync"
	"time"
)

// gate holds back all workers for a while.
type gate struct {
	mu    sync.Mutex
	until time.Time
}

// close shuts the gate for d from now, or for longer if it is shut already.
func (g *gate) close(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := time.Now().Add(d); at.After(g.until) {
		g.until = at
	}
}

// wait waits for the gate to open and reports whether ctx outlived that.
func (g *gate) wait(ctx context.Context) bool {
	for {
		g.mu.Lock()
		d := time.Until(g.until)
		g.mu.Unlock()
		if d <= 0 {
			return ctx.Err() == nil
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}
