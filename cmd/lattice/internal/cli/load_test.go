package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

// modes are the ways to load, each with the arguments that choose it.
var modes = map[string][]string{
	"one-shot": nil, "stream": {"--mode", "stream"}, "session": {"--mode", "session", "--chunk-entries", "700"},
}

func TestLoadAgainstTheService(t *testing.T) {
	for name, args := range modes {
		t.Run(name, func(t *testing.T) {
			l := serve(t)
			out := l.ok(ndjson(3000), append([]string{"load", "t"}, args...)...)
			if !strings.HasPrefix(out, "Loaded 3,000 entries into t in ") || !strings.HasSuffix(out, "The tree has 3,000 live keys.\n") {
				t.Fatal(out)
			}
			l.is(l.ok("", "get", "t", "k002999"), "value 2999")
			export := l.ok("", "export", "t", "-", "--progress", "none")
			l.ok(export, append([]string{"load", "back"}, args...)...)
			if l.ok("", "scan", "back") != l.ok("", "scan", "t") {
				t.Fatal("what was loaded back differs")
			}
		})
	}
}

func TestLoadForms(t *testing.T) {
	l, s := fake(t)
	l.ok("", "load", "t", file(t, "x.csv", "id,name\n2,\"A, B\"\n1,x\n"), "--key-template", "u/{id:4}")
	if v, _ := s.Value("t", "u/0002"); string(v) != `{"id":"2","name":"A, B"}` {
		t.Errorf("%s", v)
	}
	rows := `{"key":"a","json":{"x": 1}}` + "\n" + `{"key":"b","text":"é"}` + "\n" + `{"key":"c","value":"AA==","contentType":"a/b","ttl":"1h"}` + "\n"
	l.ok(zip(t, rows), "load", "u", "--ttl", "2h")
	for key, want := range map[string]string{"a": "application/json", "b": "text/plain; charset=utf-8", "c": "a/b"} {
		if out := l.ok("", "get", "u", key, "--json"); !strings.Contains(out, want) || !strings.Contains(out, "expiresAt") {
			t.Errorf("%s: %s", key, out)
		}
	}
}

func TestLoadRefusesBadRows(t *testing.T) {
	for name, args := range modes {
		t.Run(name, func(t *testing.T) {
			l, s := fake(t)
			in := ndjson(2) + "bad\n" + `{"key":"z","text":"last"}` + "\n"
			l.fails(ExitNo, "line 3: malformed JSON", in, append([]string{"load", "t"}, args...)...)
			if s.Len("t") != 0 {
				t.Fatalf("%d keys are there", s.Len("t"))
			}
			rejected := filepath.Join(t.TempDir(), "bad.ndjson")
			r := l.fails(ExitNo, "1 row left out", in, append([]string{"load", "u", "--skip-bad", "--reject-file", rejected}, args...)...)
			if s.Len("u") != 3 || !strings.Contains(r.err, "line 3: malformed JSON") || !strings.Contains(readString(t, rejected), `"row":"bad"`) {
				t.Fatalf("%d keys\n%s%s", s.Len("u"), r.out, r.err)
			}
			l.fails(ExitFailed, "the input is incomplete", ndjson(2)+"{\"end\":true,\"count\":3}\n", append([]string{"load", "v"}, args...)...)
			if s.Len("v") != 0 {
				t.Fatalf("%d keys of an incomplete input", s.Len("v"))
			}
		})
	}
}

func TestLoadTellsWhatIsOutOfOrder(t *testing.T) {
	l, s := fake(t)
	in := "{\"key\":\"b\",\"text\":\"\"}\n\n{\"key\":\"a\",\"text\":\"\"}\n"
	for _, mode := range []string{"stream", "session"} {
		l.fails(ExitNo, "line 3: key a does not sort after b", in, "load", "t", "--mode", mode)
		l.fails(ExitNo, "line 2: key b does not sort after b", "{\"key\":\"b\",\"text\":\"\"}\n{\"key\":\"b\",\"text\":\"\"}\n", "load", mode, "--mode", mode)
	}
	if s.Len("t") != 0 {
		t.Errorf("%d keys", s.Len("t"))
	}
	l.fails(ExitUsage, "bulk_load_order", "{\"key\":\"b\",\"text\":\"\"}\n{\"key\":\"b\",\"text\":\"\"}\n", "load", "u")
	l.ok(in, "load", "u")
	l.fails(ExitNo, "tree_not_empty", in, "load", "u")
}

