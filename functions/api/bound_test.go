package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// bounded asks by a host that can return 4,000 bytes.
func (r *rig) bounded(method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, BoundAnswer(httptest.NewRequest(method, path, strings.NewReader(body)), 4000))
	return w
}

// TestNothingIsDoneWhoseAnswerTheHostCannotReturn: the caller would have to take it
// for refused.
func TestNothingIsDoneWhoseAnswerTheHostCannotReturn(t *testing.T) {
	r := newRig(t)
	refused := func(what string, w *httptest.ResponseRecorder, status int) {
		t.Helper()
		if w.Code != status || status == 413 && !strings.Contains(w.Body.String(), `"limit":4000`) {
			t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, status)
		}
	}
	batch := func(n int, key string, atomic bool) string {
		ops := make([]string, n)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"set","key":"%s%d","text":"x"}`, key, i)
		}
		return fmt.Sprintf(`{"atomic":%t,"operations":[%s]}`, atomic, strings.Join(ops, ","))
	}
	for _, atomic := range []bool{false, true} {
		refused("many", r.bounded("POST", tr+"/batch", batch(40, "k", atomic)), 413)
		refused("keys that grow", r.bounded("POST", tr+"/batch", batch(4, strings.Repeat("<", 200), atomic)), 413)
		r.do("GET", tr+"/count", "").wantProblem(404, CodeTreeNotFound)
	}
	refused("few", r.bounded("POST", tr+"/batch", batch(25, "k", false)), 200)
	if size := r.do("POST", tr+"/batch", batch(25, "k", true)).wantStatus(200).body; len(size) > 25*resultBytes {
		t.Errorf("%d bytes of results", len(size))
	}

	r.put(k+"a", strings.Repeat("<", 5000))
	refused("value", r.bounded("GET", k+"a", ""), 413)
	refused("its head", r.bounded(http.MethodHead, k+"a", ""), 200)
	refused("get-or-set", r.bounded("PUT", k+"a?mode=get-or-set", "new"), 413)
	r.do("GET", k+"a", "").wantStatus(200).wantBody(strings.Repeat("<", 5000))
	refused("page", r.bounded("GET", tr+"/entries", ""), 413)
	refused("many keys", r.bounded("POST", tr+"/batch-get", `{"keys":["a"]}`), 413)

	r.do("POST", tr+"/batch", batch(100, "m", false)).wantStatus(200)
	open := decode[cursorBody](r.do("POST", tr+"/cursors", `{"kind":"keys"}`).wantStatus(201))
	next := tr + "/cursors/" + open.CursorID + "/next"
	refused("page of a cursor", r.bounded("POST", next, `{"limit":100}`), 413)
	if w := r.bounded("POST", next, `{"limit":5}`); !strings.HasPrefix(w.Body.String(), `{"page":1,"entries":[{"key":"a"`) {
		t.Errorf("the page that was refused is passed: %s", w.Body)
	}
}

// TestHeadersAreJudgedBeforeAnythingIsDone, those of the answer too.
func TestHeadersAreJudgedBeforeAnythingIsDone(t *testing.T) {
	r := newRig(t)
	r.put(k+"a", "old")
	open := decode[cursorBody](r.do("POST", tr+"/cursors", `{"kind":"keys"}`).wantStatus(201))
	next := tr + "/cursors/" + open.CursorID + "/next"
	for _, c := range []struct{ method, path, body string }{
		{"PUT", k + "a", "new"}, {"PUT", k + "b", "new"}, {"DELETE", k + "a", ""}, {"POST", tr + "/batch", `{"operations":[{"op":"delete","key":"a"}]}`},
		{"POST", tr + "/batch", `{"atomic":true,"operations":[{"op":"delete","key":"a"}]}`}, {"DELETE", tr + "/entries?all=true", ""},
		{"POST", next, ""}, {"PUT", "/v1/trees/other", "{}"}, {"DELETE", tr, ""}, {"POST", tr + "/bulk-load", `{"entries":[]}`},
		{"PUT", "/v1/trees/other/bulk-loads/x", ""}, {"POST", tr + "/reshard", `{"shardCount":9}`},
	} {
		r.do(c.method, c.path, c.body, "Want-Content-Digest", "sha-256").wantProblem(400, CodeInvalidArgument)
	}
	r.do("GET", k+"a", "").wantStatus(200).wantBody("old")
	r.do("GET", tr+"/count", "").wantStatus(200).wantBody(`{"count":1,"mapVersion":0}`)
	r.do("GET", "/v1/trees/other", "").wantProblem(404, CodeTreeNotFound)
	r.do("POST", next, "").wantStatus(200).wantHeader("Content-Type", jsonType)
	if got := r.do("POST", next, `{"page":1}`).wantStatus(200); !strings.Contains(string(got.body), `"key":"a"`) {
		t.Errorf("the first page is %s", got.body)
	}
}
