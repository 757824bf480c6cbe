package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

var (
	_ source.Source   = (*Source)(nil)
	_ source.Changing = (*Source)(nil)
)

// collect reads everything and fails on any error.
func collect(t *testing.T, pages pages) (records []source.Record, faults []source.Fault, positions []source.Position) {
	t.Helper()
	for p, err := range pages {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, p.Records...)
		faults = append(faults, p.Faults...)
		positions = append(positions, p.Next)
	}
	return records, faults, positions
}

func failure(pages pages) (last error) {
	for _, err := range pages {
		last = err
	}
	return last
}

// The service asks to wait for minutes, again and again: the reader does so,
// asks for less at a time, and gets everything once.
func TestThrottlingIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		g := newGateway(numbered(n)...)
		calls, throttled := 0, 0
		g.refuse = func(query bool) (int, map[string]string, string) {
			if calls++; query && calls%2 == 0 && throttled < 8 {
				throttled++
				return http.StatusTooManyRequests, map[string]string{"x-ms-retry-after-ms": "150000"}, `{"code":"429","message":"Request rate is large"}`
			}
			return 0, nil, ""
		}
		var told []time.Duration
		s := g.open(t, Options{PageSize: 100, RetryFor: 3 * time.Minute, OnWait: func(d time.Duration, cause error) {
			told = append(told, d)
			if !strings.Contains(cause.Error(), "throttles") {
				t.Errorf("told %v", cause)
			}
		}})
		start := time.Now()
		records, _, _ := collect(t, s.Read(t.Context(), nil))
		seen := map[string]bool{}
		for _, r := range records {
			seen[r.Origin] = true
		}
		if len(records) != n || len(seen) != n {
			t.Errorf("%d records, %d of them different", len(records), len(seen))
		}
		if took := time.Since(start); throttled == 0 || took != time.Duration(throttled)*150*time.Second || len(told) != throttled {
			t.Errorf("throttled %d times, waited %s, told %v", throttled, took, told)
		}
		if smallest := slices.Min(g.sizes); smallest >= 100 || g.sizes[0] < smallestPage {
			t.Errorf("pages asked for: %v; a throttled reader asks for fewer", g.sizes)
		}
	})
}

// A wait beyond --retry-for is not begun, whichever request it is.
func TestThrottlingIsBounded(t *testing.T) {
	for _, query := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(numbered(3)...)
			g.refuse = times(-1, query, http.StatusTooManyRequests, map[string]string{"x-ms-retry-after-ms": "40000"}, `{"message":"Request rate is large"}`)
			s := g.open(t, Options{RetryFor: time.Minute})
			start := time.Now()
			err := failure(s.Read(t.Context(), nil))
			if err == nil || !strings.Contains(err.Error(), "--retry-for") {
				t.Errorf("error %v", err)
			}
			if took := time.Since(start); took != 40*time.Second {
				t.Errorf("gave up after %s, want one wait of 40s", took)
			}
		})
	}
}

func TestWhatPassesIsRetried(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusGone, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusGatewayTimeout, statusRetryWith, -1} {
		for _, query := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(numbered(3)...)
				failures := 20
				if status < 0 {
					failures = 5 // who never answered is not waited for that long
				}
				g.refuse = times(failures, query, status, nil, `{"message":"come back later"}`)
				records, _, _ := collect(t, g.open(t, Options{}).Read(t.Context(), nil))
				if len(records) != 3 {
					t.Errorf("status %d: %d records", status, len(records))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(numbered(3)...)
				g.refuse = times(-1, query, status, nil, `{"message":"come back later"}`)
				start := time.Now()
				err := failure(g.open(t, Options{RetryFor: time.Minute}).Read(t.Context(), nil))
				// The SDK adds pauses of seconds of its own.
				if took := time.Since(start); err == nil || took > 5*time.Minute {
					t.Errorf("status %d for ever: %v after %s", status, err, took)
				}
			})
		}
	}
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			status     int
			body, want string
		}{
			{401, `{"code":"Unauthorized","message":"The input authorization token can't serve the request."}`, "refuses the key"},
			{401, `{"message":"Local Authorization is disabled. Use an AAD token to authorize all requests."}`, "takes no keys"},
			{403, `{"message":"Request originated from IP 1.2.3.4 through public internet. This is blocked by your Cosmos DB account firewall settings."}`, "firewall"},
			{403, `{"message":"Request blocked by Auth: principal does not have required RBAC permissions"}`, "Built-in Data Reader"},
			{400, `{"message":"The account has a preview feature enabled that the SDK version does not support."}`, "switch it off"},
			{403, `{"message":"Partition merge is enabled; please upgrade to an SDK that knows it.\r\nActivityId: 1"}`, "switch it off"},
			{400, `{"message":"The provided cross partition query can not be directly served by the gateway. (which only happens on older SDK clients)"}`, "compare properties"},
			{404, `{"message":"Owner resource does not exist"}`, "case-sensitive"},
			{418, `{"message":"teapot\r\nActivityId: 1, Request URI: /x"}`, "HTTP 418: teapot"},
		} {
			g := newGateway(numbered(1)...)
			g.refuse = times(-1, true, c.status, nil, c.body)
			start := time.Now()
			err := failure(g.open(t, Options{}).Read(t.Context(), nil))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "ActivityId") {
				t.Errorf("%d %s: %v, want %q", c.status, c.body, err, c.want)
			}
			if time.Since(start) > 0 {
				t.Errorf("%d: it was repeated for %s", c.status, time.Since(start))
			}
			if err != nil && strings.Contains(err.Error(), testKey) {
				t.Errorf("the error holds the key: %v", err)
			}
		}
	})
}