func TestLoadCountsWhatIsOverTheLimits(t *testing.T) {
	for name, args := range modes {
		t.Run(name, func(t *testing.T) {
			l, _ := fake(t)
			in := `{"key":"a","text":""}` + "\n" + `{"key":"` + strings.Repeat("k", 1025) + `","text":""}` + "\n"
			l.fails(ExitUsage, "key_too_long", in, append([]string{"load", "t", "--enforce-limits"}, args...)...)
			out := l.ok(in, append([]string{"load", "u"}, args...)...)
			if !strings.Contains(out, "Beyond the limits of ordinary writes: 1 entry; the first is kkk") || !strings.Contains(out, "a key of 1,025 bytes where 1,024 are allowed") {
				t.Error(out)
			}
		})
	}
}

// losing lets the reply to the n-th chunk get lost for good, and every request
// after it fail until it is mended.
func losing(s *clienttest.Server, n int, apply bool) (mend func()) {
	broken, chunks := true, 0
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !broken || !strings.Contains(r.URL.Path, "/chunks/") {
			return false
		}
		if chunks++; chunks < n {
			return false
		}
		if chunks == n && apply {
			intercept := s.Intercept
			s.Intercept = nil
			s.ServeHTTP(discard{http.Header{}}, r)
			s.Intercept = intercept
		}
		clienttest.Problem(w, http.StatusInternalServerError, "internal", "gone", 0)
		return true
	}
	return func() { broken = false }
}

// discard drops an answer.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestSessionGoesOnWhereItBroke(t *testing.T) {
	for name, applied := range map[string]bool{"chunk lost": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			l, s := fake(t)
			mend := losing(s, 3, applied)
			load := []string{"load", "t", "--mode", "session", "--operation", "op", "--chunk-entries", "100"}
			r := l.fails(ExitFailed, "--operation=op", ndjson(450), load...)
			if !strings.Contains(r.out, "200 entries are loaded and durable") {
				t.Fatal(r.out)
			}
			mend()
			l.fails(ExitNo, "it is not the same", ndjson(150), load...)
			had := map[bool]string{false: "200", true: "300"}[applied]
			if out := l.ok("", "loads", "state", "t", "op"); !strings.HasPrefix(out, "Session op is open: "+had+" entries in ") {
				t.Fatal(out)
			}
			if out := l.ok(ndjson(450), load...); !strings.HasPrefix(out, "Loaded 450 entries into t in ") || !strings.Contains(out, ", "+had+" of them by an earlier run.\nThe tree has 450 live keys.") {
				t.Fatal(out)
			}
			if s.Len("t") != 450 {
				t.Fatalf("%d keys", s.Len("t"))
			}
			// All of it is there, so running it once more only looks.
			l.ok(ndjson(450), load...)
			l.fails(ExitNo, "has more rows", ndjson(451), load...)
		})
	}
}

func TestLoadsEndSessions(t *testing.T) {
	l, s := fake(t)
	l.fails(ExitNo, "tree_not_found", "", "loads", "state", "t", "op")
	mend := losing(s, 2, false)
	l.fails(ExitFailed, "gone", ndjson(30), "load", "t", "--mode", "session", "--operation", "op", "--chunk-entries", "10")
	l.fails(ExitNo, "operation_not_found", "", "loads", "abort", "t", "other")
	if out := l.ok("", "loads", "abort", "t", "op"); !strings.HasPrefix(out, "Session op is aborted: 10 entries in 1 chunk, up to key k000009.\nBegun ") {
		t.Error(out)
	}
	l.fails(ExitNo, "operation_mismatch", "", "loads", "commit", "t", "op")
	l.fails(ExitNo, "session op is aborted", ndjson(30), "load", "t", "--mode", "session", "--operation", "op")
	mend()
	l.ok(ndjson(5), "load", "u", "--mode", "session", "--operation", "op")
	var state struct {
		Status        string `json:"status"`
		TotalLiveKeys int64  `json:"totalLiveKeys"`
	}
	if err := json.Unmarshal([]byte(l.ok("", "loads", "commit", "u", "op", "--json")), &state); err != nil || state.Status != "committed" || state.TotalLiveKeys != 5 {
		t.Errorf("%+v, %v", state, err)
	}
}

func TestLoadForPrograms(t *testing.T) {
	l, _ := fake(t)
	var sum struct {
		Mode               string
		OperationID        string
		Read, Rejected     int64
		AcceptedEntryCount int64
		TotalLiveKeys      int64
		Complete           bool
		Rejects            []reject
	}
	r := l.run(ndjson(3)+"x\n", "load", "t", "--mode", "session", "--json", "--skip-bad", "--progress", "none")
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || r.code != ExitNo {
		t.Fatalf("exit %d, %v\n%s", r.code, err, r.out)
	}
	if sum.Mode != "session" || len(sum.OperationID) < 16 || sum.Read != 4 || sum.Rejected != 1 || sum.AcceptedEntryCount != 3 || sum.TotalLiveKeys != 3 || !sum.Complete || len(sum.Rejects) != 1 {
		t.Errorf("%+v", sum)
	}
}

