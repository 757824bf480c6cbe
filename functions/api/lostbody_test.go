package api

import (
	"net/http"
	"strings"
	"testing"
)

// digestOfNothing is what vouches for an empty body.
var digestOfNothing = digestOf(nil)

// losing is a server behind a host that hands on chunked bodies as empty ones.
func losing(c *Config) { c.LosesBodies = true }

func TestEmptyBodyNeedsADigestWhereBodiesGetLost(t *testing.T) {
	r := newRig(t, losing)
	for _, path := range []string{k + "a", tr + "/key?b64=YQ", k + "a?mode=get-or-set", k + "a?ttl=1h"} {
		p := r.do("PUT", path, "").wantProblem(http.StatusLengthRequired, CodeLengthRequired)
		if !strings.Contains(p.Detail, "Content-Length") || !strings.Contains(p.Detail, "Content-Digest") {
			t.Errorf("%q does not say what to do", p.Detail)
		}
		r.do("PUT", path, "", "Content-Digest", "md5=:AAAA:").wantProblem(http.StatusLengthRequired, CodeLengthRequired)
		r.do("PUT", path, "", "Content-Digest", "nonsense").wantProblem(400, CodeInvalidArgument)
		r.do("PUT", path, "", "Content-Digest", digestOf([]byte("value"))).wantProblem(400, CodeDigestMismatch)
	}
	if len(r.db.trees) != 0 {
		t.Fatal("a refused write made the tree")
	}
	r.do("PUT", k+"a", "", "Content-Digest", digestOfNothing).wantStatus(201)
	r.do("GET", k+"a", "").wantStatus(200).wantBody("")
	r.do("PUT", k+"b", "value").wantStatus(201)
	r.do("DELETE", k+"b", "").wantStatus(204)
}

func TestEmptyLoadNeedsADigestWhereBodiesGetLost(t *testing.T) {
	r := newRig(t, losing)
	r.do("PUT", tr+"/bulk-loads/x", "").wantStatus(201)
	for _, call := range []struct{ method, path string }{
		{"POST", tr + "/bulk-load"}, {"POST", tr + "/bulk-load?mode=stream"}, {"PUT", tr + "/bulk-loads/x/chunks/0"},
	} {
		r.do(call.method, call.path, "").wantProblem(http.StatusLengthRequired, CodeLengthRequired)
		r.do(call.method, call.path, "", "Content-Type", ndjsonType).wantProblem(http.StatusLengthRequired, CodeLengthRequired)
	}
	r.do("PUT", tr+"/bulk-loads/x/chunks/0", "", "Content-Type", ndjsonType, "Content-Digest", digestOfNothing).wantStatus(200)
	r.do("POST", tr+"/bulk-loads/x/commit", "").wantStatus(200)
}

// A cursor's page that was asked for by its number must not become the next one,
// nor a tree one with other settings than were sent.
func TestEmptyRequestNeedsADigestWhereBodiesGetLost(t *testing.T) {
	r := newRig(t, losing)
	r.do("PUT", "/v1/trees/new", "").wantProblem(http.StatusLengthRequired, CodeLengthRequired)
	r.do("PUT", "/v1/trees/new", "", "Content-Digest", digestOfNothing).wantStatus(201)
	r.do("POST", tr+"/cursors/c/next", "").wantProblem(http.StatusLengthRequired, CodeLengthRequired)
}

func TestEmptyBodyIsTakenWhereNothingGetsLost(t *testing.T) {
	r := newRig(t)
	r.do("PUT", "/v1/trees/new", "").wantStatus(201)
	r.do("PUT", k+"a", "").wantStatus(201)
	r.do("POST", tr+"/bulk-load?mode=stream", "", "Content-Type", ndjsonType).wantStatus(200)
}
