package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// TestALoadInTheWayIsNamed: the caller learns whom to wait for, or what to end.
func TestALoadInTheWayIsNamed(t *testing.T) {
	r := newRig(t)
	r.db.create("t", 4, nil)
	until := time.Date(2026, 5, 4, 12, 13, 14, 0, time.UTC)
	r.db.fail = fmt.Errorf("begin: %w", &tree.BusyError{Until: until, RetryAfter: 2500 * time.Millisecond})
	for _, path := range []string{bulkOnce, bulkStream} {
		p := r.ndjson("POST", path, lines("a")).wantHeader("Retry-After", "3").wantProblem(409, CodeOperationInProgress)
		if p.RetryAfter != 3 || p.OperationID != "" || !strings.Contains(p.Detail, "one-shot or streamed load") || !strings.Contains(p.Detail, "12:13:14") {
			t.Errorf("%+v", p)
		}
	}
	r.db.fail = &tree.BusyError{OperationID: "op-7"}
	if p := r.do("PUT", loads+"x", "").wantHeader("Retry-After", "").wantProblem(409, CodeOperationInProgress); p.OperationID != "op-7" || !strings.Contains(p.Detail, "op-7") {
		t.Errorf("%+v", p)
	}
}

func TestMismatchesOfASessionAreTold(t *testing.T) {
	r := newRig(t)
	r.db.create("t", 4, nil)
	for want, err := range map[string]*tree.BulkMismatchError{
		"other contents":        {OperationID: "x", Status: tree.BulkOpen, Chunk: 3},
		"x is committed":        {OperationID: "x", Status: tree.BulkCommitted, Chunk: -1},
		"x is aborted":          {OperationID: "x", Status: tree.BulkAborted, Chunk: -1},
		"3 of bulk load x was ": {OperationID: "x", Status: tree.BulkOpen, Chunk: 3, Unacknowledged: true},
	} {
		r.db.fail = err
		p := r.ndjson("PUT", loads+"x/chunks/3", lines("a")).wantProblem(409, CodeOperationMismatch)
		if !strings.Contains(p.Detail, want) || p.OperationID != "x" || (p.ChunkIndex != nil) != (err.Chunk >= 0) || p.ChunkIndex != nil && *p.ChunkIndex != 3 {
			t.Errorf("%s: %+v", want, p)
		}
	}
}

func TestSessionsAreListed(t *testing.T) {
	r := newRig(t)
	r.do("GET", tr+"/bulk-loads", "").wantProblem(404, CodeTreeNotFound)
	r.db.create("t", 4, nil)
	r.do("GET", tr+"/bulk-loads", "").wantStatus(200).wantBody(`{"bulkLoads":[]}`)
	r.do("PUT", loads+"one", "{}").wantStatus(201)
	r.do("DELETE", loads+"one", "").wantStatus(200)
	r.do("PUT", loads+"two", " {} ").wantStatus(201)
	if got := decode[loadsBody](r.do("GET", tr+"/bulk-loads", "").wantStatus(200)); len(got.BulkLoads) != 2 || got.BulkLoads[0].UpdatedAt < got.BulkLoads[1].UpdatedAt || got.BulkLoads[0].Status == "" {
		t.Errorf("%+v", got)
	}
	if got := decode[loadsBody](r.do("GET", tr+"/bulk-loads?limit=1", "").wantStatus(200)); len(got.BulkLoads) != 1 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"0", "1001", "x"} {
		r.do("GET", tr+"/bulk-loads?limit="+bad, "").wantProblem(400, CodeInvalidArgument)
	}
}

// TestBeginAndCommitTakeNoMembers: a setting that is not known there must not
// seem to be taken.
func TestBeginAndCommitTakeNoMembers(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{`{"enforceLimits":true}`, `[]`, `{`, `{} {}`} {
		r.do("PUT", loads+"x", body).wantProblem(400, CodeInvalidArgument)
	}
	if len(r.db.trees) != 0 {
		t.Error("a refused begin made the tree")
	}
	r.do("PUT", loads+"x", "").wantStatus(201)
	r.do("POST", loads+"x/commit", `{"force":true}`).wantProblem(400, CodeInvalidArgument)
	if got := r.db.trees["t"].loads["x"].state.Status; got != tree.BulkOpen {
		t.Errorf("it is %s", got)
	}
	r.do("POST", loads+"x/commit", "{}").wantStatus(200)
}

