package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
)

const (
	bulkOnce   = tr + "/bulk-load"
	bulkStream = tr + "/bulk-load?mode=stream"
	loads      = tr + "/bulk-loads/"
)

// ndjson sends newline-delimited JSON.
func (r *rig) ndjson(method, path, body string, header ...string) *reply {
	r.t.Helper()
	return r.do(method, path, body, append([]string{"Content-Type", ndjsonType}, header...)...)
}

// lines are entries with the key as the value, one a line.
func lines(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "{\"key\":%q,\"text\":%q}\n", k, k)
	}
	return b.String()
}

func (r *rig) stored() []string {
	r.db.mu.Lock()
	defer r.db.mu.Unlock()
	if t := r.db.trees["t"]; t != nil {
		return slices.Sorted(maps.Keys(t.items))
	}
	return nil
}

func (r *rig) wantStored(keys ...string) {
	r.t.Helper()
	if got := r.stored(); !slices.Equal(got, keys) {
		r.t.Errorf("stored %q, want %q", got, keys)
	}
}

func TestBulkLoadTakesBothForms(t *testing.T) {
	const entries = `{"key":"b","value":"AP8="},{"key":"a","text":"é"},{"key":"c","json":{"x": 1},"contentType":"application/cbor","ttl":60},{"key":"d","value":"","expiresAt":"2100-01-01T00:00:00Z"}`
	for name, body := range map[string][2]string{
		"lines":   {ndjsonType, strings.ReplaceAll(entries, "},{", "}\n{") + "\n"},
		"cut off": {ndjsonType + "; charset=utf-8", strings.ReplaceAll(entries, "},{", "}\r\n\r\n{")},
		"ended":   {ndjsonType, strings.ReplaceAll(entries, "},{", "}\n{") + "\n{\"end\":true,\"count\":4}\n"},
		"json":    {jsonType, `{"entries":[` + entries + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.do("POST", bulkOnce, body[1], "Content-Type", body[0]).wantStatus(200).wantBody(`{"acceptedEntryCount":4,"totalLiveKeys":4}`)
			r.wantStored("a", "b", "c", "d")
			r.do("GET", k+"a", "").wantBody("é").wantHeader("Content-Type", textType)
			r.do("GET", k+"b", "").wantBody("\x00\xff").wantHeader("Content-Type", defaultType)
			got := r.do("GET", k+"c", "").wantBody(`{"x":1}`).wantHeader("Content-Type", "application/cbor")
			if at, err := time.Parse(time.RFC3339, got.Header.Get("Lattice-Expires-At")); err != nil || time.Until(at) > time.Minute || time.Until(at) < 30*time.Second {
				t.Errorf("expires at %s: %v", at, err)
			}
			r.do("GET", k+"d", "").wantBody("").wantHeader("Lattice-Expires-At", "2100-01-01T00:00:00.000Z")
			r.ndjson("POST", bulkOnce, lines("x")).wantProblem(409, CodeTreeNotEmpty)
		})
	}
}

func TestExportCanBeLoadedBack(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b", "c/é", "\x01\"\\")
	for _, query := range []string{"", "?as=text", "?as=json"} {
		export := string(r.do("GET", tr+"/entries"+query, "", "Accept", ndjsonType).wantStatus(200).body)
		for _, path := range []string{"/v1/trees/copy/bulk-load", "/v1/trees/copy/bulk-load?mode=stream"} {
			r.ndjson("POST", path, export).wantStatus(200).wantBody(`{"acceptedEntryCount":4,"totalLiveKeys":4}`)
			r.db.mu.Lock()
			for key, item := range r.db.trees["t"].items {
				if got := r.db.trees["copy"].items[key]; string(got.Value) != string(item.Value) {
					t.Errorf("%q: %q came back as %q", key, item.Value, got.Value)
				}
			}
			delete(r.db.trees, "copy")
			r.db.mu.Unlock()
		}
	}
	r.db.trees["t"].streamErr, r.db.trees["t"].streamed = store.ErrUnavailable, 2
	broken := string(r.do("GET", tr+"/entries", "", "Accept", ndjsonType).body)
	if p := r.ndjson("POST", "/v1/trees/copy/bulk-load", broken).wantProblem(400, CodeInvalidArgument); p.Line != 3 || !strings.Contains(p.Detail, "broke off") {
		t.Errorf("%+v", p)
	}
}

