package client_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/hosts/funcshost"
	"github.com/latticekv/lattice/tests/running"
)

// serve runs the real service over memory and returns its address.
func serve(t *testing.T, losesBodies bool) string {
	t.Helper()
	m := memory.New(memory.Options{})
	svc, err := service.New(service.Config{
		Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), Logger: slog.New(slog.DiscardHandler), LosesBodies: losesBodies,
	})
	must(t, err)
	srv := httptest.NewServer(svc.Handler())
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestAgainstService runs the suite against the real service over memory.
func TestAgainstService(t *testing.T) {
	suite(t, func(t *testing.T) string { return serve(t, false) })
}

// behindFunctionsHost runs the service behind a host that rewrites paths and
// loses bodies.
func behindFunctionsHost(t *testing.T) string {
	address := strings.TrimPrefix(serve(t, true), "http://")
	return funcshost.Before(t, funcshost.Options{App: running.Root(t) + "/infra/azurefunc"}, address)
}

// TestAgainstFunctionsHost runs the suite through the host of Azure Functions,
// but for the loads in one request, which it cannot take.
func TestAgainstFunctionsHost(t *testing.T) {
	suite(t, behindFunctionsHost, "bulk load", "bulk load refusals", "bulk stream", "bulk expiry")
}

// TestLoadThatGetsLostIsRefused: it must not pass for a load of nothing.
func TestLoadThatGetsLostIsRefused(t *testing.T) {
	c, err := client.New(behindFunctionsHost(t), client.Options{})
	must(t, err)
	t.Cleanup(c.CloseIdle)
	tree := c.Tree("t")
	_, err = tree.BulkLoad(t.Context(), of("a", "b"), client.BulkOptions{})
	wantErr(t, err, client.ErrLengthRequired)
	_, err = tree.BulkStream(t.Context(), of("a", "b"), client.BulkOptions{})
	wantErr(t, err, client.ErrLengthRequired)
	_, err = tree.Info(t.Context())
	wantErr(t, err, client.ErrTreeNotFound)
}
