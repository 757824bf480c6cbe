package azuretable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

const (
	fakeKey    = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="
	fakeString = "AccountName=acc;AccountKey=" + fakeKey + ";TableEndpoint=http://tables.example/acc"
)

// scripted opens a table over scripted answers.
func scripted(t *testing.T, script ...azfake.Answer) (*Table, *azfake.Service) {
	t.Helper()
	service := azfake.New(t, script...)
	table, err := New(t.Context(), Options{ConnectionString: fakeString, TableName: "tab", Lazy: true, Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	return table, service
}

func ok(etag string) azfake.Answer {
	return azfake.Answer{Status: http.StatusNoContent, Header: map[string]string{"ETag": etag}}
}

func failure(status int, code string, header ...string) azfake.Answer {
	a := azfake.Answer{Status: status, Header: map[string]string{"x-ms-error-code": code}}
	for i := 0; i < len(header); i += 2 {
		a.Header[header[i]] = header[i+1]
	}
	return a
}

func batch(parts ...string) azfake.Answer {
	return azfake.Answer{Status: http.StatusAccepted, Header: map[string]string{"Content-Type": batchType}, Body: reply(parts...)}
}

func rows(header map[string]string, rows ...string) azfake.Answer {
	return azfake.Answer{Status: http.StatusOK, Header: header, Body: string(pageBody(rows...))}
}

func next(partition, row string) map[string]string {
	h := map[string]string{"x-ms-continuation-NextPartitionKey": partition}
	if row != "" {
		h["x-ms-continuation-NextRowKey"] = row
	}
	return h
}

var (
	oneOp  = []store.Op{store.Replace("key", []byte("value"), someTag)}
	twoOps = []store.Op{store.Insert("a", []byte("1")), store.Replace("b", []byte("2"), someTag)}
)

func TestSingleOperationsArePlainEntityRequests(t *testing.T) {
	for _, tc := range []struct {
		op                   store.Op
		method, url, ifMatch string
		want                 store.ETag
	}{
		{store.Insert("key", []byte("v")), "POST", "http://tables.example/acc/tab", "", "tag"},
		{store.Replace("key", []byte("v"), someTag), "PUT", "http://tables.example/acc/tab(PartitionKey='part',RowKey='key')", someTag, "tag"},
		{store.Delete("key", someTag), "DELETE", "http://tables.example/acc/tab(PartitionKey='part',RowKey='key')", someTag, ""},
		{store.Delete("key", ""), "DELETE", "http://tables.example/acc/tab(PartitionKey='part',RowKey='key')", "*", ""},
	} {
		t.Run(tc.method+tc.ifMatch, func(t *testing.T) {
			table, service := scripted(t, ok("tag"))
			etags, err := table.Apply(t.Context(), "part", []store.Op{tc.op})
			if err != nil || len(etags) != 1 || etags[0] != tc.want {
				t.Fatalf("got %q, %v", etags, err)
			}
			seen := service.Seen()
			if len(seen) != 1 || seen[0].Method != tc.method || seen[0].URL != tc.url || seen[0].Header.Get("If-Match") != tc.ifMatch {
				t.Fatalf("sent %+v", seen)
			}
			if !strings.HasPrefix(seen[0].Header.Get("Authorization"), "SharedKeyLite acc:") {
				t.Errorf("authorization %q", seen[0].Header.Get("Authorization"))
			}
		})
	}
}

func TestUnguardedReplaceIsNeverSent(t *testing.T) {
	table, service := scripted(t)
	for _, ops := range [][]store.Op{
		{store.Replace("key", nil, "")},
		{store.Insert("other", nil), store.Replace("key", nil, "")},
		{store.Insert("key", nil), store.Insert("key", nil)},
		{store.Insert("ke'y", nil)},
		{store.Insert("", nil)},
	} {
		if _, err := table.Apply(t.Context(), "part", ops); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: got %v, want invalid argument", ops, err)
		}
	}
	if seen := service.Seen(); len(seen) != 0 {
		t.Fatalf("sent %+v", seen)
	}
}

func TestForeignETagLosesWithoutARequest(t *testing.T) {
	table, service := scripted(t)
	for _, etag := range []store.ETag{"bogus", `W/"`, `"strong"`, "*", `W/"a"b"`, "W/\"a\r\nIf-Match: *\"", `W/"a b"`, `W/"é"`,
		store.ETag(`W/"` + strings.Repeat("x", 300) + `"`)} {
		for i, ops := range [][]store.Op{
			{store.Replace("key", nil, etag)},
			{store.Insert("other", nil), store.Delete("key", etag)},
		} {
			_, err := table.Apply(t.Context(), "part", ops)
			var failed *store.OpError
			if !errors.Is(err, store.ErrPrecondition) || !errors.As(err, &failed) || failed.Index != i || failed.Key != "key" {
				t.Errorf("%q: got %v, want a failed precondition of operation %d", etag, err, i)
			}
		}
	}
	if seen := service.Seen(); len(seen) != 0 {
		t.Fatalf("sent %+v", seen)
	}
}

// TestApplyIsNeverRepeated covers every way in which an exchange fails: each is
// one request and the right category.
func TestApplyIsNeverRepeated(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer azfake.Answer
		want   error
	}{
		{"Busy", failure(503, "ServerBusy", "Retry-After", "1"), store.ErrThrottled},
		{"TooManyRequests", failure(429, ""), store.ErrThrottled},
		{"TimedOut", failure(500, "OperationTimedOut"), store.ErrOutcomeUnknown},
		{"Internal", failure(500, "InternalError"), store.ErrOutcomeUnknown},
		{"Gateway", failure(502, ""), store.ErrOutcomeUnknown},
		{"NotServing", failure(503, ""), store.ErrOutcomeUnknown},
		{"RequestTimeout", failure(408, ""), store.ErrOutcomeUnknown},
		{"Forbidden", failure(403, "AuthenticationFailed"), store.ErrUnavailable},
		{"BeingDeleted", failure(409, "TableBeingDeleted"), store.ErrUnavailable},
		{"TooLarge", failure(413, "RequestBodyTooLarge"), store.ErrTooLarge},
		{"Reset", azfake.Answer{Err: azfake.ErrReset}, store.ErrOutcomeUnknown},
		{"AnsweredByAnother", azfake.Answer{Status: 200, Body: "<html>"}, store.ErrOutcomeUnknown},
		{"NoETag", azfake.Answer{Status: 204}, store.ErrOutcomeUnknown},
		{"CutAnswer", azfake.Answer{Status: 202, Header: map[string]string{"Content-Type": batchType}, Body: "--batch", Cut: true}, store.ErrOutcomeUnknown},
	} {
		for _, ops := range [][]store.Op{oneOp, twoOps} {
			t.Run(fmt.Sprintf("%s/%d", tc.name, len(ops)), func(t *testing.T) {
				table, service := scripted(t, tc.answer)
				etags, err := table.Apply(t.Context(), "part", ops)
				wantOnly(t, err, tc.want)
				if etags != nil || len(service.Seen()) != 1 {
					t.Fatalf("ETags %q after %d requests", etags, len(service.Seen()))
				}
			})
		}
	}
}

