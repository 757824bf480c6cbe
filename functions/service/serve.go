package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// readHeaderTimeout bounds the time for a request's header, where RequestTimeout
	// is not shorter.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout closes a connection without requests.
	idleTimeout = 2 * time.Minute
	// releaseTimeout bounds the return of leases at the end; one that could not
	// be given back expires.
	releaseTimeout = 5 * time.Second
)

// Serve answers connections of a listener until ctx ends, and closes it. Then
// requests in work get ShutdownGracePeriod to finish; what still runs is
// cancelled and cut off, and leases are given back. It returns nil after an
// orderly end, which includes a cut, and otherwise why it stopped.
func (s *Service) Serve(ctx context.Context, l net.Listener) error {
	return s.serve(ctx, l, nil, s.api)
}

// ServeTLS is ServeHandler by HTTPS, as the configuration says. It needs a
// certificate.
func (s *Service) ServeTLS(ctx context.Context, l net.Listener, config *tls.Config, front http.Handler) error {
	return s.serve(ctx, l, config, front)
}

// ServeHandler is Serve for a host that stands a handler of its own in front
// of the service's.
func (s *Service) ServeHandler(ctx context.Context, l net.Listener, front http.Handler) error {
	return s.serve(ctx, l, nil, front)
}

// serve answers by HTTPS if there is a configuration for it.
func (s *Service) serve(ctx context.Context, l net.Listener, secure *tls.Config, front http.Handler) error {
	// Requests outlive ctx for the grace period, and not longer.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer s.release(ctx)
	header := min(readHeaderTimeout, s.options.RequestTimeout)
	limited := limitConnections(l, s.options.MaxConnections, header, s.clock, s.logger)
	l = limited
	if secure != nil {
		l = tls.NewListener(limited, secure)
	}
	server := &http.Server{
		Handler:           front,
		ReadHeaderTimeout: header,
		IdleTimeout:       idleTimeout,
		// The handler refuses larger ones in its own words; this is the stop
		// behind it.
		MaxHeaderBytes: int(2 * s.options.MaxHeaderBytes),
		BaseContext:    func(net.Listener) context.Context { return base },
		ConnState:      limited.state,
		ErrorLog:       log.New(serverLog{s.logger}, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return s.shutdown(ctx, server, cut)
}

// serverLog takes the lines of an http.Server. Handshakes that fail are no
// warning: whoever connects makes one, and so does an idle connection that gave
// way.
type serverLog struct{ logger *slog.Logger }

// Write implements io.Writer.
func (s serverLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	s.logger.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

// release gives leases back, for the sake of other processes.
func (s *Service) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := s.db.Close(ctx); err != nil {
		s.logger.Warn("leases were not given back; they expire", "error", err)
	}
}

func (s *Service) shutdown(ctx context.Context, server *http.Server, cut func()) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.ShutdownGracePeriod)
	defer cancel()
	err := server.Shutdown(grace)
	if err == nil {
		return nil
	}
	cut()
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	if err := server.Close(); err != nil {
		return fmt.Errorf("close what still runs: %w", err)
	}
	return nil
}
