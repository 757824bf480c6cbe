package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/memory"
)

// serveTicking starts the real service over memory, and returns a tool and what
// runs a tick of migrations. Before every request step is called.
func serveTicking(t *testing.T, step func(r *http.Request, tick func())) (*tool, func()) {
	t.Helper()
	l, _ := fake(t)
	m := memory.New(memory.Options{})
	svc, err := service.New(service.Config{
		Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), InternalToken: "token", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.tick = func(timer string) {
		if _, err := tick.InProcess(context.Background(), svc.Handler(), "token", timer); err != nil {
			t.Error(err)
		}
	}
	migrate := func() { l.tick("migrations") }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if step != nil {
			step(r, migrate)
		}
		svc.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	l.url = srv.URL
	return l, migrate
}

func TestReshardAgainstTheService(t *testing.T) {
	l, migrate := serveTicking(t, nil)
	l.ok("", "trees", "create", "orders", "--shards", "2")
	if out := l.ok("", "splits", "orders"); out != "Tree orders: 0 splits in flight, 0 recent.\n" {
		t.Errorf("%q", out)
	}
	l.is(l.ok("", "reshard", "orders", "2"), "Tree orders has 2 shards.\n")
	for n := range 20 {
		l.ok("", "set", "orders", fmt.Sprint(n), "v")
	}
	l.is(l.ok("", "reshard", "orders", "4"), "Tree orders goes from 2 to 4 shards; it has 2.\n")
	l.fails(ExitNo, "operation_in_progress", "", "reshard", "orders", "8")
	l.fails(ExitNo, "splits orders --watch", "", "reshard", "orders", "8")
	l.fails(ExitUsage, "shardCount", "", "reshard", "orders", "0")
	l.fails(ExitUsage, "--interval", "", "reshard", "orders", "8", "--interval", "1ms")
	l.fails(ExitNo, "tree_not_found", "", "reshard", "nothing", "8")
	for range 10 {
		migrate()
	}
	l.is(l.ok("", "reshard", "orders", "4", "--json"), `{"complete":true,"start":4,"current":4,"target":4}`+"\n")
	out := l.ok("", "splits", "orders")
	if !strings.HasPrefix(out, "Tree orders: 0 splits in flight, 2 recent.\n\nSOURCE  TARGET  PHASE") || strings.Count(out, "  Done   1024 ") != 2 {
		t.Errorf("splits:\n%s", out)
	}
	out = l.ok("", "shards", "orders")
	if !strings.HasPrefix(out, "Tree orders has 4 shards; version 2 of its map.\n\nSHARD  SLOTS  SHARE  RANGES") || strings.Count(out, "1024   25.0%") != 4 {
		t.Errorf("shards:\n%s", out)
	}
	var m struct{ Shards []struct{ Shard int } }
	if err := json.Unmarshal([]byte(l.ok("", "shards", "orders", "--json")), &m); err != nil || len(m.Shards) != 4 {
		t.Errorf("shards as JSON: %+v, %v", m, err)
	}
}

func TestReshardWaitsAndTellsTheSteps(t *testing.T) {
	l, _ := serveTicking(t, func(r *http.Request, tick func()) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/reshard") {
			tick()
		}
	})
	l.ok("", "trees", "create", "orders", "--shards", "1", "MaxConcurrentMigrations=1")
	l.ok("", "set", "orders", "k", "v")
	r := l.run("", "reshard", "orders", "3", "--wait", "--interval", "100ms")
	if r.code != ExitOK || r.out != "Tree orders has 3 shards.\n" || !strings.HasPrefix(r.err, "1 of 3 shards\n") {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestInterruptedWaitLeavesTheReshardToTheService(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	l, _ := serveTicking(t, func(r *http.Request, _ func()) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/reshard") {
			cancel(ErrInterrupted)
		}
	})
	l.ok("", "set", "orders", "k", "v")
	l.ctx = ctx
	l.fails(ExitInterrupted, "interrupted", "", "reshard", "orders", "8", "--wait", "--interval", "100ms")
	l.ctx = t.Context()
	l.fails(ExitNo, "operation_in_progress", "", "reshard", "orders", "16")
}

// watched runs splits --watch on a tree that is resharded while it runs, and
// interrupts it when all is over.
func watched(t *testing.T, tty bool, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	looks := 0
	l, _ := serveTicking(t, func(r *http.Request, tick func()) {
		if !strings.HasSuffix(r.URL.Path, "/splits") {
			return
		}
		if looks++; looks > 1 {
			tick()
		}
		if looks == 6 {
			cancel(ErrInterrupted)
		}
	})
	l.ok("", "trees", "create", "orders", "--shards", "1")
	l.ok("", "set", "orders", "k", "v")
	l.ok("", "reshard", "orders", "2")
	l.ctx, l.tty = ctx, tty
	return l.run("", append([]string{"splits", "orders", "--watch", "--interval", "100ms"}, args...)...)
}

func TestWatchPrintsALineForEveryChange(t *testing.T) {
	r := watched(t, false)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != ExitOK || r.err != "" || !strings.HasPrefix(lines[len(lines)-1], "shard 0 to 1: Done, 2,048 slots, 1 forwarded, took ") {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	for i := 1; i < len(lines); i++ {
		if lines[i] == lines[i-1] {
			t.Errorf("a line without news: %s", lines[i])
		}
	}
}

func TestWatchPrintsObjectsForPrograms(t *testing.T) {
	r := watched(t, true, "--json")
	var last struct{ Phase string }
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || r.code != ExitOK || last.Phase != "Done" {
		t.Fatalf("exit %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
}

func TestWatchRedrawsATerminal(t *testing.T) {
	r := watched(t, true)
	if r.code != ExitOK || !strings.Contains(r.out, "\x1b[") || !strings.Contains(r.out, "0 splits in flight, 1 recent") {
		t.Fatalf("exit %d\n%q\n%s", r.code, r.out, r.err)
	}
}

func TestSplitsRefusals(t *testing.T) {
	l := serve(t)
	l.fails(ExitNo, "tree_not_found", "", "splits", "nothing")
	l.fails(ExitNo, "tree_not_found", "", "shards", "nothing")
	l.fails(ExitNo, "tree_not_found", "", "splits", "nothing", "--watch")
	l.fails(ExitUsage, "--interval", "", "splits", "nothing", "--watch", "--interval", "0s")
	l.fails(ExitUsage, "", "", "reshard", "t")
}

func TestMovesOfShardsAreShown(t *testing.T) {
	l, s := fake(t)
	l.ok("", "trees", "create", "orders", "--shards", "2")
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/splits") {
			return false
		}
		fmt.Fprintf(w, `{"inFlight":[{"id":"a","source":0,"target":1,"phase":"Drain","started":%q},{"id":"b","source":1,"phase":"BeginShadowWrite","movedSlots":1,"started":%q}],"recent":[]}`,
			time.Unix(0, 0).UTC().Format(time.RFC3339), time.Unix(0, 0).UTC().Format(time.RFC3339))
		return true
	}
	out := l.ok("", "shards", "orders")
	for _, want := range []string{"0-2047     gives to 1, Drain\n", "2048-4095  gives to a new shard, BeginShadowWrite\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	out = l.ok("", "splits", "orders")
	if !strings.Contains(out, "2 splits in flight") || !strings.Contains(out, "1       -       BeginShadowWrite") {
		t.Errorf("splits:\n%s", out)
	}
}
