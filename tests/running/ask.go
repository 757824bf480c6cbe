package running

import (
	"io"
	"net/http"
	"testing"
)

// Reply is the answer to a request, with all of its body.
type Reply struct {
	Status int
	Header http.Header
	Body   string
}

// Ask makes a request by a client and fails the test unless it is answered. The
// header is name, value, name, value. A body that is no *strings.Reader or
// *bytes.Reader goes without a length.
func Ask(t testing.TB, by *http.Client, method, url string, body io.Reader, header ...string) Reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := by.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return Reply{resp.StatusCode, resp.Header, string(text)}
}