func TestPositions(t *testing.T) {
	const n = 25
	g := newGateway(numbered(n)...)
	o := Options{PageSize: 10}
	all, _, positions := collect(t, g.open(t, o).Read(t.Context(), nil))
	if len(all) != n || len(positions) != 3 || positions[2] != nil {
		t.Fatalf("%d records, positions %s", len(all), positions)
	}
	for i, at := range positions[:2] {
		rest, _, _ := collect(t, g.open(t, o).Read(t.Context(), at))
		if want := n - 10*(i+1); len(rest) != want || rest[0].Origin != all[10*(i+1)].Origin {
			t.Errorf("from page %d: %d records, want %d", i+1, len(rest), want)
		}
	}
	if err := failure(g.open(t, o).ReadSince(t.Context(), "5", positions[0])); !errors.Is(err, source.ErrRestart) {
		t.Errorf("a position of another cut: %v", err)
	}
	if err := failure(g.open(t, o).Read(t.Context(), source.Position(`{"token":"x","container":"rid-1"}`))); !errors.Is(err, source.ErrRestart) {
		t.Errorf("a token that is not known any more: %v", err)
	}
	g.container = strings.Replace(g.container, "rid-1", "rid-2", 1)
	if err := failure(g.open(t, o).Read(t.Context(), positions[0])); !errors.Is(err, source.ErrRestart) || !strings.Contains(err.Error(), "anew") {
		t.Errorf("a container that was created anew: %v", err)
	}
	for _, bad := range []string{`{`, `{}`, `[]`} {
		if err := failure(g.open(t, o).Read(t.Context(), source.Position(bad))); err == nil {
			t.Errorf("position %s was accepted", bad)
		}
	}
}

// Pages without items are ordinary across partitions, but one that comes twice
// would never end.
func TestEmptyPages(t *testing.T) {
	g := newGateway(numbered(1)...)
	asked := 0
	g.refuse = func(query bool) (int, map[string]string, string) {
		if asked++; query && asked < 5 {
			return http.StatusOK, map[string]string{"x-ms-continuation": fmt.Sprint(0)}, `{"Documents":[]}`
		}
		return 0, nil, ""
	}
	if err := failure(g.open(t, Options{}).Read(t.Context(), nil)); err == nil || !strings.Contains(err.Error(), "again and again") {
		t.Errorf("a token that leads to itself: %v", err)
	}
	g.refuse = times(1, true, http.StatusOK, map[string]string{"x-ms-continuation": "0"}, `{"Documents":[]}`)
	if records, _, _ := collect(t, g.open(t, Options{}).Read(t.Context(), nil)); len(records) != 1 {
		t.Errorf("%d records after an empty page", len(records))
	}
	for _, body := range []string{`{}`, `[]`, `<html>`, `{"Documents":null}`} {
		g.refuse = times(1, true, http.StatusOK, nil, body)
		if err := failure(g.open(t, Options{}).Read(t.Context(), nil)); err == nil {
			t.Errorf("the answer %s was taken for an empty container", body)
		}
	}
}

func TestQueriesAndCount(t *testing.T) {
	g := newGateway(numbered(25)...)
	s := g.open(t, Options{PageSize: 10, Filter: "where c.a = 1 OR c.b = 2"})
	collect(t, s.ReadSince(t.Context(), "1700000000", nil))
	if n, err := s.Count(t.Context()); err != nil || n != 25 {
		t.Errorf("count %d, %v", n, err)
	}
	collect(t, s.Read(t.Context(), nil))
	for i, want := range map[int]string{
		0: "SELECT * FROM c WHERE (c.a = 1 OR c.b = 2) AND c._ts >= 1700000000",
		3: "SELECT c.id FROM c WHERE (c.a = 1 OR c.b = 2)",
		6: "SELECT * FROM c WHERE (c.a = 1 OR c.b = 2)",
	} {
		if g.queries[i] != want {
			t.Errorf("query %d is %q, want %q", i, g.queries[i], want)
		}
	}
	if g.tokens[0] != "" || g.tokens[1] != "10" {
		t.Errorf("tokens %q", g.tokens)
	}
}

func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(numbered(25)...)
		info, err := g.open(t, Options{}).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Kind != "cosmos" || info.Estimate != 25 || info.Identity != "https://test.documents.example/db/items" ||
			info.KeyTemplate != "{pk}/{id}" || !slices.Equal(info.KeyFields, []string{"pk", "id"}) {
			t.Errorf("info %+v", info)
		}
		if want := fmt.Sprint(time.Now().Add(-cutMargin).Unix()); info.Cut != want {
			t.Errorf("cut %s, want %s", info.Cut, want)
		}
		if info, err = g.open(t, Options{Filter: "c.a = 1"}).Inspect(t.Context()); err != nil || info.Estimate != -1 || !strings.Contains(info.Identity, "c.a = 1") {
			t.Errorf("with a filter: %+v, %v", info, err)
		}
	})
}

// The caller's reason to stop comes back as it is, also out of a long wait.
func TestCallerMayEndTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(numbered(1)...)
		g.refuse = times(-1, true, http.StatusTooManyRequests, map[string]string{"x-ms-retry-after-ms": "60000"}, `{}`)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		time.AfterFunc(time.Second, func() { cancel(why) })
		start := time.Now()
		if err := failure(g.open(t, Options{}).Read(ctx, nil)); !errors.Is(err, why) || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
