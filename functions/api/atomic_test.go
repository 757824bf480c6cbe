package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
)

func setOp(key, more string) string {
	return fmt.Sprintf(`{"op":"set","key":%q,"text":"new"%s}`, key, more)
}

func atomicBody(more string, ops ...string) string {
	return `{"operations":[` + strings.Join(ops, ",") + `],"atomic":true` + more + `}`
}

func TestAtomicBatch(t *testing.T) {
	r := newRig(t)
	old := rawVersion(r.put(k+"old", "1"))
	got := decode[resultsBody](r.do("POST", tr+"/batch", atomicBody(`,"operationId":"op 1"`,
		setOp("old", `,"ifVersion":"`+old+`"`), setOp("new", `,"ifAbsent":true`), `{"op":"delete","key":"never"}`)).wantStatus(200))
	for i, existed := range []bool{true, false, false} {
		res := got.Results[i]
		if res.Status != "ok" || res.Existed == nil || *res.Existed != existed || (res.Version == "") != (i == 2) {
			t.Errorf("result %d: %+v", i, res)
		}
	}
	r.do("GET", k+"old", "").wantBody("new")
	again := r.do("POST", tr+"/batch", atomicBody(`,"operationId":"op 1"`, `{"op":"delete","key":"never"}`, setOp("new", ""), setOp("old", ""))).wantStatus(200)
	if decode[resultsBody](again).Results[0].Key != "never" {
		t.Errorf("a repetition in another order: %s", again.body)
	}
	r.do("POST", tr+"/batch", atomicBody("")).wantStatus(200).wantBody(`{"results":[]}`)
}

func TestFailedConditionsOfAnAtomicBatch(t *testing.T) {
	r := newRig(t)
	one, two := r.put(k+"one", "1"), r.put(k+"two", "1")
	got := r.do("POST", tr+"/batch", atomicBody("", setOp("free", ""), setOp("two", `,"ifAbsent":true`), setOp("none", `,"ifVersion":"`+rawVersion(one)+`"`), setOp("one", `,"ifAbsent":true`)))
	p := got.wantHeader("ETag", two).wantProblem(412, CodeVersionMismatch)
	want := []failedBody{{1, "two", rawVersion(two)}, {2, "none", ""}, {3, "one", rawVersion(one)}}
	if p.Key != "two" || p.FailedCount != 3 || fmt.Sprint(p.Failed) != fmt.Sprint(want) || p.Tree != "t" {
		t.Errorf("problem %s", got.body)
	}
	r.do("GET", k+"free", "").wantProblem(404, CodeKeyNotFound)
	absent := r.do("POST", tr+"/batch", atomicBody("", setOp("none", `,"ifVersion":"`+rawVersion(one)+`"`)))
	absent.wantHeader("ETag", "").wantProblem(412, CodeVersionMismatch)
}

func TestManyFailedConditionsMakeNoEndlessProblem(t *testing.T) {
	m := &tree.BatchMismatchError{}
	for i := range 10_000 {
		m.Failed = append(m.Failed, tree.FailedCondition{Index: i, Key: strings.Repeat("\x01", 1000), Current: clock.Version{Time: 1}})
	}
	p := classify(&batchError{m})
	if n := len(mustMarshal(p)); n > 60<<10 || len(p.Failed) == 0 || p.FailedCount != 10_000 {
		t.Errorf("%d bytes, %d of %d listed", n, len(p.Failed), p.FailedCount)
	}
}

func TestAtomicBatchRefusals(t *testing.T) {
	var told []string
	r := newRig(t, func(c *Config) { c.ObserveAtomic = func(outcome string) { told = append(told, outcome) } })
	for name, body := range map[string]string{
		"key twice":            atomicBody("", setOp("a", ""), `{"op":"delete","key":"a"}`),
		"id without atomic":    `{"operations":[` + setOp("a", "") + `],"operationId":"x"}`,
		"id, atomic false":     `{"operations":[` + setOp("a", "") + `],"operationId":"x","atomic":false}`,
		"empty id":             atomicBody(`,"operationId":""`, setOp("a", "")),
		"id is null":           atomicBody(`,"operationId":null`, setOp("a", "")),
		"id is a number":       atomicBody(`,"operationId":1`, setOp("a", "")),
		"a bad one among them": atomicBody("", setOp("a", ""), `{"op":"delete","key":"b","text":""}`),
	} {
		p := r.do("POST", tr+"/batch", body).wantProblem(400, CodeInvalidArgument)
		if name == "id without atomic" && !strings.Contains(p.Detail, `"atomic":true`) {
			t.Errorf("the reason is not told: %s", p.Detail)
		}
	}
	r.do("POST", tr+"/batch", atomicBody(`,"operationId":"x"`, setOp("a", ""))).wantStatus(200)
	if p := r.do("POST", tr+"/batch", atomicBody(`,"operationId":"x"`, setOp("b", ""))).wantProblem(409, CodeOperationMismatch); !strings.Contains(p.Detail, "other keys") {
		t.Errorf("detail %s", p.Detail)
	}
	fail := func(err error) *reply {
		r.db.setFail(err)
		defer r.db.setFail(nil)
		return r.do("POST", tr+"/batch", atomicBody("", setOp("a", "")))
	}
	if p := fail(&batchError{tree.ErrOperationInProgress}).wantHeader("Retry-After", "1").wantProblem(409, CodeOperationInProgress); p.RetryAfter != 1 {
		t.Errorf("problem %+v", p)
	}
	if want := "invalid_argument committed operation_mismatch"; strings.Join(told, " ") != want {
		t.Errorf("told %v, want %s", told, want)
	}
	if got := atomicOutcome(&batchError{errors.Join(store.ErrOutcomeUnknown)}); got != outcomeUnknown {
		t.Errorf("a lost reply is told as %s", got)
	}
	if got := fail(tree.ErrOperationInProgress); got.Header.Get("Retry-After") != "" {
		t.Error("a bulk load that is open is to be waited for")
	}
}

