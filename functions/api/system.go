package api

import (
	"net/http"
)

type statusBody struct {
	Status string `json:"status"`
}

// healthz answers as long as the process can.
func (s *Server) healthz(w http.ResponseWriter, r *request) error {
	return writeJSON(w, r, http.StatusOK, statusBody{"ok"})
}

// readyz answers whether the storage does.
func (s *Server) readyz(w http.ResponseWriter, r *request) error {
	if err := s.db.Ready(r.Context()); err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, statusBody{"ready"})
}

func (s *Server) metrics(w http.ResponseWriter, r *request) error {
	s.cfg.Metrics.ServeHTTP(w, r.Request)
	return nil
}

func (s *Server) openAPIDocument(w http.ResponseWriter, r *request) error {
	return writeBody(w, r, http.StatusOK, jsonType, s.document)
}

// runTick returns the handler of one scheduled function. The tick bounds its
// own time; a body, which some schedulers send, says nothing and is not read.
func runTick(tick Tick) func(http.ResponseWriter, *request) error {
	return func(w http.ResponseWriter, r *request) error {
		done, err := tick(r.Context())
		if err != nil {
			return err
		}
		return writeJSON(w, r, http.StatusOK, done)
	}
}
