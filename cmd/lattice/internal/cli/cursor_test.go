package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

func TestCursorOpenNextClose(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(10), "import", "t")
	id := strings.TrimSpace(l.ok("", "cursor", "open", "t", "--start", "k000003", "--end", "k000008"))
	r := l.run("", "cursor", "next", "t", id, "-n", "2")
	if r.code != ExitOK || !strings.HasPrefix(r.out, "k000003\t") || strings.Count(r.out, "\n") != 2 || r.err != "Page 1: 2 entries; there are more.\n" {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	l.is(l.ok("", "cursor", "next", "t", id, "--page", "1", "-n", "9"), r.out)
	r = l.run("", "cursor", "next", "t", id, "-n", "2", "--all")
	if strings.Count(r.out, "\n") != 3 || r.err != "Page 2: 2 entries; there are more.\nPage 3: 1 entries; it is the last one.\n" {
		t.Fatalf("%s%s", r.out, r.err)
	}
	l.fails(ExitUsage, "invalid_argument", "", "cursor", "next", "t", id, "--page", "1")
	l.is(l.ok("", "cursor", "close", "t", id), "Closed cursor "+id+".\n")
	l.is(l.ok("", "cursor", "close", "t", id, "--json"), `{"closed":"`+id+`"}`+"\n")
	l.fails(ExitNo, "cursor_not_found", "", "cursor", "next", "t", id)
	if n := s.Cursors("t"); n != 0 {
		t.Errorf("%d cursors are open", n)
	}
}

