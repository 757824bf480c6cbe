package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

// ops are operations as lines.
func ops(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// versionOf asks for the version of a key.
func (l *tool) versionOf(tree, key string) string {
	l.t.Helper()
	var e struct{ Version string }
	if err := json.Unmarshal([]byte(l.ok("", "get", tree, key, "--json")), &e); err != nil {
		l.t.Fatal(err)
	}
	return e.Version
}

func TestBatch(t *testing.T) {
	l, s := fake(t)
	l.ok("", "set", "t", "old", "1")
	in := ops(`{"op":"set","key":"new","text":"x","ttl":"1h","ifAbsent":true}`, "", fmt.Sprintf(`{"op":"set","key":"old","json":{"a": 2},"ifVersion":%q}`, l.versionOf("t", "old")), `{"op":"delete","key":"a\nb"}`)
	out := l.ok(in, "batch", "t", "--operation-id", "x")
	v := l.versionOf("t", "new")
	want := "OP      KEY     STATUS  EXISTED  VERSION\nset     new     ok      no       " + v + "\nset     old     ok      yes      " + v + "\ndelete  \"a\\nb\"  ok      no       -\n"
	l.is(out, want)
	l.is(l.ok("", "get", "t", "old"), `{"a":2}`)
	l.is(l.ok(in, "batch", "t", "-", "--operation-id", "x"), want)
	l.fails(ExitNo, "operation_mismatch", `{"op":"delete","key":"old"}`, "batch", "t", "--operation-id", "x")
	var res struct {
		OperationID string
		Results     []batchResult
	}
	if err := json.Unmarshal([]byte(l.ok("", "batch", "t", file(t, "ops.ndjson", `{"op":"delete","key":"old"}`), "--json")), &res); err != nil {
		t.Fatal(err)
	}
	if r := res.Results[0]; res.OperationID == "" || r.Line != 1 || r.Op != "delete" || r.Status != "ok" || r.Existed == nil || !*r.Existed {
		t.Fatalf("%+v", res)
	}
	if n := s.Len("t"); n != 1 {
		t.Fatalf("%d keys", n)
	}
}

func TestBatchWhoseConditionsFail(t *testing.T) {
	l, s := fake(t)
	l.ok("", "set", "t", "b", "1")
	v := l.versionOf("t", "b")
	in := ops(`{"op":"set","key":"a","text":"x"}`, "", `{"op":"set","key":"b","text":"x","ifAbsent":true}`, fmt.Sprintf(`{"op":"delete","key":"c","ifVersion":%q}`, v))
	r := l.fails(ExitNo, "", in, "batch", "t")
	l.is(r.out, "")
	l.is(r.err, "lattice: nothing was written: 2 conditions failed\nline 3: key b has version "+v+"\nline 4: key c does not exist\n")
	r = l.fails(ExitNo, "", in, "batch", "t", "--json")
	var e struct {
		Error struct {
			ExitCode, Status int
			Code             string
			Failed           []failedCondition
		}
	}
	if err := json.Unmarshal([]byte(r.err), &e); err != nil || e.Error.Status != 412 || e.Error.Code != "version_mismatch" || len(e.Error.Failed) != 2 || e.Error.Failed[0] != (failedCondition{3, "b", v}) {
		t.Fatalf("%s, %v", r.err, err)
	}
	if s.Len("t") != 1 {
		t.Fatal("something was written")
	}
	var many strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, "{\"op\":\"delete\",\"key\":\"k%d\",\"ifVersion\":\"v\"}\n", i)
	}
	if r := l.fails(ExitNo, "… and 10 conditions more", many.String(), "batch", "t"); strings.Count(r.err, "\n") != 22 {
		t.Errorf("%s", r.err)
	}
	r = l.run(in, "batch", "t", "--no-atomic")
	if r.code != ExitNo || !strings.Contains(r.out, "set     a    ok                -        v") || !strings.Contains(r.out, "set     b    version_mismatch  -        "+v) {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	if s.Len("t") != 2 {
		t.Error("what could be written was not")
	}
}

func TestBatchRefusesBadInput(t *testing.T) {
	l, s := fake(t)
	del := `{"op":"delete","key":"a"}`
	l.fails(ExitUsage, "line 3: malformed JSON", ops(del, "", "x"), "batch", "t")
	l.fails(ExitUsage, "line 2: key a is that of line 1;", ops(del, del), "batch", "t")
	l.fails(ExitUsage, "no operations", "\n", "batch", "t")
	l.fails(ExitUsage, "excludes --no-atomic", del, "batch", "t", "--no-atomic", "--operation-id", "x")
	l.fails(ExitFailed, "no such file", "", "batch", "t", "/does/not/exist")
	l.fails(ExitUsage, "invalid_argument", del, "batch", "t", "--operation-id", strings.Repeat("x", 257))
	l.ok(ops(del, del), "batch", "t", "--no-atomic")
	if n := s.Requests("POST batch"); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestBatchInDoubtTellsHowToGoOn interrupts the command when the batch has been
// done: the command that is told brings the outcome.
func TestBatchInDoubtTellsHowToGoOn(t *testing.T) {
	l, s := fake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	l.ctx = ctx
	inside := false
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if inside {
			return false
		}
		inside = true
		s.ServeHTTP(httptest.NewRecorder(), r)
		cancel(ErrInterrupted)
		<-r.Context().Done()
		return true
	}
	in := ops(`{"op":"set","key":"a","text":"1","ifAbsent":true}`)
	r := l.fails(ExitInterrupted, "interrupted\nThe batch is done or not, as a whole; repeat it with --operation-id ", in, "batch", "t")
	_, rest, _ := strings.Cut(r.err, "--operation-id ")
	id, _, _ := strings.Cut(rest, " ")
	l.ctx, s.Intercept = t.Context(), nil
	if out := l.ok(in, "batch", "t", "--operation-id", id); !strings.Contains(out, "set  a    ok      no") {
		t.Errorf("%s", out)
	}
	l.fails(ExitNo, "1 condition failed", in, "batch", "t")
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		clienttest.Problem(w, 500, "internal", "d", 0)
		return true
	}
	r = l.fails(ExitFailed, `"operationId":"mine"`, in, "batch", "t", "--operation-id", "mine", "--json")
	if !strings.Contains(r.err, "repeat it with --operation-id mine") {
		t.Errorf("%s", r.err)
	}
}

func TestBatchOfASilentInputIsInterrupted(t *testing.T) {
	l, _ := fake(t)
	in, silent := io.Pipe()
	defer silent.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = silent.Write([]byte(ops(`{"op":"delete","key":"a"}`)))
		cancel(ErrInterrupted)
	}()
	out := &safeBuffer{}
	if code := Run(ctx, []string{"--server", l.url, "batch", "t"}, Console{In: in, Out: out, Err: out}); code != ExitInterrupted || strings.Contains(out.String(), "repeat") {
		t.Fatalf("exit %d: %s", code, out)
	}
}
