package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/latticekv/lattice/client/clienttest"
)

// ndjson makes n rows.
func ndjson(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"key\":\"k%06d\",\"text\":\"value %d\"}\n", i, i)
	}
	return b.String()
}

func zip(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestImportForms(t *testing.T) {
	rows := "{\"key\":\"a\",\"text\":\"1\"}\n{\"key\":\"b\",\"json\":{\"x\": 2}}\n{\"key\":\"c\",\"value\":\"/w==\"}\n"
	for name, tc := range map[string]struct {
		file, content, stdin string
		args                 []string
		want                 map[string]string
	}{
		"ndjson":           {file: "x.ndjson", content: rows, want: map[string]string{"a": "1", "b": `{"x":2}`, "c": "\xff"}},
		"gz":               {file: "x.ndjson.gz", content: zip(t, rows), want: map[string]string{"a": "1", "b": `{"x":2}`, "c": "\xff"}},
		"stdin":            {stdin: rows, args: []string{"-"}, want: map[string]string{"a": "1"}},
		"stdin by default": {stdin: zip(t, rows), want: map[string]string{"a": "1"}},
		"csv":              {file: "x.csv", content: "id,name\n1,\"A, B\"\n", want: map[string]string{"1": `{"id":"1","name":"A, B"}`}},
		"csv columns":      {file: "x.csv", content: "id,name\n1,x\n", args: []string{"--key-column", "name", "--value-column", "id"}, want: map[string]string{"x": "1"}},
		"csv template":     {file: "x.csv", content: "id,name\n1,x\n", args: []string{"--key-template", "u/{id:4}", "--value-column", "name"}, want: map[string]string{"u/0001": "x"}},
		"tsv":              {file: "x.tsv", content: "key\tvalue\na\t1,2\n", want: map[string]string{"a": "1,2"}},
		"no header":        {stdin: "a|1\n", args: []string{"--format", "csv", "--delimiter", "|", "--no-header", "--value-column", "2"}, want: map[string]string{"a": "1"}},
		"b64":              {file: "x.csv", content: "key,value\na,/w==\n", args: []string{"--b64"}, want: map[string]string{"a": "\xff"}},
		"content type":     {stdin: `{"key":"a","text":"<b>","contentType":"text/html"}`, want: map[string]string{"a": "<b>"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, s := fake(t)
			args := []string{"import", "t"}
			if tc.file != "" {
				args = append(args, file(t, tc.file, tc.content))
			}
			l.ok(tc.stdin, append(args, tc.args...)...)
			for k, want := range tc.want {
				if got, ok := s.Value("t", k); !ok || string(got) != want {
					t.Errorf("%q is %q, want %q", k, got, want)
				}
			}
		})
	}
}

func TestImportReportsBadRows(t *testing.T) {
	l, s := fake(t)
	content := "{\"key\":\"a\",\"text\":\"1\"}\nnot json\n{\"key\":\"\",\"text\":\"x\"}\n{\"key\":\"\xff\",\"text\":\"x\"}\n" +
		`{"key":"` + strings.Repeat("k", 1025) + "\",\"text\":\"x\"}\n{\"key\":\"b\",\"text\":\"2\"}\n"
	bad := filepath.Join(t.TempDir(), "bad.ndjson")
	r := l.run("", "import", "t", file(t, "x.ndjson", content), "--reject-file", bad)
	if r.code != ExitNo || s.Len("t") != 2 {
		t.Fatalf("exit %d, %d keys\n%s%s", r.code, s.Len("t"), r.out, r.err)
	}
	for _, want := range []string{"line 2: malformed JSON", "line 3: the key is empty", "line 4: not UTF-8", "line 5: key too long"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("lacks %q:\n%s", want, r.err)
		}
	}
	if !strings.HasPrefix(r.out, "Read 6 rows: 2 written to t in ") || !strings.Contains(r.out, ", 4 failed.") {
		t.Errorf("summary %q", r.out)
	}
	var lines []string
	for line := range strings.Lines(readString(t, bad)) {
		var j struct {
			Line                   int
			Reason, Row, RowBase64 string
		}
		if err := json.Unmarshal([]byte(line), &j); err != nil || j.Reason == "" || j.Row == "" && j.RowBase64 == "" {
			t.Errorf("reject %q: %v", line, err)
		}
		lines = append(lines, fmt.Sprint(j.Line))
	}
	slices.Sort(lines)
	if !slices.Equal(lines, []string{"2", "3", "4", "5"}) {
		t.Errorf("rejected lines %v", lines)
	}
}

