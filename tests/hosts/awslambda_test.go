package hosts

import (
	"strings"
	"testing"
)

func TestLambdaServesRequests(t *testing.T) {
	l := startLambda(t, "LATTICE_STORE=memory")
	value := "\x00\xff\x80\n"
	if status, body := l.request(t, "PUT", "/v1/trees/t/keys/a%2Fb", "", value); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/keys/a%2Fb", "", ""); status != 200 || body != value {
		t.Fatalf("get: %d %q", status, body)
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/count", "prefix=a", ""); status != 200 || !strings.Contains(body, `"count":1`) {
		t.Fatalf("count: %d %s", status, body)
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/keys/none", "", ""); status != 404 || !strings.Contains(body, "key_not_found") {
		t.Fatalf("get of nothing: %d %s", status, body)
	}
}

func TestLambdaAnswersWhatIsTooLargeForIt(t *testing.T) {
	l := startLambda(t, "LATTICE_STORE=memory")
	part := strings.Repeat("x", 3<<20)
	for _, key := range []string{"a", "b"} {
		if status, body := l.request(t, "PUT", "/v1/trees/t/keys/"+key, "", part); status != 201 {
			t.Fatalf("put: %d %s", status, body)
		}
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/keys/a", "", ""); status != 200 || body != part {
		t.Fatalf("get: %d with %d bytes", status, len(body))
	}
	if status, body := l.request(t, "POST", "/v1/trees/t/batch-get", "", `{"keys":["a","b"]}`); status != 413 || !strings.Contains(body, "this host") {
		t.Fatalf("batch-get of two: %d with %d bytes", status, len(body))
	}
}
