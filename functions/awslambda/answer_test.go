package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
)

// TestNothingIsDoneWhoseAnswerDoesNotFit: a caller that is told 413 may rely on it
// that nothing was written, and that no page was passed.
func TestNothingIsDoneWhoseAnswerDoesNotFit(t *testing.T) {
	o := options.Default()
	o.MaxPageBytes = maxPageBytes
	m := memory.New(memory.Options{})
	svc, err := service.New(service.Config{Table: m.Table(), Blobs: m.Blobs(), Options: o, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f := newFunction(svc.Handler().ServeHTTP)
	call := func(want int, method, path, body string) string {
		t.Helper()
		value, err := f.handle(t.Context(), httpEvent(method, path, "", []byte(body), false, nil))
		answer, ok := value.(events.APIGatewayV2HTTPResponse)
		if err != nil || !ok || answer.StatusCode != want {
			t.Fatalf("%s %s: %v, %d %.300s, want %d", method, path, err, answer.StatusCode, answer.Body, want)
		}
		if answer.IsBase64Encoded {
			plain, err := base64.StdEncoding.DecodeString(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(plain)
		}
		return answer.Body
	}
	batch := func(n int, key string, atomic bool) string {
		ops := make([]string, n)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"set","key":"%s%05d","value":""}`, key, i)
		}
		return fmt.Sprintf(`{"atomic":%t,"operations":[%s]}`, atomic, strings.Join(ops, ","))
	}
	long, growing := strings.Repeat("k", 390), strings.Repeat("<", 900)
	call(413, "POST", "/v1/trees/t/batch", batch(10_000, long, false))
	call(413, "POST", "/v1/trees/t/batch", batch(1000, growing, true))
	call(404, "GET", "/v1/trees/t/count", "")

	call(200, "POST", "/v1/trees/t/batch", batch(500, growing, true))
	call(200, "POST", "/v1/trees/t/batch", batch(500, growing+"=", true))
	var open struct{ CursorID string }
	if err := json.Unmarshal([]byte(call(201, "POST", "/v1/trees/t/cursors", `{"kind":"keys"}`)), &open); err != nil {
		t.Fatal(err)
	}
	next := "/v1/trees/t/cursors/" + open.CursorID + "/next"
	call(413, "POST", next, `{"limit":900}`)
	if page := call(200, "POST", next, `{"limit":300}`); !strings.HasPrefix(page, `{"page":1,`) || !strings.Contains(page, `00000","version"`) {
		t.Errorf("the page that was refused is passed: %.100s", page)
	}
}