func wantOnly(t *testing.T, err, want error) {
	t.Helper()
	for _, s := range []error{
		store.ErrNotFound, store.ErrExists, store.ErrPrecondition, store.ErrThrottled, store.ErrUnavailable,
		store.ErrOutcomeUnknown, store.ErrTooLarge, store.ErrInvalid, store.ErrCorrupt,
	} {
		if errors.Is(err, s) != errors.Is(want, s) {
			t.Errorf("error %v: is %v: %v, want only %v", err, s, errors.Is(err, s), want)
		}
	}
}

func TestSingleOperationNamesWhatFailed(t *testing.T) {
	for _, tc := range []struct {
		op     store.Op
		status int
		code   string
		want   error
	}{
		{store.Insert("key", nil), 409, "EntityAlreadyExists", store.ErrExists},
		{store.Replace("key", nil, someTag), 412, "UpdateConditionNotSatisfied", store.ErrPrecondition},
		{store.Replace("key", nil, someTag), 404, "ResourceNotFound", store.ErrPrecondition},
		{store.Delete("key", someTag), 404, "ResourceNotFound", store.ErrPrecondition},
		{store.Delete("key", ""), 404, "EntityNotFound", store.ErrNotFound},
	} {
		table, _ := scripted(t, failure(tc.status, tc.code))
		_, err := table.Apply(t.Context(), "part", []store.Op{tc.op})
		wantOnly(t, err, tc.want)
		var failed *store.OpError
		if !errors.As(err, &failed) || failed.Index != 0 || failed.Key != "key" {
			t.Errorf("%d %s: got %v, which names no operation", tc.status, tc.code, err)
		}
	}
}

func TestErrorCodeIsFoundInTheBody(t *testing.T) {
	table, _ := scripted(t, azfake.Answer{Status: 409, Body: `{"odata.error":{"code":"EntityAlreadyExists","message":{"value":"x"}}}`})
	_, err := table.Apply(t.Context(), "part", []store.Op{store.Insert("key", nil)})
	wantOnly(t, err, store.ErrExists)
}