func TestLoadUsage(t *testing.T) {
	l, _ := fake(t)
	for _, args := range [][]string{
		{"--mode", "x"}, {"--operation", "x"}, {"--chunk-entries", "0"}, {"--chunk-bytes", "-1"}, {"--ttl", "-1s"}, {"--reject-file", "x"}, {"--key-column", "x"},
	} {
		l.fails(ExitUsage, "", "", append([]string{"load", "t"}, args...)...)
	}
	l.fails(ExitFailed, "open input", "", "load", "t", filepath.Join(t.TempDir(), "none"))
}

// silentInput never says anything.
type silentInput struct{ asked chan struct{} }

func (s *silentInput) Read([]byte) (int, error) {
	close(s.asked)
	select {}
}

func TestLoadOfASilentInputIsInterrupted(t *testing.T) {
	for _, mode := range []string{"one-shot", "session"} {
		l, _ := fake(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		in := &silentInput{make(chan struct{})}
		go func() {
			<-in.asked
			cancel(ErrInterrupted)
		}()
		out := &safeBuffer{}
		if code := Run(ctx, []string{"--server", l.url, "load", "t", "--mode", mode}, Console{In: in, Out: out, Err: out}); code != ExitInterrupted {
			t.Errorf("%s: exit %d\n%s", mode, code, out)
		}
		if says := strings.Contains(out.String(), "nothing was loaded; the command may be repeated"); says != (mode == "one-shot") {
			t.Errorf("%s: %s", mode, out)
		}
	}
}

func TestDiagnosticsForPeople(t *testing.T) {
	l := serve(t)
	l.fails(ExitNo, "tree_not_found", "", "diagnostics", "t")
	l.ok("", "trees", "create", "t", "--shards", "2")
	l.ok(ndjson(50), "load", "t")
	l.ok("", "delete", "t", "k000007")
	out := l.ok("", "diagnostics", "t", "--deep")
	if !strings.HasPrefix(out, "Tree t: 49 live keys, 1 tombstone and ") || !strings.Contains(out, " in 2 shards; counted, sampled ") || strings.Count(out, "\n") != 5 || !strings.Contains(out, "\nSHARD  SLOTS  LIVE") {
		t.Error(out)
	}
	if out := l.ok("", "diagnostics", "t"); !strings.Contains(out, "; estimated, sampled ") {
		t.Error(out)
	}
	var d struct{ Totals struct{ LiveKeys int64 } }
	if err := json.Unmarshal([]byte(l.ok("", "diagnostics", "t", "--deep", "--json")), &d); err != nil || d.Totals.LiveKeys != 49 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestDiagnosticsTellWhatIsOdd(t *testing.T) {
	l, s := fake(t)
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.WriteString(w, `{"tree":"t","incomplete":true,"bulkPending":true,"totals":{"liveKeys":1,"expired":2,"shards":3},"shards":[`+
			`{"shard":0,"opsPerSecond":12.34,"splitting":true,"split":{"role":"source","peer":2,"phase":"Drain"},"lease":{"held":true},"hotKeys":[{"key":"h","share":0.5}]},`+
			`{"shard":1,"splitting":true,"split":{"role":"source","phase":"BeginShadowWrite"},"bulkPending":true},{"shard":2,"split":{"role":"target","peer":0,"phase":"Drain"},"error":"gone"}]}`)
		return true
	}
	out := l.ok("", "diagnostics", "t")
	for _, want := range []string{
		"Past their expiry and still stored: 2 entries.", "A bulk load is open.", "Some shards could not be sampled", "12.3", "held", "gives to 2, Drain", "gives to a new shard, BeginShadowWrite",
		"takes from 0, Drain", "Shard 0: key h takes about 50% of the operations.", "Shard 1 may hold part of a chunk", "Shard 2 could not be sampled: gone",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// TestSessionChunksAreCutAlike: bounded by bytes as well, and the same in every
// run.
func TestSessionChunksAreCutAlike(t *testing.T) {
	var cuts [2][]int
	for run := range cuts {
		l, s := fake(t)
		s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/chunks/") {
				cuts[run] = append(cuts[run], int(r.ContentLength))
			}
			return false
		}
		l.ok(ndjson(100), "load", "t", "--mode", "session", "--chunk-bytes", "1000")
	}
	if fmt.Sprint(cuts[0]) != fmt.Sprint(cuts[1]) || len(cuts[0]) < 4 {
		t.Errorf("%v", cuts)
	}
}