func TestImportJSONSummary(t *testing.T) {
	l, _ := fake(t)
	r := l.run("key,value\na,1\nb\nc,\"x\"y\n", "import", "t", "--format", "csv", "--json")
	var sum struct {
		Tree                    string
		Read, Written, Rejected int
		Complete                bool
		Rejects                 []struct {
			Line   int
			Reason string
		}
	}
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || r.code != ExitNo {
		t.Fatalf("exit %d, %v\n%s", r.code, err, r.out)
	}
	if sum.Tree != "t" || sum.Read != 3 || sum.Written != 1 || sum.Rejected != 2 || !sum.Complete || len(sum.Rejects) != 2 || sum.Rejects[0].Line != 3 {
		t.Fatalf("%+v", sum)
	}
}

func TestImportReportIsBounded(t *testing.T) {
	l, _ := fake(t)
	r := l.run(strings.Repeat("bad\n", 1000), "import", "t")
	if n := strings.Count(r.err, "line "); r.code != ExitNo || n != shownRejects || !strings.Contains(r.err, "… and 980 failed rows more") {
		t.Fatalf("exit %d, %d lines\n%s", r.code, n, r.err)
	}
	r = l.run(strings.Repeat("bad\n", 1000), "import", "t", "--max-rejects", "5")
	if r.code != ExitNo || !strings.Contains(r.out, "Read 5 rows") || !strings.Contains(r.err, "too many rejected rows") {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestImportRefusesFiles(t *testing.T) {
	l, _ := fake(t)
	l.fails(ExitFailed, "no such file", "", "import", "t", "/nonexistent")
	l.fails(ExitUsage, `there is no column "x"`, "", "import", "t", file(t, "a.csv", "a,b\n"), "--key-column", "x")
	l.fails(ExitFailed, "cut off or damaged", "", "import", "t", file(t, "a.ndjson.gz", zip(t, ndjson(10_000))[:2000]))
	l.fails(ExitFailed, "cut off or damaged", "", "import", "t", file(t, "a.csv.gz", zip(t, "key,value\n")[:12]))
	l.fails(ExitFailed, "cut off or damaged", "", "import", "t", file(t, "a.csv.gz", "\x1f\x8bno gzip at all"))
	if r := l.fails(ExitFailed, "is a directory", "", "import", "t", t.TempDir()); strings.Contains(r.out, "durable") {
		t.Errorf("advice on how to go on where nothing was done: %s", r.out)
	}
	l.fails(ExitFailed, "the input is incomplete", "", "import", "t", file(t, "a.ndjson", ndjson(3)+`{"end":true,"count":4}`))
	l.fails(ExitFailed, "create reject file", "", "import", "t", "--reject-file", "/nonexistent/x", file(t, "a.ndjson", ndjson(1)))
}

func TestImportWaitsForABusyService(t *testing.T) {
	l, s := fake(t)
	var n atomic.Int64
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if n.Add(1)%3 == 0 {
			clienttest.Problem(w, 503, "storage_throttled", "slow down", 0)
			return true
		}
		return false
	}
	l.ok("", "import", "t", file(t, "x.ndjson", ndjson(2000)), "--batch-size", "100")
	if s.Len("t") != 2000 {
		t.Fatalf("%d keys", s.Len("t"))
	}
}

func TestImportInterrupted(t *testing.T) {
	l, s := fake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	l.ctx = ctx
	var n atomic.Int64
	s.Intercept = func(http.ResponseWriter, *http.Request) bool {
		if n.Add(1) == 5 {
			cancel(ErrInterrupted)
		}
		return false
	}
	name := file(t, "x.ndjson", ndjson(20_000))
	r := l.run("", "import", "t", name, "--batch-size", "50")
	if r.code != ExitInterrupted || !strings.Contains(r.err, "interrupted") {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	_, tail, ok := strings.Cut(r.out, "--skip-rows=")
	skip := strings.TrimSuffix(strings.TrimSpace(tail), ".")
	if !ok || s.Len("t") == 0 || s.Len("t") >= 20_000 || fmt.Sprint(s.Len("t")) != skip {
		t.Fatalf("%d keys, %q", s.Len("t"), r.out)
	}
	l.ctx = t.Context()
	l.ok("", "import", "t", name, "--skip-rows", skip)
	if s.Len("t") != 20_000 {
		t.Fatalf("%d keys after going on", s.Len("t"))
	}
}

func TestImportInterruptedWhileInputIsSilent(t *testing.T) {
	l, s := fake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	in, feed := io.Pipe()
	go func() {
		_, _ = io.WriteString(feed, ndjson(10))
		for s.Len("t") < 10 {
			<-time.After(5 * time.Millisecond)
		}
		cancel(ErrInterrupted)
	}()
	defer func() { _ = feed.Close() }()
	out := &safeBuffer{}
	code := Run(ctx, []string{"--server", l.url, "import", "t"}, Console{In: in, Out: out, Err: out})
	if code != ExitInterrupted || !strings.Contains(out.String(), "10 written") {
		t.Fatalf("exit %d: %s", code, out)
	}
}

func TestImportShowsProgress(t *testing.T) {
	l, s := fake(t)
	s.Intercept = func(http.ResponseWriter, *http.Request) bool { <-time.After(300 * time.Millisecond); return false }
	name := file(t, "x.ndjson", ndjson(5000))
	r := l.run("", "import", "t", name, "--concurrency", "1")
	if !strings.Contains(r.err, "import: ") || !strings.Contains(r.err, "rows/s") || r.code != ExitOK {
		t.Fatalf("exit %d: %q", r.code, r.err)
	}
	l.tty = true
	if r = l.run("", "import", "t", name, "--concurrency", "1"); !strings.Contains(r.err, "[=") && !strings.Contains(r.err, "[>") {
		t.Fatalf("no bar: %q", r.err)
	}
	l.tty = false
	if r = l.run("", "import", "t", name, "--concurrency", "1", "--json"); !strings.Contains(r.err, `"progress":"import"`) {
		t.Fatalf("no JSON: %q", r.err)
	}
	if r = l.run("", "import", "t", name, "--concurrency", "1", "--progress", "none"); r.err != "" {
		t.Fatalf("%q", r.err)
	}
}

func TestExportAndBack(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(2500), "import", "t")
	l.ok("a\r\n\"b\",\tc", "set", "t", "odd,\"key\n", "-")
	l.ok("", "set", "t", "exp", "v", "--ttl", "1h")
	dir := t.TempDir()
	for name, back := range map[string][]string{"x.ndjson": nil, "x.ndjson.gz": nil, "x.csv": nil, "x.tsv": nil, "b.csv": {"--b64"}} {
		path := filepath.Join(dir, name)
		args := []string{"export", "t", path}
		if back != nil {
			args = append(args, "--as", "base64")
		}
		if out := l.ok("", args...); !strings.HasPrefix(out, "Exported 2,502 entries of t to "+path) {
			t.Fatal(out)
		}
		tree := strings.ReplaceAll(name, ".", "-")
		l.ok("", append([]string{"import", tree, path}, back...)...)
		l.is(l.ok("", "scan", tree), l.ok("", "scan", "t"))
		if v, _ := s.Value(tree, "odd,\"key\n"); string(v) != "a\r\n\"b\",\tc" {
			t.Fatalf("%s: %q", name, v)
		}
		if out := l.ok("", "get", tree, "exp", "--json"); !strings.Contains(out, "expiresAt") {
			t.Fatalf("%s: the expiry is lost: %s", name, out)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	l.is(l.ok("", "export", "t", "--prefix", "k00000", "--as", "text", "--format", "csv"),
		"key,value,expiresAt\nk000000,value 0,\nk000001,value 1,\nk000002,value 2,\nk000003,value 3,\nk000004,value 4,\nk000005,value 5,\nk000006,value 6,\nk000007,value 7,\nk000008,value 8,\nk000009,value 9,\n")
	if out := l.ok("", "export", "t", filepath.Join(dir, "one"), "--prefix", "exp", "--json"); !strings.Contains(out, `"entries":1`) {
		t.Fatal(out)
	}
}

func TestExportSavesAllOrNothing(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(10), "import", "t")
	l.ok("\xff", "set", "bin", "k", "-")
	dir := t.TempDir()
	path := filepath.Join(dir, "x.csv")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.fails(ExitFailed, `the value of "k" is not text`, "", "export", "bin", path)
	l.fails(ExitNo, "tree_not_found", "", "export", "none", path)
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.Header.Get("Accept"), "ndjson") {
			return false
		}
		_, _ = io.WriteString(w, `{"key":"a","value":"","version":"1"}`+"\n")
		return true
	}
	l.fails(ExitFailed, "nothing was saved", "", "export", "t", path)
	r := l.fails(ExitFailed, "the output is not complete", "", "export", "t")
	l.is(r.out, `{"key":"a","value":"","version":"1"}`+"\n")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || readString(t, path) != "before" {
		t.Fatalf("%v, %v: %q", files, err, readString(t, path))
	}
	l.fails(ExitFailed, "does not exist", "", "export", "t", filepath.Join(dir, "none", "x"))
}
