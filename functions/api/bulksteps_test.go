package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// bulkServer is a server without a network, so that time can be virtual.
func bulkServer() (*Server, *fakeDB) {
	db := newFakeDB()
	return newServer(Config{Clock: db.clock, Options: testOptions(), Logger: slog.New(slog.DiscardHandler), MaxBufferedBytes: 1 << 30}, db), db
}

func post(s *Server, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Content-Type", ndjsonType)
	s.ServeHTTP(w, r)
	return w
}

// TestStepsOfALoadAreBounded: work that does not end is cut off, and the more
// has been sent the later.
func TestStepsOfALoadAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		call, path, body string
		want             time.Duration
	}{
		"before the first entry": {"bulkLoad", bulkOnce, lines("a"), 150 * time.Second},
		"between two entries":    {"entry", bulkStream, lines("a", "b"), 150 * time.Second},
		"at the end":             {"apply", bulkOnce, lines("a"), 150 * time.Second},
		"at the end of much":     {"apply", bulkOnce, lines("a" + strings.Repeat("x", 16<<20)), 210 * time.Second},
		"chunk":                  {"append", loads + "x/chunks/0", lines("a"), 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, db := bulkServer()
				db.create("t", 4, nil)
				db.setHook(func(ctx context.Context, call string) {
					if call == tc.call {
						<-ctx.Done()
					}
				})
				start := time.Now()
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body))
				if tc.call == "append" {
					r.Method = http.MethodPut
				}
				r.Header.Set("Content-Type", ndjsonType)
				s.ServeHTTP(w, r)
				if took := time.Since(start); w.Code != http.StatusServiceUnavailable || took != tc.want {
					t.Errorf("%d after %s, want %s; %s", w.Code, took, tc.want, w.Body)
				}
			})
		})
	}
}

// TestSlowSourceIsWaitedFor: the time until entries come is no part of a step.
func TestSlowSourceIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := bulkServer()
		r, w := io.Pipe()
		go func() {
			for _, key := range []string{"a", "b", "c"} {
				timer := time.NewTimer(time.Hour)
				<-timer.C
				_, _ = io.WriteString(w, lines(key))
			}
			_ = w.Close()
		}()
		got := post(s, bulkStream, r)
		var body loadedBody
		if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil || got.Code != http.StatusOK || body.AcceptedEntryCount != 3 {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

// TestBodyShorterThanAnnouncedByAnyHost: not every host notices by itself.
func TestBodyShorterThanAnnouncedByAnyHost(t *testing.T) {
	for _, path := range []string{bulkOnce, bulkStream} {
		for _, length := range []int64{1, int64(len(lines("a"))) - 1, int64(len(lines("a"))) + 1} {
			s, db := bulkServer()
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(lines("a")))
			r.Header.Set("Content-Type", ndjsonType)
			r.ContentLength = length
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusBadRequest || db.trees["t"] != nil && len(db.trees["t"].items) > 0 {
				t.Errorf("%s, length %d: %d %s", path, length, w.Code, w.Body)
			}
		}
	}
}

// TestMemoryForEntriesIsBounded counts what a body and its entries take, and
// that it is given back.
func TestMemoryForEntriesIsBounded(t *testing.T) {
	long := `{"key":"a","text":"` + strings.Repeat("x", 300<<10) + `"}`
	for name, tc := range map[string]struct{ path, kind, body string }{
		"document": {bulkOnce, jsonType, `{"entries":[` + long + `]}`},
		"a line":   {bulkStream, ndjsonType, long},
	} {
		for most, want := range map[int64]int{1 << 20: http.StatusOK, 300 << 10: http.StatusServiceUnavailable, 400 << 10: http.StatusServiceUnavailable} {
			s, _ := bulkServer()
			s.cfg.MaxBufferedBytes = most
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body))
			r.Header.Set("Content-Type", tc.kind)
			if s.ServeHTTP(w, r); w.Code != want || s.buffered.Load() != 0 {
				t.Errorf("%s with %d bytes: %d %s; %d held", name, most, w.Code, w.Body, s.buffered.Load())
			}
		}
	}
}
