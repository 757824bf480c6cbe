package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
)

// TestALoadUnderWayIsWaitedFor: a service that says when another load in one
// request is given up is asked again, more often than a failing one; the rows,
// which can be read once, are not touched before.
func TestALoadUnderWayIsWaitedFor(t *testing.T) {
	const refusals = 9
	for name, wait := range map[string]string{"told when": "5", "a session": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				c, err := client.New("http://lattice.test", client.Options{
					HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						if asked++; asked <= refusals {
							_ = r.Body.Close()
							return answerOf(409, `{"code":"operation_in_progress","operationId":"op-1"}`, wait), nil
						}
						body, err := io.ReadAll(r.Body)
						if err != nil {
							return nil, err
						}
						return answerOf(200, fmt.Sprintf(`{"acceptedEntryCount":%d}`, strings.Count(string(body), `"key"`)), ""), nil
					})},
				})
				must(t, err)
				runs := 0
				start := time.Now()
				res, err := c.Tree("t").BulkLoad(t.Context(), func(yield func(client.BulkEntry, error) bool) {
					runs++
					_ = yield(client.BulkEntry{Key: "a"}, nil)
				}, client.BulkOptions{})
				if wait == "" {
					wantErr(t, err, client.ErrOperationInProgress)
					if _, f := bulkFailure(t, err); f.OperationID != "op-1" || asked != 1 || runs != 0 {
						t.Errorf("%+v, asked %d times, %d runs", f, asked, runs)
					}
					return
				}
				if err != nil || res.Accepted != 1 || runs != 1 || asked != refusals+1 || time.Since(start) < refusals*5*time.Second {
					t.Errorf("%+v, %v; asked %d times, %d runs in %s", res, err, asked, runs, time.Since(start))
				}
			})
		})
	}
}

func answerOf(status int, body, wait string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	if wait != "" {
		h.Set("Retry-After", wait)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func TestSessionsAreListed(t *testing.T) {
	s := clienttest.New()
	c, err := client.New("http://lattice.test", client.Options{HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if r.Body == nil {
			r.Body = http.NoBody
		}
		s.ServeHTTP(w, r)
		return w.Result(), nil
	})}})
	must(t, err)
	tree := c.Tree("t")
	_, err = tree.ListBulkLoads(t.Context(), 0)
	wantErr(t, err, client.ErrTreeNotFound)
	for _, id := range []string{"one", "two"} {
		_, _, err := tree.BeginBulkLoad(t.Context(), id)
		must(t, err)
		_, err = tree.AbortBulkLoad(t.Context(), id)
		must(t, err)
	}
	all, err := tree.ListBulkLoads(t.Context(), 0)
	if err != nil || len(all) != 2 || all[0].Status != client.BulkAborted || all[0].Updated.Before(all[1].Updated) {
		t.Errorf("%+v, %v", all, err)
	}
	if one, err := tree.ListBulkLoads(t.Context(), 1); err != nil || len(one) != 1 || one[0].OperationID != all[0].OperationID {
		t.Errorf("%+v, %v", one, err)
	}
	_, err = tree.ListBulkLoads(t.Context(), -1)
	wantErr(t, err, client.ErrInvalidRequest)
}
