package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/heartbeat"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/telemetry"
)

// Bounds that are no options: they follow from what the contract lets one
// request hold.
const (
	// DefaultMaxBatchGetBytes bounds the keys and values of one batch-get.
	DefaultMaxBatchGetBytes = 64 << 20
)

// Exchange describes a finished request, for metrics.
type Exchange struct {
	Method string
	// Route is the path template, "unmatched" if there was none.
	Route    string
	Status   int
	Duration time.Duration
	// Received and Sent count the bytes of the bodies.
	Received, Sent int64
	// Code is why the request failed, empty if it did not, or if its client went
	// away first. A stream that broke off has one beside its status of 200.
	Code Code
	// OutcomeUnknown says that nobody can tell whether the write was applied;
	// Corrupt that stored data could not be read.
	OutcomeUnknown, Corrupt bool
}

// Tick runs one scheduled function by name and returns what to answer: any
// value that encodes as JSON.
type Tick func(ctx context.Context) (any, error)

// Beats tells what is known of the scheduled functions; a heartbeat.Book does.
type Beats interface {
	Read(ctx context.Context) ([]heartbeat.Beat, error)
}

// Config is what a Server needs.
type Config struct {
	// DB holds the trees.
	DB *tree.DB
	// Clock is the source of time and of request ids.
	Clock clock.Source
	// Options are the settings of the service, valid.
	Options options.Options
	// MaxBatchGetBytes replaces the default, and MaxBufferedBytes the option, unless
	// zero.
	MaxBatchGetBytes, MaxBufferedBytes int64
	// Ticks are served at /internal/timers/{name}.
	Ticks map[string]Tick
	// Beats are the heartbeats of the scheduled functions.
	Beats Beats
	// Internal guards everything under /internal.
	Internal auth.Internal
	// Auth tells who calls. Nil lets everybody do everything but what stands under
	// /internal.
	Auth *auth.Authenticator
	// Logger gets one line a request. Nil is slog.Default.
	Logger *slog.Logger
	// Telemetry makes the spans of requests. Nil is none.
	Telemetry *telemetry.Telemetry
	// Observe is told of every request. Nil is silence.
	Observe func(Exchange)
	// ObserveAtomic is told of every atomic batch that reached a tree: committed,
	// unknown, or the code for which nothing was written. Nil is silence.
	ObserveAtomic func(outcome string)
	// Metrics answers /metrics. Nil leaves the route out.
	Metrics http.Handler
	// LosesBodies says that what stands in front hands on a body without a
	// Content-Length as an empty one. Then an empty value or an empty load is
	// refused unless a Content-Digest vouches for it.
	LosesBodies bool
	// Version is the version of the service in the OpenAPI document.
	Version string
}

// Server is the HTTP interface; it is an http.Handler for the root of a host.
type Server struct {
	cfg      Config
	db       database
	opts     options.Options
	router   *mux.Router
	document []byte

	active   atomic.Int64
	buffered atomic.Int64
}

// New returns the handler of the whole interface.
func New(cfg Config) *Server { return newServer(cfg, trees{cfg.DB}) }

func newServer(cfg Config, db database) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Exchange) {}
	}
	if cfg.ObserveAtomic == nil {
		cfg.ObserveAtomic = func(string) {}
	}
	if cfg.MaxBatchGetBytes == 0 {
		cfg.MaxBatchGetBytes = DefaultMaxBatchGetBytes
	}
	if cfg.MaxBufferedBytes == 0 {
		cfg.MaxBufferedBytes = cfg.Options.MaxBufferedBytes
	}
	s := &Server{cfg: cfg, db: db, opts: cfg.Options}
	routes := s.routes()
	s.document = s.openAPI(routes)
	s.router = s.newRouter(routes)
	return s
}

// InFlight returns the number of requests that count against
// MaxConcurrentRequests now.
func (s *Server) InFlight() int64 { return s.active.Load() }