func TestTransactionOverTheWire(t *testing.T) {
	table, service := scripted(t, batch(done(1), done(2)))
	etags, err := table.Apply(t.Context(), "part", twoOps)
	if err != nil || fmt.Sprint(etags) != fmt.Sprint([]store.ETag{store.ETag(tagOf(1)), store.ETag(tagOf(2))}) {
		t.Fatalf("got %q, %v", etags, err)
	}
	seen := service.Seen()
	if len(seen) != 1 || seen[0].Method != "POST" || seen[0].URL != "http://tables.example/acc/$batch" {
		t.Fatalf("sent %+v", seen)
	}
	if reqs := requestsIn(t, []byte(seen[0].Body), "batch_"+table.boundary); len(reqs) != 2 {
		t.Fatalf("%d requests inside", len(reqs))
	}
}

func TestReadsAreRepeatedWhileThatMayHelp(t *testing.T) {
	row := azfake.Answer{Status: 200, Body: logRow("key", "v")}
	for _, tc := range []struct {
		name     string
		script   []azfake.Answer
		requests int
		want     error
	}{
		{"Busy", []azfake.Answer{failure(503, "ServerBusy"), row}, 2, nil},
		{"TimedOut", []azfake.Answer{failure(500, "OperationTimedOut"), row}, 2, nil},
		{"Reset", []azfake.Answer{{Err: azfake.ErrReset}, row}, 2, nil},
		{"CutBody", []azfake.Answer{{Status: 200, Body: logRow("key", "v")[:20], Cut: true}, row}, 2, nil},
		{"ShortBody", []azfake.Answer{{Status: 200, Body: logRow("key", "v")[:20]}, row}, 2, nil},
		{"BusyForLong", []azfake.Answer{failure(503, "ServerBusy", "Retry-After", "60"), row}, 1, store.ErrThrottled},
		{"BusyForEver", []azfake.Answer{failure(503, "ServerBusy")}, 4, store.ErrThrottled},
		{"ResetForEver", []azfake.Answer{{Err: azfake.ErrReset}}, 4, store.ErrUnavailable},
		{"NotFound", []azfake.Answer{failure(404, "ResourceNotFound")}, 1, store.ErrNotFound},
		{"Corrupt", []azfake.Answer{{Status: 200, Body: `{}`}}, 1, store.ErrCorrupt},
		{"TooLong", []azfake.Answer{{Status: 200, Body: `{"P0":"` + strings.Repeat("A", maxEntityBody)}}, 1, store.ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, service := scripted(t, tc.script...)
				got, err := table.Get(t.Context(), "part", "key")
				if n := len(service.Seen()); n != tc.requests || !errors.Is(err, tc.want) {
					t.Fatalf("%d requests and %v, want %d and %v", n, err, tc.requests, tc.want)
				}
				if err == nil && string(got.Data) != "v" {
					t.Fatalf("got %q", got.Data)
				}
			})
		})
	}
}

func TestThrottlingTellsHowLongToWait(t *testing.T) {
	table, _ := scripted(t, failure(503, "ServerBusy", "Retry-After", "9"))
	_, err := table.Apply(t.Context(), "part", twoOps)
	if got := store.RetryAfter(err); got != 9*time.Second {
		t.Fatalf("retry after %s of %v, want 9s", got, err)
	}
}

// hang answers only when the caller gives up.
var hang = azfake.Answer{Do: func(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}}

func TestHungServiceIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, service := scripted(t, hang)
		start := time.Now()
		_, err := table.Apply(t.Context(), "part", twoOps)
		wantOnly(t, err, store.ErrOutcomeUnknown)
		if took := time.Since(start); took != defaultTryTimeout {
			t.Errorf("a write hung for %s, want %s", took, defaultTryTimeout)
		}
		_, err = table.Get(t.Context(), "part", "key")
		wantOnly(t, err, store.ErrUnavailable)
		if n := len(service.Seen()); n != 5 {
			t.Errorf("%d requests, want 1 write and 4 reads", n)
		}
	})
}

func TestCallerMayGiveUpEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _ := scripted(t, hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := table.Get(ctx, "part", "key")
		wantOnly(t, err, store.ErrUnavailable)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("got %v after %s", err, time.Since(start))
		}
	})
}

