package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/latticekv/lattice/functions/telemetry"
)

// unmatched is the route of a request that no template fits.
const unmatched = "unmatched"

// newRouter registers every route. Paths are matched as they were sent:
// encoded, and without any cleaning, for a key may be "..", "//" or "a%2Fb".
func (s *Server) newRouter(routes []route) *mux.Router {
	m := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, rt := range routes {
		m.Path(muxTemplate(rt.path)).Handler(s.serveRoute(rt))
	}
	m.PathPrefix("/internal").HandlerFunc(s.serveUnknownInternal)
	m.NotFoundHandler = http.HandlerFunc(s.serveUnknown)
	return m
}

// muxTemplate lets a key segment be empty, so that an empty key is told apart
// from a path that does not exist.
func muxTemplate(path string) string {
	return strings.ReplaceAll(path, "{key}", "{key:[^/]*}")
}

// serveRoute picks the operation by method.
func (s *Server) serveRoute(rt route) http.Handler {
	byMethod := map[string]*operation{}
	for i := range rt.ops {
		op := &rt.ops[i]
		byMethod[op.method] = op
		if op.method == http.MethodGet {
			byMethod[http.MethodHead] = op
		}
	}
	allow := allowed(byMethod)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := &request{Request: r, route: rt.path}
		noteRequest(w, req)
		op, ok := byMethod[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			s.fail(w, req, failf(CodeMethodNotAllowed, "the methods are %s", allow))
			return
		}
		if err := s.serveOperation(w, req, op); err != nil {
			s.fail(w, req, err)
		}
	})
}

func allowed(byMethod map[string]*operation) string {
	var methods []string
	for m := range byMethod {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// serveOperation checks credential and capacity, then the request's form and
// whether its tree is the caller's, then runs the handler under the time limit.
func (s *Server) serveOperation(w http.ResponseWriter, r *request, op *operation) error {
	leave, err := s.admit(r, op.access)
	if err != nil {
		return err
	}
	defer leave()
	if !op.exempt {
		exit, err := s.enter()
		if err != nil {
			return err
		}
		defer exit()
	}
	if err := r.parse(op); err != nil {
		return err
	}
	if err := r.checkTree(); err != nil {
		return err
	}
	if r.tree != "" {
		r.Request = r.WithContext(telemetry.With(r.Context(), slog.String(telemetry.Tree, r.tree)))
	}
	if !op.untimed {
		ctx, cancel := context.WithTimeout(r.Context(), s.opts.RequestTimeout)
		defer cancel()
		r.Request = r.WithContext(ctx)
	}
	defer r.releaseBody(s)
	return op.handle(w, r)
}

// enter counts a request in, or refuses it when too many are in work.
func (s *Server) enter() (exit func(), err error) {
	exit = func() { s.active.Add(-1) }
	if s.active.Add(1) > int64(s.opts.MaxConcurrentRequests) {
		exit()
		return nil, failf(CodeUnavailable, "more than %d requests are in work; try again", s.opts.MaxConcurrentRequests)
	}
	return exit, nil
}

func (s *Server) serveUnknown(w http.ResponseWriter, r *http.Request) {
	s.fail(w, &request{Request: r}, failf(CodeRouteNotFound, "no resource has this path"))
}

// serveUnknownInternal tells a caller without the credential nothing about
// what exists under /internal.
func (s *Server) serveUnknownInternal(w http.ResponseWriter, r *http.Request) {
	if !underInternal(r.URL.EscapedPath()) {
		s.serveUnknown(w, r)
		return
	}
	req := &request{Request: r}
	leave, err := s.admit(req, onlyInternal)
	if err != nil {
		s.fail(w, req, err)
		return
	}
	defer leave()
	s.serveUnknown(w, r)
}

func underInternal(path string) bool {
	return path == "/internal" || strings.HasPrefix(path, "/internal/")
}

// fail answers an error, with the tree and key it concerns, and leaves it for
// the log line.
func (s *Server) fail(w http.ResponseWriter, r *request, err error) {
	noteError(w, err)
	if headerSent(w) {
		return
	}
	p := classify(err)
	p.Tree = r.tree
	if p.Key == "" && r.key != "" {
		p.Key = clip(r.key, maxProblemKeyBytes)
	}
	writeProblem(w, r.Request, p)
}