func TestBulkLoadRefusalsApplyNothing(t *testing.T) {
	first := lines("a", "b")
	for name, tc := range map[string]struct {
		body string
		line int64
	}{
		"no JSON": {first + "x\n", 3}, "cut line": {first + `{"key":"c","text":"c`, 3},
		"array": {first + "[]\n", 3}, "unknown": {first + `{"key":"c","text":"","x":1}`, 3}, "no value": {first + `{"key":"c"}`, 3},
		"two values": {first + `{"key":"c","text":"","value":""}`, 3}, "no key": {first + `{"text":""}`, 3}, "empty key": {first + `{"key":"","text":""}`, 3},
		"twice": {first + `{"key":"c","key":"c","text":""}`, 3}, "base64": {first + `{"key":"c","value":"A"}`, 3}, "null": {first + `{"key":"c","value":null}`, 3},
		"number": {first + `{"key":1,"value":""}`, 3}, "ttl and expiry": {first + `{"key":"c","text":"","ttl":1,"expiresAt":"2100-01-01T00:00:00Z"}`, 3},
		"ttl": {first + `{"key":"c","text":"","ttl":0}`, 3}, "expiry": {first + `{"key":"c","text":"","expiresAt":"tomorrow"}`, 3}, "type": {first + `{"key":"c","text":"","contentType":"x"}`, 3},
		"half pair": {first + `{"key":"\ud800","text":""}`, 3}, "UTF-8": {first + "{\"key\":\"\xff\",\"text\":\"\"}", 3}, "two on a line": {first + `{"key":"c","text":""}{"key":"d","text":""}`, 3},
		"end, other count": {first + `{"end":true,"count":3}`, 3}, "end, no count": {first + `{"end":true}`, 3}, "end is false": {first + `{"end":false,"count":2}`, 3},
		"end and key": {first + `{"end":true,"count":2,"key":"c"}`, 3}, "count alone": {first + `{"count":2}`, 3},
		"behind the end": {first + "{\"end\":true,\"count\":2}\n" + lines("c"), 4}, "blank lines count": {"\n\n" + first + "\nx", 6},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if p := r.ndjson("POST", bulkOnce, tc.body).wantProblem(400, CodeInvalidArgument); p.Line != tc.line || tc.line > 0 && !strings.HasPrefix(p.Detail, fmt.Sprintf("line %d: ", tc.line)) {
				t.Errorf("%+v", p)
			}
			r.wantStored()
			if p := r.ndjson("POST", bulkStream, tc.body).wantProblem(400, CodeInvalidArgument); p.Line != tc.line {
				t.Errorf("stream: %+v", p)
			}
			r.ndjson("PUT", loads+"x", "").wantStatus(201)
			r.ndjson("PUT", loads+"x/chunks/0", tc.body).wantProblem(400, CodeInvalidArgument)
			r.wantStored()
		})
	}
}

