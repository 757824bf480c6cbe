package service

import (
	"container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// fullPause is the time between two lines that tell of a full house.
const fullPause = time.Minute

// limitedListener lets no more connections be open than its limit. Each costs
// memory before anybody knows who is at the other end. When it is full, a new
// one takes the place of the one that has been idle longest, which is closed;
// while none is idle, Accept holds the new one until a place is free, and what
// comes on top waits in the queue of the system, which is bounded.
//
// It stands below TLS, so that an http.Server sees the connections of that. The
// server has to tell it of changes: see state.
type limitedListener struct {
	net.Listener
	most int
	// header is how long a request may take from its first byte to the end of its
	// header.
	header time.Duration
	clock  clock.Source
	logger *slog.Logger

	mu sync.Mutex
	// changed says that a place is free, a connection idle, or the end there.
	changed sync.Cond
	closed  bool
	open    int
	// idle are those of the open *limitedConn on which no request is under way,
	// longest first.
	idle list.List
	// warn is when a full house may be told of again, by the monotonic clock; skipped
	// how often it was not.
	warn    time.Duration
	skipped int
}

func limitConnections(l net.Listener, most int, header time.Duration, c clock.Source, logger *slog.Logger) *limitedListener {
	limited := &limitedListener{Listener: l, most: most, header: header, clock: c, logger: logger, warn: c.Now().Mono}
	limited.changed.L = &limited.mu
	return limited
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: conn, of: l}
	displaced, ok := l.admit(c)
	if displaced != nil {
		// It has no request that could be lost; the error is of no use to anybody.
		_ = displaced.Conn.Close()
	}
	if !ok {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// admit gives a connection a place, when there is one, and returns the one that
// had it. It is false when the listener ends first.
func (l *limitedListener) admit(c *limitedConn) (displaced *limitedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		l.full()
	}
	for l.open >= l.most && l.idle.Len() == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, false
	}
	if l.open >= l.most {
		displaced = l.idle.Front().Value.(*limitedConn)
		displaced.leave()
	}
	l.open++
	c.idle = l.idle.PushBack(c)
	return displaced, true
}

// full tells the log, a line a minute at most.
func (l *limitedListener) full() {
	now := l.clock.Now().Mono
	if now < l.warn {
		l.skipped++
		return
	}
	l.logger.Warn("as many connections as may be are open: a new one ends the one that is idle longest, or waits", "limit", l.most, "notTold", l.skipped)
	l.warn, l.skipped = now+fullPause, 0
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.changed.Broadcast()
	return l.Listener.Close()
}

// state takes over what becomes of a connection, as an http.Server tells it: it
// is idle between requests.
func (l *limitedListener) state(conn net.Conn, s http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	switch s {
	case http.StateIdle:
		c.rest()
	case http.StateActive, http.StateHijacked:
		c.work()
	}
}

// limitedConn has a place until it is closed or displaced. Its fields are under
// the lock of its listener.
type limitedConn struct {
	net.Conn
	of *limitedListener
	// idle is where it stands among the idle ones, nil while it is not.
	idle *list.Element
	left bool
}

// Read implements net.Conn. A connection on which something comes is not idle:
// the server learns that only when it has read a header. Until then it waits as
// long as for a connection that is idle, unless it has the first bytes of a
// request; so the time for a header is set here.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.work() {
		// If it fails, so does the next read.
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.of.header))
	}
	return n, err
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the direction to the other side, so that it can read the last
// answer. A connection that cannot do so is left as it is.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// leave gives the place back, once. The lock is held.
func (c *limitedConn) leave() {
	if c.left {
		return
	}
	c.left = true
	c.of.open--
	c.busy()
	c.of.changed.Signal()
}

// busy takes it from the idle ones. The lock is held.
func (c *limitedConn) busy() {
	if c.idle != nil {
		c.of.idle.Remove(c.idle)
		c.idle = nil
	}
}

// work says that it is not idle, and whether it was.
func (c *limitedConn) work() (idle bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	idle = c.idle != nil
	c.busy()
	return idle
}

func (c *limitedConn) rest() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.left || c.idle != nil {
		return
	}
	c.idle = c.of.idle.PushBack(c)
	c.of.changed.Signal()
}