func TestCursorInJSON(t *testing.T) {
	l, _ := fake(t)
	l.ok("", "set", "t", "a", "1")
	l.ok("\xff", "set", "t", "b", "-")
	var open struct{ CursorID, ExpiresAt, SnapshotVersion string }
	if err := json.Unmarshal([]byte(l.ok("", "cursor", "open", "t", "--snapshot", "--reverse", "--json")), &open); err != nil || open.SnapshotVersion == "" || open.ExpiresAt == "" {
		t.Fatalf("%+v, %v", open, err)
	}
	l.ok("", "delete", "t", "a")
	out := l.ok("", "cursor", "next", "t", open.CursorID, "--json", "--limit", "1", "--all")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"entries":[{"key":"b","value":"/w==","version":`) || !strings.Contains(lines[0], `"hasMore":true,"page":1`) ||
		!strings.Contains(lines[1], `"entries":[{"key":"a","text":"1","version":`) || !strings.Contains(lines[1], `"hasMore":false,"page":2`) {
		t.Fatal(out)
	}
	keys := strings.TrimSpace(l.ok("", "cursor", "open", "t", "--kind", "keys"))
	if out := l.ok("", "cursor", "next", "t", keys, "--json"); strings.Contains(out, "/w==") || !strings.Contains(out, `{"key":"b","version":`) {
		t.Fatal(out)
	}
	l.is(l.ok("", "cursor", "next", "t", keys), "")
}

func TestCursorOfADeleteRange(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(5), "import", "t")
	l.fails(ExitUsage, "--yes", "", "cursor", "open", "t", "--kind", "delete-range", "--all")
	l.fails(ExitUsage, "a range, or --all", "", "cursor", "open", "t", "--kind", "delete-range", "--yes")
	l.fails(ExitUsage, "a range, or --all", "", "cursor", "open", "t", "--kind", "delete-range", "--yes", "--all", "--prefix", "k")
	l.fails(ExitUsage, "no --snapshot", "", "cursor", "open", "t", "--kind", "delete-range", "--yes", "--all", "--snapshot")
	l.fails(ExitUsage, "for a delete-range", "", "cursor", "open", "t", "--all")
	l.tty = true
	r := l.fails(ExitNo, "nothing was done", "n\n", "cursor", "open", "t", "--kind", "delete-range", "--prefix", "k")
	if !strings.Contains(r.err, "Delete, page by page, every key that begins with k of tree t? [y/N]") || s.Cursors("t") != 0 {
		t.Fatalf("%s", r.err)
	}
	l.tty = false
	id := strings.TrimSpace(l.ok("", "cursor", "open", "t", "--kind", "delete-range", "--prefix", "k", "--yes"))
	if s.Len("t") != 5 {
		t.Fatal("opening deletes")
	}
	l.is(l.ok("", "cursor", "next", "t", id, "-n", "3"), "Page 1: deleted 3 keys; there are more.\n")
	if out := l.ok("", "cursor", "next", "t", id, "--json"); !strings.HasPrefix(out, `{"deleted":2,`) || !strings.Contains(out, `"hasMore":false,"page":2}`) {
		t.Fatal(out)
	}
}

func TestScanOfASnapshot(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(2500), "import", "t")
	first := true
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/next") && first {
			first = false
			// Somebody empties the tree between the pages.
			req, err := http.NewRequest(http.MethodDelete, l.url+"/v1/trees/t/entries?start=k000100", http.NoBody)
			if err != nil {
				t.Error(err)
				return false
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.Body.Close() != nil || resp.StatusCode != 200 {
				t.Error(resp, err)
			}
		}
		return false
	}
	if out := l.ok("", "scan", "t", "--snapshot"); strings.Count(out, "\n") != 2500 || s.Len("t") != 100 {
		t.Fatalf("%d entries, %d are left", strings.Count(out, "\n"), s.Len("t"))
	}
	l.is(l.ok("", "scan", "t", "--snapshot", "-k", "-r", "-n", "2", "--start", "k000010"), "k000099\nk000098\n")
	l.fails(ExitUsage, "--max-age", "", "scan", "t", "--snapshot", "--max-age", "1s")
	l.fails(ExitNo, "tree_not_found", "", "scan", "none", "--snapshot")
	if n := s.Cursors("t"); n != 0 {
		t.Errorf("%d snapshots stay open", n)
	}
}

func TestInterruptedScanClosesItsSnapshot(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(10), "import", "t")
	ctx, cancel := context.WithCancelCause(t.Context())
	l.ctx = ctx
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/next") {
			return false
		}
		if n := s.Cursors("t"); n != 1 {
			t.Errorf("%d snapshots are open", n)
		}
		// Only what has been read lets the server see that the caller is gone.
		_, _ = io.Copy(io.Discard, r.Body)
		cancel(ErrInterrupted)
		<-r.Context().Done()
		return true
	}
	l.fails(ExitInterrupted, "interrupted", "", "scan", "t", "--snapshot")
	if n := s.Cursors("t"); n != 0 {
		t.Errorf("%d snapshots stay open", n)
	}
	l.ctx = t.Context()
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			clienttest.Problem(w, 500, "internal", "d", 0)
		}
		return r.Method == http.MethodDelete
	}
	if r := l.run("", "scan", "t", "--snapshot"); r.code != ExitOK || !strings.Contains(r.err, "The snapshot stays open until") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// TestBatchAndCursorAgainstTheService goes over many shards of the real service.
func TestBatchAndCursorAgainstTheService(t *testing.T) {
	l := serve(t)
	l.ok("", "trees", "create", "t", "--shards", "8")
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "{\"op\":\"set\",\"key\":\"k%02d\",\"text\":\"one\",\"ifAbsent\":true}\n", i)
	}
	out := l.ok(in.String(), "batch", "t", "--operation-id", "x")
	l.is(l.ok(in.String(), "batch", "t", "--operation-id", "x"), out)
	if v := l.versionOf("t", "k07"); strings.Count(out, v) != 100 {
		t.Fatalf("not all have version %s:\n%s", v, out)
	}
	l.fails(ExitNo, "nothing was written: 100 conditions failed\nline 1: key k00 has version ", in.String(), "batch", "t")
	id := strings.TrimSpace(l.ok("", "cursor", "open", "t", "--snapshot", "--prefix", "k"))
	l.ok("", "delete", "t", "--prefix", "k0", "--yes")
	r := l.run("", "cursor", "next", "t", id, "--all", "--limit", "30")
	if strings.Count(r.out, "\tone\n") != 100 || !strings.Contains(r.err, "Page 4: 10 entries; it is the last one.") {
		t.Fatalf("%s%s", r.out, r.err)
	}
	l.ok("", "cursor", "close", "t", id)
	l.fails(ExitNo, "cursor_not_found", "", "cursor", "next", "t", id)
	if out := l.ok("", "scan", "t", "--snapshot", "--json"); strings.Count(out, "\n") != 90 {
		t.Fatal(out)
	}
}