func TestBulkJSONRefusals(t *testing.T) {
	r := newRig(t)
	for name, body := range map[string]string{
		"nothing": "", "no entries": `{}`, "unknown": `{"entries":[],"x":1}`, "end line": `{"entries":[{"end":true,"count":0}]}`, "behind": `{"entries":[]} x`,
		"element": `{"entries":[1]}`, "no value": `{"entries":[{"key":"a"}]}`, "null": `{"entries":null}`, "error": `{"entries":[{"error":{}}]}`, "twice": `{"entries":[],"entries":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r.do("POST", bulkOnce, body, "Content-Type", jsonType).wantProblem(400, CodeInvalidArgument)
		})
	}
	if len(r.db.trees) != 0 {
		t.Error("a refused load made the tree")
	}
	r.do("POST", bulkOnce, `{"entries":[]}`, "Content-Type", jsonType).wantStatus(200).wantBody(`{"acceptedEntryCount":0,"totalLiveKeys":0}`)
	r.ndjson("POST", bulkOnce, `{"end":true,"count":0}`).wantStatus(200).wantBody(`{"acceptedEntryCount":0,"totalLiveKeys":0}`)
}

func TestBulkLoadFormIsDeclared(t *testing.T) {
	r := newRig(t)
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/", "x"} {
		r.do("POST", bulkOnce, lines("a"), "Content-Type", contentType).wantProblem(400, CodeInvalidArgument)
	}
	r.do("POST", bulkStream, `{"entries":[]}`, "Content-Type", jsonType).wantProblem(400, CodeInvalidArgument)
	for _, query := range []string{"?mode=x", "?mode=", "?enforceLimits=1", "?x=1", "?mode=stream&mode=stream"} {
		r.ndjson("POST", bulkOnce+query, lines("a")).wantProblem(400, CodeInvalidArgument)
	}
	r.ndjson("POST", bulkOnce, lines("a"), "Content-Encoding", "gzip").wantProblem(415, CodeUnsupportedEncoding)
	r.ndjson("POST", bulkOnce, "x\n").wantProblem(400, CodeInvalidArgument)
	r.ndjson("GET", bulkOnce, "").wantProblem(405, CodeMethodNotAllowed)
	if len(r.db.trees) != 0 {
		t.Error("a refused load made the tree")
	}
}

func TestBulkLoadErrors(t *testing.T) {
	r := newRig(t)
	p := r.ndjson("POST", bulkOnce, lines("b", "a", "b")).wantProblem(422, CodeBulkLoadOrder)
	if p.Key != "b" || p.PreviousKey != "b" || p.Tree != "t" || p.ChunkIndex != nil || p.EntryIndex == nil {
		t.Errorf("%+v", p)
	}
	r.wantStored()
	long := strings.Repeat("k", 1025)
	if p := r.ndjson("POST", bulkOnce+"?enforceLimits=true", lines("a", long)).wantProblem(413, CodeKeyTooLong); p.Limit != 1024 {
		t.Errorf("%+v", p)
	}
	r.wantStored()
	r.ndjson("POST", bulkOnce+"?enforceLimits=false", lines("a", long)).wantStatus(200).wantBody(
		fmt.Sprintf(`{"acceptedEntryCount":2,"totalLiveKeys":2,"overLimitCount":1,"firstOverLimit":{"what":"key","key":"%s…","size":1025,"limit":1024}}`, long[:1024]))
	for _, tc := range []struct {
		fail   error
		status int
		code   Code
		limit  int64
	}{
		{&tree.QuotaError{Option: "MaxLiveKeys", Limit: 7, Current: 9}, 429, CodeQuotaExceeded, 7},
		{&tree.LimitError{What: "chunk", Size: 9, Limit: 8}, 413, CodeRequestTooLarge, 8},
		{&tree.LimitError{What: "value", Size: 9, Limit: 8}, 413, CodeValueTooLarge, 8},
		{tree.ErrOperationInProgress, 409, CodeOperationInProgress, 0},
		{tree.ErrTreeDeleted, 409, CodeTreeDeleted, 0},
		{store.ErrThrottled, 503, CodeStorageThrottled, 0},
		{store.Corruptf("row x"), 500, CodeInternal, 0},
	} {
		r.db.setFail(tc.fail)
		for _, path := range []string{bulkOnce, bulkStream} {
			if p := r.ndjson("POST", path, lines("c")).wantProblem(tc.status, tc.code); p.Limit != tc.limit {
				t.Errorf("%v: %+v", tc.fail, p)
			}
		}
		r.ndjson("PUT", loads+"x/chunks/0", lines("c")).wantProblem(tc.status, tc.code)
	}
}

func TestQuotaOfAnOrdinaryWrite(t *testing.T) {
	r := newRig(t)
	r.db.setFail(&tree.QuotaError{Option: "MaxEstimatedBytes", Limit: 5, Current: 6})
	if p := r.do("PUT", k+"a", "v").wantProblem(429, CodeQuotaExceeded); p.Limit != 5 || !strings.Contains(p.Detail, "MaxEstimatedBytes") {
		t.Errorf("%+v", p)
	}
	r.do("POST", tr+"/batch", `{"operations":[{"op":"set","key":"a","value":""}]}`).wantProblem(429, CodeQuotaExceeded)
}

func TestBulkStream(t *testing.T) {
	r := newRig(t)
	r.put(k+"z", "there")
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%06d", i)
	}
	for range 2 {
		r.ndjson("POST", bulkStream, lines(keys...)).wantStatus(200).wantBody(`{"acceptedEntryCount":1000,"totalLiveKeys":1001}`)
	}
	p := r.ndjson("POST", bulkStream, lines("l1", "l3", "l2")).wantProblem(422, CodeBulkLoadOrder)
	if p.Key != "l2" || p.PreviousKey != "l3" || *p.EntryIndex != 2 || *p.AcceptedEntryCount != 0 {
		t.Errorf("%+v", p)
	}
	r.db.trees["t"].portion = 2
	p = r.ndjson("POST", bulkStream, lines("m1", "m2", "m3")+"x").wantProblem(400, CodeInvalidArgument)
	if p.Line != 4 || p.AcceptedEntryCount == nil || *p.AcceptedEntryCount != 2 {
		t.Errorf("%+v", p)
	}
	if !slices.Contains(r.stored(), "m2") || slices.Contains(r.stored(), "m3") {
		t.Errorf("stored %q", r.stored()[1000:])
	}
}

func TestBulkSession(t *testing.T) {
	r := newRig(t)
	r.do("GET", loads+"x", "").wantProblem(404, CodeTreeNotFound)
	r.ndjson("PUT", loads+"x/chunks/0", lines("a")).wantProblem(404, CodeTreeNotFound)
	begun := decode[stateBody](r.do("PUT", loads+"x", "").wantStatus(201))
	if begun.OperationID != "x" || begun.Status != "open" || begun.NextChunkIndex != 0 || begun.Pending || begun.StartedAt == "" || begun.TotalLiveKeys != nil {
		t.Errorf("%+v", begun)
	}
	if again := decode[stateBody](r.do("PUT", loads+"x", "").wantStatus(200)); again != begun {
		t.Errorf("%+v, then %+v", begun, again)
	}
	r.do("PUT", loads+"y", "").wantProblem(409, CodeOperationInProgress)
	for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/commit"}} {
		r.do(call[0], loads+"y"+call[1], "").wantProblem(404, CodeOperationNotFound)
	}
	r.ndjson("PUT", loads+"y/chunks/0", lines("a")).wantProblem(404, CodeOperationNotFound)
	for range 2 {
		r.ndjson("PUT", loads+"x/chunks/0", lines("a", "b")).wantStatus(200).wantBody(`{"chunkIndex":0,"acceptedEntryCount":2,"nextChunkIndex":1}`)
	}
	r.do("PUT", loads+"x/chunks/1", `{"entries":[{"key":"c","text":"c"}]}`, "Content-Type", jsonType).wantStatus(200).wantBody(`{"chunkIndex":1,"acceptedEntryCount":1,"nextChunkIndex":2}`)
	for _, index := range []int64{0, 3} {
		p := r.ndjson("PUT", fmt.Sprintf("%sx/chunks/%d", loads, index), lines("d")).wantProblem(409, CodeChunkOutOfSequence)
		if *p.ChunkIndex != index || *p.ExpectedChunkIndex != 2 {
			t.Errorf("%+v", p)
		}
	}
	r.ndjson("PUT", loads+"x/chunks/1", lines("d")).wantProblem(409, CodeOperationMismatch)
	p := r.ndjson("PUT", loads+"x/chunks/2", lines("d", "b")).wantProblem(422, CodeBulkLoadOrder)
	if p.Key != "b" || p.PreviousKey != "d" || *p.ChunkIndex != 2 || *p.EntryIndex != 1 || p.Tree != "t" {
		t.Errorf("%+v", p)
	}
	r.wantStored("a", "b", "c")
	long := strings.Repeat("l", 1025)
	r.ndjson("PUT", loads+"x/chunks/2?enforceLimits=true", lines(long)).wantProblem(413, CodeKeyTooLong)
	ack := decode[ackBody](r.ndjson("PUT", loads+"x/chunks/2", lines(long)).wantStatus(200))
	if ack.OverLimitCount != 1 || ack.FirstOverLimit == nil || ack.FirstOverLimit.Size != 1025 {
		t.Errorf("%+v", ack)
	}
	state := decode[stateBody](r.do("GET", loads+"x", "").wantStatus(200))
	if state.NextChunkIndex != 3 || state.AcceptedEntryCount != 4 || state.LastKey != long || state.OverLimitCount != 1 {
		t.Errorf("%+v", state)
	}
	for range 2 {
		done := decode[stateBody](r.do("POST", loads+"x/commit", "").wantStatus(200))
		if done.Status != "committed" || done.TotalLiveKeys == nil || *done.TotalLiveKeys != 4 {
			t.Errorf("%+v", done)
		}
	}
	r.do("DELETE", loads+"x", "").wantProblem(409, CodeOperationMismatch)
	r.do("PUT", loads+"y", "").wantProblem(409, CodeTreeNotEmpty)
}

func TestBulkSessionIsAborted(t *testing.T) {
	r := newRig(t)
	r.do("PUT", loads+"x", "").wantStatus(201)
	r.ndjson("PUT", loads+"x/chunks/0", lines("a", "b")).wantStatus(200)
	for range 2 {
		if s := decode[stateBody](r.do("DELETE", loads+"x", "").wantStatus(200)); s.Status != "aborted" || s.AcceptedEntryCount != 2 {
			t.Errorf("%+v", s)
		}
	}
	r.do("POST", loads+"x/commit", "").wantProblem(409, CodeOperationMismatch)
	r.wantStored("a", "b")
}

func TestBulkSessionPathsAreChecked(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a%2Fb", "%20", "%C3%A9", strings.Repeat("x", 129), "a%00"} {
		r.do("PUT", loads+id, "").wantProblem(400, CodeInvalidArgument)
		r.ndjson("PUT", loads+id+"/chunks/0", lines("a")).wantProblem(400, CodeInvalidArgument)
	}
	for _, index := range []string{"-1", "x", "00", "01", "1.0", "9223372036854775808", "%30"} {
		r.ndjson("PUT", loads+"x/chunks/"+index, lines("a")).wantProblem(400, CodeInvalidArgument)
	}
	if len(r.db.trees) != 0 {
		t.Error("a refused path made the tree")
	}
	r.do("PUT", loads+strings.Repeat("x", 128), "").wantStatus(201)
}

func TestBulkDigest(t *testing.T) {
	r := newRig(t)
	body := lines("a", "b")
	wrong := digestOf([]byte("other"))
	for _, send := range []func() *reply{
		func() *reply { return r.ndjson("POST", bulkOnce, body, "Content-Digest", wrong) },
		func() *reply { return r.ndjson("POST", bulkStream, body, "Content-Digest", wrong) },
		func() *reply {
			return r.do("POST", bulkOnce, `{"entries":[{"key":"a","text":""}]}`, "Content-Type", jsonType, "Content-Digest", wrong)
		},
	} {
		send().wantProblem(400, CodeDigestMismatch)
		r.wantStored()
	}
	r.do("PUT", loads+"x", "").wantStatus(201)
	r.ndjson("PUT", loads+"x/chunks/0", body, "Content-Digest", wrong).wantProblem(400, CodeDigestMismatch)
	r.wantStored()
	r.ndjson("PUT", loads+"x/chunks/0", body, "Content-Digest", digestOf([]byte(body))).wantStatus(200)
	r.do("DELETE", loads+"x", "").wantStatus(200)
	r.ndjson("POST", bulkStream, body, "Content-Digest", digestOf([]byte(body))).wantStatus(200)
	r.ndjson("POST", bulkStream, body, "Content-Digest", "x").wantProblem(400, CodeInvalidArgument)
}

func TestBulkBodyThatBreaksOff(t *testing.T) {
	r := newRig(t)
	r.do("PUT", tr, "").wantStatus(201)
	r.do("PUT", loads+"x", "").wantStatus(201)
	entry := lines("a")
	head := " HTTP/1.1\r\nHost: x\r\nContent-Type: " + ndjsonType + "\r\n"
	for _, call := range []string{"POST " + bulkOnce, "POST " + bulkStream, "PUT " + loads + "x/chunks/0"} {
		if strings.HasPrefix(call, "POST") {
			r.db.trees["t"].loads = nil
		}
		for name, rest := range map[string]string{
			"length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(entry)+1, entry),
			"chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(entry), entry),
		} {
			resp := r.cutOff(call + head + rest)
			var p Problem
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Code != CodeInvalidArgument && p.Code != CodeOperationNotFound {
				t.Errorf("%s, %s: %d, %+v, %v", call, name, resp.StatusCode, p, err)
			}
			r.wantStored()
		}
		r.do("PUT", loads+"x", "")
	}
}

func TestDiagnostics(t *testing.T) {
	r := newRig(t)
	at := time.UnixMilli(1_700_000_000_000)
	r.do("GET", tr+"/diagnostics", "").wantProblem(404, CodeTreeNotFound)
	r.do("PUT", tr, "").wantStatus(201)
	r.db.trees["t"].diagnostics = tree.Diagnostics{
		Tree: "t", MapVersion: 3, Incomplete: true, LiveKeys: 7, Tombstones: 2, Expired: 1, Bytes: 99, BulkPending: true, Instance: 0xab, SampledAt: at,
		Shards: []tree.ShardDiagnostics{
			{
				Shard: 0, Slots: 4095, LiveKeys: 7, Tombstones: 2, Expired: 1, Bytes: 99, Depth: 2, Leaves: 3, StoredBytes: 1000, TailRows: 4, TailBytes: 500,
				Rate: 12.5, RateKnown: true, Splitting: &tree.ShardSplitting{Peer: 5, PeerKnown: true, Phase: "Drain"}, BulkPending: true,
				Lease: tree.ShardLease{Owner: 0xcd, Expiry: at, Held: true}, HotKeys: []tree.HotKey{{Key: "h", Share: 0.5, Certain: 0.25}}, SampledAt: at,
			},
			{Shard: 5, Slots: 1, Splitting: &tree.ShardSplitting{Target: true, Phase: "Drain"}, SampledAt: at, Error: "cannot be reached"},
		},
	}
	r.do("GET", tr+"/diagnostics?deep=true", "").wantStatus(200).wantBody(`{"tree":"t","mapVersion":3,"deep":true,"incomplete":true,"bulkPending":true,"instance":"00000000000000ab",` +
		`"sampledAt":"2023-11-14T22:13:20.000Z","totals":{"liveKeys":7,"tombstones":2,"expired":1,"bytes":99,"shards":2},"shards":[` +
		`{"shard":0,"slots":4095,"liveKeys":7,"tombstones":2,"expired":1,"bytes":99,"depth":2,"leaves":3,"storedBytes":1000,"walTailRows":4,"walTailBytes":500,` +
		`"opsPerSecond":12.5,"splitting":true,"split":{"role":"source","peer":5,"phase":"Drain"},"bulkPending":true,` +
		`"lease":{"owner":"00000000000000cd","expiresAt":"2023-11-14T22:13:20.000Z","held":true},"hotKeys":[{"key":"h","share":0.5,"certain":0.25}],"sampledAt":"2023-11-14T22:13:20.000Z"},` +
		`{"shard":5,"slots":1,"liveKeys":0,"tombstones":0,"expired":0,"bytes":0,"depth":0,"leaves":0,"storedBytes":0,"walTailRows":0,"walTailBytes":0,` +
		`"splitting":true,"split":{"role":"target","phase":"Drain"},"bulkPending":false,"lease":{"held":false},"hotKeys":[],"sampledAt":"2023-11-14T22:13:20.000Z","error":"cannot be reached"}]}`)
	if decode[diagnosticsBody](r.do("GET", tr+"/diagnostics", "")).Deep {
		t.Error("deep though nobody asked for that")
	}
	r.do("GET", tr+"/diagnostics?deep=1", "").wantProblem(400, CodeInvalidArgument)
	r.db.setFail(errors.Join(tree.ErrTopologyUnstable))
	r.do("GET", tr+"/diagnostics", "").wantProblem(503, CodeTopologyUnstable)
}