func TestCursorPages(t *testing.T) {
	r := newRig(t)
	fill(r, "a/1", "a/2", "a/3", "b/1")
	for name, tt := range map[string]struct {
		body, as string
		pages    []string
	}{
		"prefix":    {`{"kind":"keys","prefix":"a/"}`, "", []string{`"key":"a/1"`, `"key":"a/3"`}},
		"entries":   {`{"kind":"entries","start":"a/2","snapshot":true}`, "?as=text", []string{`"key":"a/2","text":"v-a/2"`, `"key":"b/1"`}},
		"backwards": {`{"kind":"keys","reverse":true,"end":"b"}`, "", []string{`"key":"a/3"`, `"key":"a/1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			open := decode[cursorBody](r.do("POST", tr+"/cursors", tt.body).wantStatus(201))
			if (open.SnapshotVersion != "") != strings.Contains(tt.body, "snapshot") || open.ExpiresAt == "" {
				t.Errorf("opened as %+v", open)
			}
			next := tr + "/cursors/" + open.CursorID + "/next" + tt.as
			for i, want := range tt.pages {
				for range 2 {
					got := r.do("POST", next, fmt.Sprintf(`{"limit":2,"page":%d}`, i+1)).wantStatus(200)
					p := decode[pageBody](got)
					if p.Page != int64(i+1) || p.Deleted != nil || p.ExpiresAt == "" || p.HasMore != (i == 0) || !strings.Contains(string(got.body), `"entries":[{`+want) {
						t.Errorf("page %d: %s, want %s", i+1, got.body, want)
					}
					if strings.Contains(tt.body, `"keys"`) && strings.Contains(string(got.body), `"value"`) {
						t.Errorf("keys have values: %s", got.body)
					}
				}
			}
			if got := r.do("POST", next, "").wantStatus(200); !strings.Contains(string(got.body), `"page":3,"entries":[],"hasMore":false`) {
				t.Errorf("past the end: %s", got.body)
			}
			r.do("POST", next, `{"page":1}`).wantProblem(400, CodeInvalidArgument)
			r.do("DELETE", tr+"/cursors/"+open.CursorID, "").wantStatus(204).wantBody("")
			r.do("DELETE", tr+"/cursors/"+open.CursorID, "").wantProblem(404, CodeCursorNotFound)
			r.do("POST", next, "").wantProblem(404, CodeCursorNotFound)
		})
	}
}

func TestDeleteRangeByCursor(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b", "c", "d")
	open := decode[cursorBody](r.do("POST", tr+"/cursors", `{"kind":"delete-range","end":"d"}`).wantStatus(201))
	next := tr + "/cursors/" + open.CursorID + "/next"
	for i, want := range []string{`"deleted":2,"hasMore":true`, `"deleted":1,"hasMore":false`, `"deleted":0,"hasMore":false`} {
		if got := r.do("POST", next, `{"limit":2}`).wantStatus(200); !strings.Contains(string(got.body), fmt.Sprintf(`{"page":%d,%s`, i+1, want)) {
			t.Errorf("page %d: %s", i+1, got.body)
		}
	}
	r.do("GET", tr+"/count", "").wantStatus(200).wantBody(`{"count":1,"mapVersion":0}`)
}

func TestCursorRefusals(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Options.MaxPageEntries, c.Options.DefaultPageEntries = 10, 5 })
	r.do("POST", tr+"/cursors", `{"kind":"keys"}`).wantProblem(404, CodeTreeNotFound)
	fill(r, "a")
	for name, body := range map[string]string{
		"no body": "", "no kind": `{}`, "unknown kind": `{"kind":"values"}`, "kind is null": `{"kind":null}`, "unknown field": `{"kind":"keys","limit":5}`,
		"prefix and start": `{"kind":"keys","prefix":"a","start":"b"}`, "start after end": `{"kind":"keys","start":"b","end":"a"}`,
		"snapshot is text": `{"kind":"keys","snapshot":"yes"}`, "reverse delete": `{"kind":"delete-range","reverse":true}`,
		"snapshot of a delete": `{"kind":"delete-range","snapshot":true}`, "not UTF-8": "{\"kind\":\"keys\",\"start\":\"\xff\"}",
	} {
		t.Run(name, func(t *testing.T) { r.do("POST", tr+"/cursors", body).wantProblem(400, CodeInvalidArgument) })
	}
	r.do("POST", tr+"/cursors", `{"kind":"keys","start":"`+strings.Repeat("k", 1025)+`"}`).wantStatus(201)
	r.do("POST", tr+"/cursors", `{"kind":"keys","start":"`+strings.Repeat("k", 1026)+`"}`).wantProblem(413, CodeKeyTooLong)
	open := decode[cursorBody](r.do("POST", tr+"/cursors", `{"kind":"keys"}`).wantStatus(201))
	next := tr + "/cursors/" + open.CursorID + "/next"
	for name, body := range map[string]string{
		"limit 0": `{"limit":0}`, "limit over": `{"limit":11}`, "limit is text": `{"limit":"5"}`, "page 0": `{"page":0}`, "page -1": `{"page":-1}`,
		"page ahead": `{"page":2}`, "page is broken": `{"page":1.5}`, "unknown": `{"key":"a"}`, "space": " ", "array": `[]`,
	} {
		t.Run(name, func(t *testing.T) { r.do("POST", next, body).wantProblem(400, CodeInvalidArgument) })
	}
	r.do("POST", next+"?as=yaml", "").wantProblem(400, CodeInvalidArgument)
	r.do("POST", next+"?limit=1", "").wantProblem(400, CodeInvalidArgument)
	r.do("POST", tr+"/cursors/%2e%2e/next", "").wantProblem(404, CodeCursorNotFound)
	if p := decode[pageBody](r.do("POST", next, "{}").wantStatus(200)); p.Page != 1 {
		t.Errorf("a refused call has moved the cursor: page %d", p.Page)
	}
}

func TestErrorsOfCursors(t *testing.T) {
	r := newRig(t)
	fill(r, "a")
	for name, tt := range map[string]struct {
		err        error
		status     int
		code       Code
		open, next bool
	}{
		"not found": {tree.ErrCursorNotFound, 404, CodeCursorNotFound, false, true},
		"expired":   {tree.ErrSnapshotExpired, 410, CodeSnapshotExpired, false, true},
		"too many":  {tree.ErrTooManySnapshots, 429, CodeQuotaExceeded, true, false},
		"topology":  {tree.ErrTopologyUnstable, 503, CodeTopologyUnstable, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r.db.setFail(fmt.Errorf("cursor: %w", tt.err))
			defer r.db.setFail(nil)
			if tt.open {
				r.do("POST", tr+"/cursors", `{"kind":"keys","snapshot":true}`).wantProblem(tt.status, tt.code)
			}
			if tt.next {
				r.do("POST", tr+"/cursors/1/next", "").wantProblem(tt.status, tt.code)
			}
		})
	}
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{`{"kind":"keys","prefix":"a"}`, `{"kind":"entries","start":"","end":"\u0000","snapshot":true,"reverse":false}`, `{"limit":5,"page":1}`, `{`, "null", ""} {
		f.Add([]byte(s))
	}
	s := newServer(Config{Clock: clock.NewSystem(), Options: testOptions()}, newFakeDB())
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := s.parseCursor(body)
		switch {
		case err != nil:
			wantRefusal(t, err)
		case !json.Valid(body) || len(q.Bounds.From) > testOptions().MaxKeyLength+1:
			t.Fatalf("%q was accepted", body)
		}
		limit, page, err := s.parseNext(body)
		switch {
		case err != nil:
			wantRefusal(t, err)
		case limit < 1 || limit > testOptions().MaxPageEntries || page < 0:
			t.Fatalf("%q: limit %d, page %d", body, limit, page)
		}
	})
}

func TestRetryAfterOfANamedBatchIsTheStoragesAdvice(t *testing.T) {
	err := fmt.Errorf("%w: %w", tree.ErrOperationInProgress, &store.ThrottledError{RetryAfter: 7 * time.Second, Err: errors.New("busy")})
	if p := classify(&batchError{err}); p.RetryAfter != 7 || p.Code != CodeOperationInProgress {
		t.Errorf("problem %+v", p)
	}
}
