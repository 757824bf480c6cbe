package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

// TestACommittedSessionIsNotLoadedAgain: the same input is found to be the same,
// another one is not taken for it.
func TestACommittedSessionIsNotLoadedAgain(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *tool{"service": serve, "fake": func(t *testing.T) *tool { l, _ := fake(t); return l }} {
		t.Run(name, func(t *testing.T) {
			l := start(t)
			load := []string{"load", "t", "--mode", "session", "--operation", "op", "--chunk-entries", "10"}
			l.ok(ndjson(25), load...)
			if out := l.ok(ndjson(25), load...); out != "Session op was already committed with 25 entries; nothing was loaded now.\nThe tree has 25 live keys.\n" {
				t.Error(out)
			}
			other := strings.Replace(ndjson(25), "value 24", "other", 1)
			if other == ndjson(25) {
				t.Fatal("the input is the same")
			}
			const already = "session op is already committed with 25 entries, and nothing was loaded now: "
			l.fails(ExitNo, already+"its last chunk holds something else", other, load...)
			l.fails(ExitNo, already+"the input has 24 entries", ndjson(24), load...)
			l.fails(ExitNo, already+"the input has more rows", ndjson(26), load...)
			l.fails(ExitNo, already+"the last key of the input is z, not k000024", strings.Replace(ndjson(25), `"k000024"`, `"z"`, 1), load...)
			l.fails(ExitNo, already+"the values cannot be compared", ndjson(25), append(load, "--chunk-entries", "20")...)
			l.is(l.ok("", "get", "t", "k000024"), "value 24")
		})
	}
}

func TestADuplicateIsNamedByItsLine(t *testing.T) {
	row := func(k string) string { return `{"key":"` + k + `","text":""}` + "\n" }
	l := serve(t)
	in := row("c") + "\n" + row("b") + "\n\n" + row("a") + row("b") + row("d")
	l.fails(ExitUsage, "line 7: key b comes twice: 422 bulk_load_order", in, "load", "t")
	l.fails(ExitUsage, "line 7: key b comes twice", strings.Replace(in, "\n\n\n", "\nbad\n\n", 1), "load", "t", "--skip-bad")
}

func TestLinesOfRowsAreBounded(t *testing.T) {
	var l lineNumbers
	for i := range int64(maxBreaks + 10) {
		l.add(2*i + 1)
	}
	if len(l.breaks) != maxBreaks || l.line(0) != 1 || l.line(maxBreaks-2) != 2*(maxBreaks-2)+1 || l.line(maxBreaks+5) != 0 || l.line(-1) != 0 {
		t.Errorf("%d breaks; lines %d, %d, %d", len(l.breaks), l.line(0), l.line(maxBreaks-2), l.line(maxBreaks+5))
	}
	l = lineNumbers{}
	for i := range int64(1000) {
		l.add(i + 5)
	}
	if len(l.breaks) != 1 || l.line(999) != 1004 || l.line(1000) != 0 {
		t.Errorf("%+v: %d", l.breaks, l.line(999))
	}
}

func TestLoadWaitsForALoadUnderWay(t *testing.T) {
	for name, args := range modes {
		t.Run(name, func(t *testing.T) {
			l, s := fake(t)
			refused := 0
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if refused > 0 {
					return false
				}
				refused++
				clienttest.Problem(w, http.StatusConflict, "operation_in_progress", "a streamed load is under way", 1)
				return true
			}
			r := l.run(ndjson(3), append([]string{"load", "t"}, args...)...)
			if r.code != ExitOK || s.Len("t") != 3 || !strings.Contains(r.err, "Waiting: a streamed load is under way.") {
				t.Errorf("exit %d, %d keys\n%s%s", r.code, s.Len("t"), r.out, r.err)
			}
			refused = 0
			l.fails(ExitNo, "operation_in_progress", ndjson(3), append([]string{"load", "u", "--retry-for", "1ms"}, args...)...)
		})
	}
}

func TestSessionsAreListed(t *testing.T) {
	l, _ := fake(t)
	l.fails(ExitNo, "tree_not_found", "", "loads", "list", "t")
	l.ok("", "trees", "create", "t")
	if out := l.ok("", "loads", "list", "t"); out != "Tree t has no bulk load sessions.\n" {
		t.Error(out)
	}
	l.ok(ndjson(25), "load", "t", "--mode", "session", "--operation", "op-1", "--chunk-entries", "10")
	out := l.ok("", "loads", "list", "t")
	if !strings.HasPrefix(out, "SESSION  STATUS     NEXT CHUNK  ENTRIES  CHANGED\nop-1     committed  3           25       ") {
		t.Error(out)
	}
	if out := l.ok("", "loads", "list", "t", "--json"); !strings.Contains(out, `"bulkLoads"`) || !strings.Contains(out, `"nextChunkIndex":3`) {
		t.Error(out)
	}
	l.fails(ExitUsage, "--limit", "", "loads", "list", "t", "--limit", "0")
}

func TestLoadRefusesFlagsOfAnotherMode(t *testing.T) {
	l, _ := fake(t)
	for _, args := range [][]string{
		{"--mode", "stream", "--chunk-entries", "5"}, {"--chunk-bytes", "5000"}, {"--mode", "session", "--chunk-entries", "0"}, {"--retry-for", "0s"},
	} {
		l.fails(ExitUsage, args[len(args)-2], ndjson(1), append([]string{"load", "t"}, args...)...)
	}
}

func TestLoadBesideAnOpenSessionTellsHowToGoOnOrEndIt(t *testing.T) {
	l, _ := fake(t)
	l.ok("", "trees", "create", "t")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, l.url+"/v1/trees/t/bulk-loads/op-1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode/100 != 2 {
		t.Fatal(resp, err)
	}
	r := l.fails(ExitNo, "--operation=op-1", ndjson(3), "load", "t", "--mode", "session", "--retry-for", "1ms")
	if !strings.Contains(r.err, "lattice loads abort t op-1") || !strings.Contains(r.err, "lattice load t FILE --mode=session") {
		t.Error(r.err)
	}
}
