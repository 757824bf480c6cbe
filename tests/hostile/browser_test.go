package hostile

import (
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// TestPagesOfOtherSitesReachNothing: without credentials a service on this machine
// is open to whoever connects, but a page in a browser here is somebody else.
func TestPagesOfOtherSitesReachNothing(t *testing.T) {
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir())
	address := strings.TrimPrefix(s.URL, "http://")
	host := "Host: " + address
	const batch = `{"operations":[{"op":"set","key":"hostile","text":"x"}]}`
	for _, a := range []attack{
		{name: "a form of another site", raw: request("POST /v1/trees/t/batch", batch, host, "Origin: https://evil.example", "Content-Type: text/plain"), status: 403, code: denied},
		{name: "a form of a page without an origin", raw: request("POST /v1/trees/t/batch", batch, host, "Origin: null", "Content-Type: text/plain"), status: 403, code: denied},
		{name: "a script of another site", raw: request("PUT /v1/trees/t/keys/hostile", "x", host, "Sec-Fetch-Site: cross-site"), status: 403, code: denied},
		{name: "a name that was made to mean this machine", raw: request("PUT /v1/trees/t/keys/hostile", "x", "Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"), status: 403, code: denied},
		{name: "such a name, reading", raw: request("GET /v1/trees", "", "Host: evil.example:8080"), status: 403, code: denied},
	} {
		t.Run(a.name, func(t *testing.T) { a.judge(t, exchange(t, address, a.raw)) })
	}
	if got := call(t, address, "none", "GET", "/v1/trees", "", ""); got.Body != `{"trees":[]}` {
		t.Errorf("a trace: %s", got.Body)
	}
}
