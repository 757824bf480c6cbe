package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// listSource yields pages; a position is the number of pages that were read.
type listSource struct {
	pages []source.Page
	// restartAt lists pages before which ErrRestart comes, once each.
	restartAt map[int]bool
	// beforePage is called before a page is yielded.
	beforePage func(i int) error
	// reads are the pages that were yielded, in order.
	reads []int
}

func (s *listSource) Inspect(context.Context) (source.Info, error) { return s.info(), nil }

func (s *listSource) info() source.Info {
	return source.Info{Kind: "list", Identity: "a list", Estimate: 100, Cut: "cut 1"}
}

func (s *listSource) Close() error { return nil }

func (s *listSource) Read(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		at := 0
		if from != nil {
			if err := json.Unmarshal(from, &at); err != nil {
				yield(source.Page{}, err)
				return
			}
		}
		for ; at < len(s.pages); at++ {
			if s.beforePage != nil {
				if err := s.beforePage(at); err != nil {
					yield(source.Page{}, err)
					return
				}
			}
			if s.restartAt[at] {
				delete(s.restartAt, at)
				yield(source.Page{}, fmt.Errorf("%w: it was failed over", source.ErrRestart))
				return
			}
			if err := ctx.Err(); err != nil {
				yield(source.Page{}, err)
				return
			}
			p := s.pages[at]
			if p.Next = nil; at+1 < len(s.pages) {
				p.Next = fmt.Appendf(nil, "%d", at+1)
			}
			s.reads = append(s.reads, at)
			if !yield(p, nil) {
				return
			}
		}
	}
}

func record(id int, v string) source.Record {
	return source.Record{Origin: fmt.Sprintf("row %d", id), Fields: []source.Field{{Name: "id", Value: int64(id)}, {Name: "v", Value: v}}}
}

// paged divides records into pages.
func paged(size int, records ...source.Record) []source.Page {
	var out []source.Page
	for part := range slices.Chunk(records, size) {
		out = append(out, source.Page{Records: part})
	}
	return out
}

// numbered makes records with the ids.
func numbered(ids ...int) []source.Record {
	var out []source.Record
	for _, id := range ids {
		out = append(out, record(id, fmt.Sprintf("value %d", id)))
	}
	return out
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// service is a target in memory, without a socket.
type service struct {
	*clienttest.Server
	mu sync.Mutex
	// sent are the bodies of each chunk, in the order in which they came.
	sent map[string][]string
	// before and after each request; an error is what the client sees.
	before, after func(what string) error
}

func newService() *service {
	return &service{Server: clienttest.New(), sent: map[string][]string{}}
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method + " " + r.URL.Path
	if s.before != nil {
		if err := s.before(what); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if _, chunk, ok := strings.Cut(r.URL.Path, "/chunks/"); ok {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		s.mu.Lock()
		s.sent[chunk] = append(s.sent[chunk], string(body))
		s.mu.Unlock()
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if s.after != nil {
		if err := s.after(what); err != nil {
			return nil, err
		}
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (s *service) tree(t testing.TB, name string) *client.Tree {
	t.Helper()
	c, err := client.New("http://service.test", client.Options{HTTPClient: &http.Client{Transport: s}, Retry: client.RetryPolicy{Max: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return c.Tree(name)
}

// dump returns the entries of a tree as lines.
func (s *service) dump(t testing.TB, name string) string {
	t.Helper()
	var b strings.Builder
	for e, err := range s.tree(t, name).Scan(context.Background(), client.Query{}) {
		if errors.Is(err, client.ErrTreeNotFound) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%s", e.Key, e.Value)
		if !e.ExpiresAt.IsZero() {
			fmt.Fprintf(&b, " until %s", e.ExpiresAt.UTC().Format(time.RFC3339Nano))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// smallSpool makes runs of a few entries and merges two at a time.
var smallSpool = spool.Options{SortMemory: 4 << 10, BlockBytes: 256, MaxFanIn: 2}

// options of a migration of src into tree "t" of s, in small pieces.
func options(t testing.TB, dir string, src *listSource, s *service) Options {
	t.Helper()
	template, err := keys.Parse("k/{id:4}", nil, keys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Dir: dir, Source: src, Info: src.info(), Target: s.tree(t, "t"), Tree: "t", TargetName: "t at service.test",
		Mapper: func(start time.Time) (*mapping.Mapper, error) {
			return mapping.New(mapping.Options{Template: template, Value: "column:v", Start: start, MaxValueBytes: 1000})
		},
		Shape: map[string]string{"key-template": template.String()}, ChunkEntries: 8, CheckpointEvery: 1, Spool: smallSpool, RetryFor: time.Minute,
	}
}

func want(t testing.TB, r *Report, c Counts) {
	t.Helper()
	if r.Counts != c {
		t.Fatalf("counted %+v, want %+v", r.Counts, c)
	}
	if c.Read != c.Loaded+c.Rejected+c.Duplicates+c.Expired {
		t.Fatalf("%+v does not balance", c)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	clientSet    client.SetOptions
	clientDelete client.DeleteOptions
)

func folder(t testing.TB) string { return durabletest.Folder(t) }
