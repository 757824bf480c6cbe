package migration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// relay stands between the tool and the service: at an address that survives
// the service, it sees every chunk that is sent, and can have something happen
// at a moment between two steps of a request.
type relay struct {
	// URL is where the tool finds the service.
	URL string

	mu     sync.Mutex
	target *url.URL
	// sent are the chunks in the order of their requests, "operation/index", and
	// marks where in it something was killed.
	sent  []string
	marks []int
	trap  *trap
}

// moment is a place in the course of a request that carries a chunk.
type moment string

const (
	beforeChunk moment = "before a chunk reaches the service"
	duringChunk moment = "while the service works on a chunk"
	afterChunk  moment = "before the answer to a chunk reaches the tool"
)

// trap springs at a moment of the chunk request that is the nth from now on.
type trap struct {
	nth    int
	at     moment
	spring func()
	done   chan struct{}
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{URL: "http://" + l.Addr().String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			r.mu.Lock()
			defer r.mu.Unlock()
			p.SetURL(r.target)
		},
		ModifyResponse: func(resp *http.Response) error {
			if chunkOf(resp.Request.URL.Path) != "" {
				r.reach(afterChunk)
			}
			return nil
		},
		// Whoever is cut off from the service sees a connection that ends.
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if chunk := chunkOf(q.URL.Path); chunk != "" {
			r.note(chunk)
			r.reach(beforeChunk)
			go r.reach(duringChunk)
		}
		proxy.ServeHTTP(w, q)
	})}
	go func() {
		// It ends when the test closes it.
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Close() })
	return r
}

// chunkOf returns "operation/index" for the path of a chunk, or "".
func chunkOf(path string) string {
	_, rest, found := strings.Cut(path, "/bulk-loads/")
	operation, index, chunk := strings.Cut(rest, "/chunks/")
	if !found || !chunk {
		return ""
	}
	return operation + "/" + index
}

// to directs the relay at a service.
func (r *relay) to(t *testing.T, service string) {
	t.Helper()
	at, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = at
}

func (r *relay) note(chunk string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, chunk)
	if r.trap != nil {
		r.trap.nth--
	}
}

// reach springs the trap if it is set for this moment.
func (r *relay) reach(at moment) {
	r.mu.Lock()
	caught := r.trap
	if caught == nil || caught.nth > 0 || caught.at != at {
		r.mu.Unlock()
		return
	}
	r.trap = nil
	r.mu.Unlock()
	caught.spring()
	close(caught.done)
}

// set lays a trap and returns a channel that is closed when it has sprung.
func (r *relay) set(nth int, at moment, spring func()) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = &trap{nth: nth, at: at, spring: spring, done: make(chan struct{})}
	return r.trap.done
}

// disarm removes a trap that has not sprung, and reports whether it had not.
func (r *relay) disarm() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	laid := r.trap != nil
	r.trap = nil
	return laid
}

// mark notes that something is killed at this moment.
func (r *relay) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, len(r.sent))
}

// repeated returns, for each kill, the chunks that were sent before it and again
// between it and the next one.
func (r *relay) repeated() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([][]string, len(r.marks))
	for i, from := range r.marks {
		until := len(r.sent)
		if i+1 < len(r.marks) {
			until = r.marks[i+1]
		}
		for _, chunk := range r.sent[from:until] {
			if slices.Contains(r.sent[:from], chunk) && !slices.Contains(out[i], chunk) {
				out[i] = append(out[i], chunk)
			}
		}
	}
	return out
}

// chunks returns how many different chunks of how many operations were sent, and
// checks that none of an operation was left out.
func (r *relay) chunks() (operations, chunks int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[string]int{}
	for _, c := range r.sent {
		operation, text, _ := strings.Cut(c, "/")
		index, err := strconv.Atoi(text)
		if err != nil || index > next[operation] {
			return 0, 0, fmt.Errorf("chunk %s was sent after %d chunks, %v", c, next[operation], err)
		}
		next[operation] = max(next[operation], index+1)
	}
	for _, n := range next {
		chunks += n
	}
	return len(next), chunks, nil
}

func TestRelayTellsRepeatedChunksByKill(t *testing.T) {
	r := &relay{}
	for _, chunk := range []string{"a/0", "a/1", "!", "a/1", "a/1", "a/2", "!", "!", "a/2", "a/1", "a/3"} {
		if chunk == "!" {
			r.mark()
		} else {
			r.note(chunk)
		}
	}
	got := fmt.Sprint(r.repeated())
	if got != "[[a/1] [] [a/2 a/1]]" {
		t.Errorf("got %s", got)
	}
	if operations, chunks, err := r.chunks(); operations != 1 || chunks != 4 || err != nil {
		t.Errorf("%d operations, %d chunks, %v", operations, chunks, err)
	}
	r.note("a/5")
	if _, _, err := r.chunks(); err == nil {
		t.Error("a chunk that was left out is not noticed")
	}
}

// TestRelaySpringsAtItsMoment has a service that answers chunks, and asks it
// through the relay.
func TestRelaySpringsAtItsMoment(t *testing.T) {
	served := 0
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer service.Close()
	r := newRelay(t)
	r.to(t, service.URL)
	put := func(path string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.URL+path, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	for _, at := range []moment{beforeChunk, afterChunk} {
		seen := -1
		sprung := r.set(2, at, func() { seen = served })
		before := served
		for _, path := range []string{"/v1/trees/t/bulk-loads/o/chunks/0", "/v1/trees/t/bulk-loads/o", "/v1/trees/t/bulk-loads/o/chunks/1"} {
			if err := put(path); err != nil {
				t.Fatal(err)
			}
		}
		<-sprung
		want := before + 2
		if at == afterChunk {
			want++
		}
		if seen != want {
			t.Errorf("%s: %d requests were served, want %d", at, seen, want)
		}
	}
	if r.disarm() {
		t.Error("a trap that has sprung is still laid")
	}
}
