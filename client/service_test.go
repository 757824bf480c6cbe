package client_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
)

// TestAgainstService runs the suite against the real service over memory.
func TestAgainstService(t *testing.T) {
	suite(t, func(t *testing.T) string {
		m := memory.New(memory.Options{})
		svc, err := service.New(service.Config{
			Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(svc.Handler())
		t.Cleanup(srv.Close)
		return srv.URL
	})
}
