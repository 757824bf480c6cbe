package auth

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// handClock is a clock that a test moves.
type handClock struct {
	mu  sync.Mutex
	now clock.Instant
}

func newHandClock() *handClock {
	return &handClock{now: clock.Instant{Wall: time.Now().UnixNano()}}
}

func (h *handClock) Now() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *handClock) Sleep(ctx context.Context, d time.Duration) error {
	h.advance(d)
	return context.Cause(ctx)
}

func (h *handClock) Uint64() uint64 { return 4 }

// advance moves both clocks.
func (h *handClock) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Wall += int64(d)
	h.now.Mono += d
}

// jump moves the wall clock alone, as a frozen process sees it.
func (h *handClock) jump(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Wall += int64(d)
}

// logged is a logger and what it wrote.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