func TestEndedContextSendsNothing(t *testing.T) {
	table, service := scripted(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := table.Apply(ctx, "part", twoOps)
	wantOnly(t, err, store.ErrUnavailable)
	_, err = table.Range(ctx, "part", store.RangeQuery{})
	wantOnly(t, err, store.ErrUnavailable)
	if n := len(service.Seen()); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

func TestEmptyPagesAreFollowed(t *testing.T) {
	table, service := scripted(t,
		rows(next("1!cA--", "1!cg--")), rows(next("1!cA--", "")), rows(next("1!cB--", "")), rows(next("p", "r"), logRow("key", "v")))
	page, err := table.Range(t.Context(), "part", store.RangeQuery{From: "a", To: "z", Limit: 7})
	if err != nil || len(page.Rows) != 1 || !page.More {
		t.Fatalf("got %+v, %v", page, err)
	}
	want := []struct{ partition, row string }{{"", ""}, {"1!cA--", "1!cg--"}, {"1!cA--", ""}, {"1!cB--", ""}}
	for i, seen := range service.Seen() {
		u, err := url.Parse(seen.URL)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if q.Get("NextPartitionKey") != want[i].partition || q.Get("NextRowKey") != want[i].row {
			t.Errorf("request %d continues at %q, %q", i, q.Get("NextPartitionKey"), q.Get("NextRowKey"))
		}
		if q.Get("$filter") != "PartitionKey eq 'part' and RowKey ge 'a' and RowKey lt 'z'" || q.Get("$top") != "7" {
			t.Errorf("request %d asks for %q, %q", i, q.Get("$filter"), q.Get("$top"))
		}
	}
}

func TestEmptyPagesEndSomewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, service := scripted(t, rows(next("p", "r")))
		_, err := table.Range(t.Context(), "part", store.RangeQuery{})
		wantOnly(t, err, store.ErrUnavailable)
		if n := len(service.Seen()); n != 2 {
			t.Errorf("a loop was followed %d times", n)
		}
	})
	var endless []azfake.Answer
	for i := range 2 * maxEmptyPages {
		endless = append(endless, rows(next("p", fmt.Sprint(i))))
	}
	table, service := scripted(t, endless...)
	_, err := table.Range(t.Context(), "part", store.RangeQuery{})
	wantOnly(t, err, store.ErrUnavailable)
	if n := len(service.Seen()); n != maxEmptyPages {
		t.Errorf("%d empty pages were followed", n)
	}
}

func TestLastPageHasNoMore(t *testing.T) {
	table, _ := scripted(t, rows(nil, logRow("key", "v")))
	page, err := table.Range(t.Context(), "part", store.RangeQuery{Limit: 1})
	if err != nil || len(page.Rows) != 1 || page.More {
		t.Fatalf("got %+v, %v", page, err)
	}
}

func TestRangeThatEndsBeforeItBeginsAsksNobody(t *testing.T) {
	table, service := scripted(t)
	for _, q := range []store.RangeQuery{{From: "b", To: "a"}, {From: "b", To: "b"}} {
		page, err := table.Range(t.Context(), "part", q)
		if err != nil || len(page.Rows) != 0 || page.More {
			t.Errorf("%+v: got %+v, %v", q, page, err)
		}
	}
	if n := len(service.Seen()); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

func TestOversizedPageIsReadInParts(t *testing.T) {
	var large []string
	value := strings.Repeat("v", 600<<10)
	for i := range 20 {
		large = append(large, logRow(fmt.Sprintf("%02d", i), value))
	}
	table, _ := scripted(t, rows(nil, large...))
	page, err := table.Range(t.Context(), "part", store.RangeQuery{})
	if err != nil || len(page.Rows) == 0 || len(page.Rows) == 20 || !page.More {
		t.Fatalf("%d rows, more %v, %v", len(page.Rows), page.More, err)
	}
	for _, row := range page.Rows {
		if string(row.Data) != value {
			t.Fatalf("row %s is damaged", row.Key)
		}
	}
}

func TestSignatureStaysOutOfErrors(t *testing.T) {
	const secret = "sig=hush"
	service := azfake.New(t, azfake.Answer{Err: azfake.ErrReset})
	table, err := New(t.Context(), Options{ServiceURL: "http://tables.example", SAS: "?sv=1&" + secret, TableName: "tab", Lazy: true, Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, errApply := table.Apply(t.Context(), "part", twoOps)
		_, errGet := table.Get(t.Context(), "part", "key")
		_, errRange := table.Range(t.Context(), "part", store.RangeQuery{})
		for _, err := range []error{errApply, errGet, errRange} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "hush") {
				t.Errorf("error %v", err)
			}
		}
	})
	for _, seen := range service.Seen() {
		if !strings.HasSuffix(seen.URL, "?sv=1&"+secret) && !strings.HasSuffix(seen.URL, "&sv=1&"+secret) {
			t.Errorf("request without its signature: %s", seen.URL)
		}
		if strings.Contains(seen.Body, "hush") {
			t.Error("the body of a request holds the signature")
		}
	}
}