// TestNoEntriesInEitherForm are loaded as none.
func TestNoEntriesInEitherForm(t *testing.T) {
	for _, form := range [][2]string{{ndjsonType, ""}, {ndjsonType, "\n \r\n"}, {ndjsonType, "{\"end\":true,\"count\":0}\n"}, {jsonType, `{"entries":[]}`}} {
		r := newRig(t)
		r.do("POST", bulkOnce, form[1], "Content-Type", form[0]).wantStatus(200).wantBody(`{"acceptedEntryCount":0,"totalLiveKeys":0}`)
		r.do("PUT", loads+"x", "").wantStatus(201)
		r.do("PUT", loads+"x/chunks/0", form[1], "Content-Type", form[0]).wantStatus(200).wantBody(`{"chunkIndex":0,"acceptedEntryCount":0,"nextChunkIndex":1}`)
	}
}

// TestADigestIsNotALineAtFault: it covers the body.
func TestADigestIsNotALineAtFault(t *testing.T) {
	for _, path := range []string{bulkOnce, bulkStream} {
		r := newRig(t)
		r.db.create("t", 4, nil)
		p := r.ndjson("POST", path, lines("a", "b"), "Content-Digest", digestOf([]byte("else"))).wantProblem(400, CodeDigestMismatch)
		if p.Line != 0 || strings.HasPrefix(p.Detail, "line") {
			t.Errorf("%+v", p)
		}
	}
}

func TestTooManyEntriesAreTooLarge(t *testing.T) {
	p := classify(&tree.LimitError{What: "entries", Size: 11, Limit: 10})
	if p.Code != CodeRequestTooLarge || p.Limit != 10 || !strings.Contains(p.Detail, "10 entries") {
		t.Errorf("%+v", p)
	}
}

// TestEncodingsOfAnEntryAreOne: how a value is written is not part of it; its
// media type is, and text has another by default than bytes.
func TestEncodingsOfAnEntryAreOne(t *testing.T) {
	r := newRig(t)
	var got []tree.BulkEntry
	for _, line := range []string{
		`{"key":"\u0061","value":"eA==","contentType":"text/plain; charset=utf-8"}`, `{"key":"a","text":"x"}`, `{ "text" : "\u0078", "key": "a"}`,
	} {
		src := &lineSource{lines: &heldLines{[]byte(line)}, parse: r.api.newEntryParser()}
		var e tree.BulkEntry
		if err := src.Next(context.Background(), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	for _, e := range got {
		if e.Key != "a" || string(e.Value) != "x" || e.Type != textType {
			t.Errorf("%+v", e)
		}
	}
}

// TestAMalformedLoadMakesNoTree: of a one-shot load what fits into memory is
// looked at before a tree is made for it.
func TestAMalformedLoadMakesNoTree(t *testing.T) {
	r := newRig(t)
	if p := r.ndjson("POST", bulkOnce, lines("a", "b", "c")+"x\n").wantProblem(400, CodeInvalidArgument); p.Line != 4 {
		t.Errorf("%+v", p)
	}
	if len(r.db.trees) != 0 {
		t.Error("it made the tree")
	}
	many := strings.Repeat("k", 100)
	var keys []string
	for i := range 2000 {
		keys = append(keys, fmt.Sprintf("%s%04d", many, i))
	}
	r.ndjson("POST", bulkOnce, lines(keys...)).wantStatus(200).wantBody(`{"acceptedEntryCount":2000,"totalLiveKeys":2000}`)
	r.do("GET", k+keys[1], "").wantBody(keys[1])
	r.do("GET", k+keys[1999], "").wantBody(keys[1999])
}
