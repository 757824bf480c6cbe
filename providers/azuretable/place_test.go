package azuretable

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

var (
	noTable      = failure(404, "TableNotFound")
	tableCreated = azfake.Answer{Status: http.StatusNoContent}
)

func TestTableIsFoundOrCreated(t *testing.T) {
	empty := rows(nil)
	for _, tc := range []struct {
		name     string
		script   []azfake.Answer
		want     error
		requests int
	}{
		{"Found", []azfake.Answer{empty}, nil, 1},
		{"Created", []azfake.Answer{noTable, tableCreated}, nil, 2},
		{"CreatedByAnother", []azfake.Answer{noTable, failure(409, "TableAlreadyExists")}, nil, 2},
		{"BeingDeleted", []azfake.Answer{noTable, failure(409, "TableBeingDeleted")}, store.ErrUnavailable, 2},
		{"BusyAtFirst", []azfake.Answer{failure(503, "ServerBusy"), noTable, failure(503, "ServerBusy"), tableCreated}, nil, 4},
		{"MayNotCreate", []azfake.Answer{noTable, failure(403, "AuthorizationFailure")}, store.ErrUnavailable, 2},
		{"MayNotRead", []azfake.Answer{failure(403, "AuthorizationFailure")}, store.ErrUnavailable, 4},
		{"Reset", []azfake.Answer{{Err: azfake.ErrReset}}, store.ErrUnavailable, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := azfake.New(t, tc.script...)
				table, err := New(t.Context(), Options{ConnectionString: fakeString, TableName: "tab", Transport: service})
				if !errors.Is(err, tc.want) || (table == nil) != (tc.want != nil) || len(service.Seen()) != tc.requests {
					t.Fatalf("got %v, %v after %d requests", table, err, len(service.Seen()))
				}
			})
		})
	}
}

func TestLazyOpeningAsksNothing(t *testing.T) {
	if _, service := scripted(t); len(service.Seen()) != 0 {
		t.Fatalf("%d requests", len(service.Seen()))
	}
}

func TestMissingTableReadsAsEmpty(t *testing.T) {
	table, service := scripted(t, noTable)
	if _, err := table.Get(t.Context(), "part", "key"); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "tab") {
		t.Errorf("got %v", err)
	}
	if page, err := table.Range(t.Context(), "part", store.RangeQuery{}); err != nil || len(page.Rows) != 0 || page.More {
		t.Errorf("got %+v, %v", page, err)
	}
	for _, seen := range service.Seen() {
		if seen.Method != http.MethodGet {
			t.Errorf("a read sent %s %s", seen.Method, seen.URL)
		}
	}
	if n := len(service.Seen()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestFirstWriteCreatesTheTable(t *testing.T) {
	for n, tc := range map[int]struct{ missing, done azfake.Answer }{
		1: {noTable, ok("tag")},
		// The service tells inside an answer of success.
		2: {batch("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n" +
			`{"odata.error":{"code":"TableNotFound","message":{"lang":"en-US","value":"0:The table specified does not exist.\nRequestId:1"}}}` + "\r\n"),
			batch("HTTP/1.1 204 No Content\r\nETag: W/\"1\"\r\n\r\n", "HTTP/1.1 204 No Content\r\nETag: W/\"2\"\r\n\r\n")},
	} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			table, service := scripted(t, tc.missing, tableCreated, tc.done)
			etags, err := table.Apply(t.Context(), "part", [][]store.Op{oneOp, twoOps}[n-1])
			if err != nil || len(etags) != n {
				t.Fatalf("got %q, %v", etags, err)
			}
			seen := service.Seen()
			if len(seen) != 3 || !strings.HasSuffix(seen[1].URL, "/Tables") || seen[0].Body != seen[2].Body {
				t.Fatalf("sent %+v", seen)
			}
		})
	}
}

// TestWriteAfterTheCreationIsNotRepeated: whatever its answer, it is the one of an
// ordinary write.
func TestWriteAfterTheCreationIsNotRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		last azfake.Answer
		want error
	}{
		"lost":     {azfake.Answer{Err: azfake.ErrReset}, store.ErrOutcomeUnknown},
		"conflict": {failure(409, "EntityAlreadyExists"), store.ErrExists},
		"missing":  {noTable, store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			table, service := scripted(t, noTable, tableCreated, tc.last)
			_, err := table.Apply(t.Context(), "part", oneOp)
			wantOnly(t, err, tc.want)
			if n := len(service.Seen()); n != 3 {
				t.Fatalf("%d requests", n)
			}
		})
	}
}
