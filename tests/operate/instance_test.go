// Package operate holds docs/operate.md to what the service does: its commands are
// run, and its figures measured.
package operate

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

const internalToken = "for the timers of the test"

// world is a store whose calls take a little time, and are counted.
type world struct {
	t     *testing.T
	meter *metered.Store
	options.Options
}

func newWorld(t *testing.T, edit func(*options.Options)) *world {
	mem := memory.New(memory.Options{Clock: clock.NewSystem()})
	slow := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: clock.NewSystem()})
	slow.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(5*time.Millisecond, 0)})
	w := &world{t: t, meter: metered.New(slow.Table(), slow.Blobs()), Options: options.Default()}
	// Small leaves, so that a few entries fill several.
	w.LeafTargetBytes = 4 << 10
	if edit != nil {
		edit(&w.Options)
	}
	return w
}

// process is one instance, cold at first.
type process struct {
	*world
	handler http.Handler
}

func (w *world) start() *process {
	w.t.Helper()
	svc, err := service.New(service.Config{
		Table: w.meter.Table(), Blobs: w.meter.Blobs(), Options: w.Options,
		InternalToken: internalToken, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &process{w, svc.Handler()}
}

// wait lets time pass.
func (w *world) wait(d time.Duration) {
	w.t.Helper()
	if err := clock.NewSystem().Sleep(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
}

// do makes a request, which must be answered with a status of success. Headers are
// name and value by turns.
func (p *process) do(method, path, body string, headers ...string) (string, http.Header) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), method, "http://lattice.test"+path, strings.NewReader(body))
	if method == http.MethodPost || strings.Contains(path, "/bulk-loads/") {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	if w.Code >= 300 {
		p.t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String(), w.Header()
}

// refused makes a request that must be answered with the status.
func (p *process) refused(status int, method, path, body string, headers ...string) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), method, "http://lattice.test"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	if w.Code != status {
		p.t.Errorf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, status)
	}
}

func (p *process) tick(timer string) string {
	p.t.Helper()
	body, _ := p.do(http.MethodPost, "/internal/timers/"+timer, "", "Authorization", "Bearer "+internalToken)
	return body
}

// spend returns what f asks of the storage.
func (w *world) spend(f func()) metered.Snapshot {
	before := w.meter.Snapshot()
	f()
	return w.meter.Snapshot().Sub(before)
}

// together runs f n times at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func key(i int) string { return fmt.Sprintf("key-%05d", i) }

// value is text that no compression makes much shorter.
func value(i int) string {
	var b strings.Builder
	for x := uint64(i)*2654435761 + 1; b.Len() < 100; x = x*6364136223846793005 + 1442695040888963407 {
		fmt.Fprintf(&b, "%016x", x)
	}
	return b.String()
}

// sets is a list of operations, or of entries, one for each number.
func sets(from, to int, form string) string {
	var items []string
	for i := from; i < to; i++ {
		items = append(items, fmt.Sprintf(form, key(i), value(i)))
	}
	return strings.Join(items, ",")
}

const (
	setForm   = `{"op":"set","key":"%s","text":"%s"}`
	entryForm = `{"key":"%s","text":"%s"}`
)

// fill makes a tree of some shards with a thousand keys, whose log is folded and
// collected.
func (p *process) fill(tree string, shards int) {
	p.t.Helper()
	p.do("PUT", "/v1/trees/"+tree, fmt.Sprintf(`{"shardCount":%d}`, shards))
	for from := 0; from < 1000; from += 500 {
		p.do("POST", "/v1/trees/"+tree+"/batch", `{"operations":[`+sets(from, from+500, setForm)+`]}`)
	}
	p.foldSoon(tree, true)
	p.tick("checkpoint")
	p.wait(time.Hour)
	p.tick("collect")
	p.foldSoon(tree, false)
}

// foldSoon makes one write enough for a checkpoint of a shard, or takes that back.
// A checkpoint is a row of the log itself.
func (p *process) foldSoon(tree string, soon bool) {
	p.t.Helper()
	rows := "null"
	if soon {
		rows = "2"
	}
	p.do("PATCH", "/v1/trees/"+tree, `{"options":{"CheckpointTailRows":`+rows+`}}`)
}
