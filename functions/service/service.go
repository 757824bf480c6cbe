// Package service assembles the whole: from stores and options to one HTTP
// handler, with metrics and maintenance. It is what every host builds on.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/heartbeat"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/api"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/timers"
)

// Config is what a Service is made of.
type Config struct {
	// Table and Blobs hold the state. Required.
	Table store.Table
	Blobs store.BlobStore
	// Exclusive says that no other process can have the same stores open: what a
	// process that died held is free then.
	Exclusive bool
	// Clock is the source of time and chance. Nil is the system's.
	Clock clock.Source
	// Options of the service; start from options.Default.
	Options options.Options
	// InternalToken is the bearer token for everything under /internal. Empty
	// closes it to everyone.
	InternalToken string
	// Auth tells who calls. Nil lets everybody do everything but what stands under
	// /internal.
	Auth *auth.Authenticator
	// LosesBodies is as in api.Config.
	LosesBodies bool
	// Logger gets one line a request and a tick. Nil is slog.Default.
	Logger *slog.Logger
	// Instance identifies this process among all that share the store; 0 draws
	// one.
	Instance uint64
	// Telemetry takes spans and figures elsewhere. Nil is nowhere.
	Telemetry *telemetry.Telemetry
	// Version of the program, for the OpenAPI document and the metrics. Empty is
	// what the build says.
	Version string
}

// Service is one instance of Lattice.
type Service struct {
	db      *tree.DB
	api     *api.Server
	options options.Options
	clock   clock.Source
	logger  *slog.Logger
}

// New assembles a service. It does no I/O; the error names every fault of the
// configuration.
func New(cfg Config) (*Service, error) {
	if cfg.Table == nil || cfg.Blobs == nil {
		return nil, errors.New("assemble service: a table and a blob store are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.NewSystem()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = slog.New(telemetry.LogHandler(cfg.Logger.Handler()))
	if cfg.Version == "" {
		cfg.Version = Version()
	}
	if cfg.Instance == 0 {
		cfg.Instance = cfg.Clock.Uint64() | 1
	}
	m := newMetrics(cfg.Clock, &cfg.Options, cfg.Version)
	watch := newStorageWatch(cfg.Clock, m.storage, cfg.Telemetry, cfg.Logger)
	table := meteredTable{cfg.Table, watch}
	db, err := tree.New(tree.Config{
		Table: table, Blobs: meteredBlobs{cfg.Blobs, watch},
		Clock: cfg.Clock, Options: cfg.Options, Instance: cfg.Instance,
		Exclusive: cfg.Exclusive, Splits: m.splits.events(cfg.Logger),
		Trace: cfg.Telemetry.Hook(), Appended: m.appended(cfg.Logger),
	})
	if err != nil {
		return nil, fmt.Errorf("assemble service: %w", err)
	}
	watch.nameOf = db.NameOf
	beats := heartbeat.New(table, cfg.Clock, cfg.Instance)
	s := &Service{db: db, options: cfg.Options, clock: cfg.Clock, logger: cfg.Logger}
	s.api = api.New(api.Config{
		DB: db, Clock: cfg.Clock, Options: cfg.Options, Ticks: ticks(&cfg, db, m, beats), Beats: beats,
		Internal: auth.NewInternal(cfg.InternalToken), Auth: cfg.Auth, LosesBodies: cfg.LosesBodies, Logger: cfg.Logger, Telemetry: cfg.Telemetry,
		Observe: m.observeRequest, ObserveAtomic: m.batches.observe, Metrics: m.handler(), Version: cfg.Version,
	})
	m.watch(s.api)
	m.watchDB(db)
	m.watchTimers(beats)
	cfg.Telemetry.Export(m.registry)
	return s, nil
}

// ticks are the scheduled functions by name.
func ticks(cfg *Config, k timers.Keeper, m *metrics, beats *heartbeat.Book) map[string]api.Tick {
	t := timers.New(timers.Config{
		Keeper: k, Clock: cfg.Clock, Budget: cfg.Options.TickBudget, Grace: cfg.Options.RequestTimeout, Beats: beats,
		Logger: cfg.Logger, Telemetry: cfg.Telemetry, Observe: m.observeTick, Monitored: m.monitored, Finished: m.batches.finished, Collected: m.trees.collected,
	})
	return map[string]api.Tick{
		timers.Checkpoint:   func(ctx context.Context) (any, error) { return t.Checkpoint(ctx) },
		timers.Collect:      func(ctx context.Context) (any, error) { return t.Collect(ctx) },
		timers.Migrations:   func(ctx context.Context) (any, error) { return t.Migrations(ctx) },
		timers.Monitor:      func(ctx context.Context) (any, error) { return t.Monitor(ctx) },
		timers.Transactions: func(ctx context.Context) (any, error) { return t.Transactions(ctx) },
	}
}

// Handler returns the root handler. Nothing in front of it may clean or decode
// paths.
func (s *Service) Handler() http.Handler { return s.api }

// Document returns the OpenAPI document of the interface, as JSON.
func (s *Service) Document() json.RawMessage { return s.api.Document() }

// DB returns the trees, for hosts that work on them without HTTP.
func (s *Service) DB() *tree.DB { return s.db }
