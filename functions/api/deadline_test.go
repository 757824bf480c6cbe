package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// timedWriter is a connection that notes its deadlines.
type timedWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	// pieces are the sizes of the writes.
	pieces []int
}

func (w *timedWriter) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

func (w *timedWriter) Write(b []byte) (int, error) {
	w.pieces = append(w.pieces, len(b))
	return w.ResponseRecorder.Write(b)
}

func TestLongAnswersGetADeadlineForEachPiece(t *testing.T) {
	r := newRig(t)
	for size, pieces := range map[int]int{0: 1, 100: 1, longAnswer: 1, longAnswer + 1: 2, 5 * longAnswer: 5} {
		r.put(k+"a", strings.Repeat("x", size))
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
		start := time.Now()
		r.api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, k+"a", http.NoBody))
		if w.Body.Len() != size || len(w.pieces) != pieces {
			t.Errorf("%d bytes went out as %v", size, w.pieces)
		}
		if pieces == 1 {
			if len(w.deadlines) != 0 {
				t.Errorf("a short answer got %d deadlines", len(w.deadlines))
			}
			continue
		}
		last := len(w.deadlines) - 1
		if last != pieces-1 || !w.deadlines[last].IsZero() {
			t.Fatalf("%d pieces, deadlines %v", pieces, w.deadlines)
		}
		for _, d := range w.deadlines[:last] {
			if d.Before(start.Add(testOptions().RequestTimeout)) {
				t.Errorf("a deadline after %s", d.Sub(start))
			}
		}
	}
}

func TestStreamsGetDeadlinesToo(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.put(fmt.Sprintf("%s%d", k, i), strings.Repeat("x", streamBuffer))
	}
	w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
	req := httptest.NewRequest(http.MethodGet, tr+"/entries", http.NoBody).WithContext(context.Background())
	req.Header.Set("Accept", ndjsonType)
	r.api.ServeHTTP(w, req)
	if n := len(w.deadlines); n < 5 || !w.deadlines[n-1].IsZero() {
		t.Errorf("deadlines %v", w.deadlines)
	}
	if !strings.HasSuffix(w.Body.String(), "{\"end\":true,\"count\":10}\n") {
		t.Error("the stream is not complete")
	}
}
