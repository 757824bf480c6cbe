package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/memory"
)

// deaf is a listener to which nobody gets through.
type deaf struct {
	closed chan struct{}
	once   sync.Once
}

func (d *deaf) Accept() (net.Conn, error) {
	<-d.closed
	return nil, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *deaf) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// The schedule does not depend on a connection that clients may have taken.
func TestTicksRunWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := &settings{}
		s.Options, s.InternalToken = options.Default(), "secret"
		svc, err := service.New(service.Config{
			Table: memory.New(memory.Options{}).Table(), Blobs: memory.New(memory.Options{}).Blobs(),
			Options: s.Options, InternalToken: s.InternalToken, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- serve(ctx, s, svc, &deaf{closed: make(chan struct{})}, nil, logger) }()
		time.Sleep(5 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, timer := range tick.Names() {
			if !strings.Contains(log.String(), `msg="timer ran" timer=`+timer) {
				t.Errorf("%s did not run", timer)
			}
		}
		if strings.Contains(log.String(), "level=WARN") || strings.Contains(log.String(), "secret") {
			t.Errorf("the log is\n%s", log.String())
		}
	})
}
