package blob

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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

func whole(data string) azfake.Answer {
	return azfake.Answer{Status: http.StatusOK, Header: map[string]string{"ETag": someTag}, Body: data}
}

func part(data string, offset int) azfake.Answer {
	a := whole(data)
	a.Status = http.StatusPartialContent
	a.Header["Content-Range"] = fmt.Sprintf("bytes %d-%d/1000", offset, offset+len(data)-1)
	return a
}

func TestGetIsRepeatedWhileThatMayHelp(t *testing.T) {
	cut := whole("da")
	cut.Cut = true
	long := whole("")
	long.Header["Content-Length"] = fmt.Sprint(store.MaxBlobBytes + 1)
	for _, tc := range []struct {
		name     string
		first    azfake.Answer
		requests int
		want     error
	}{
		{"AtOnce", whole("data"), 1, nil},
		{"Busy", failure(503, "ServerBusy"), 2, nil},
		{"Internal", failure(500, "InternalError"), 2, nil},
		{"Reset", azfake.Answer{Err: azfake.ErrReset}, 2, nil},
		{"CutBody", cut, 2, nil},
		{"NotFound", failure(404, "BlobNotFound"), 1, store.ErrNotFound},
		{"LongerThanAnyOfOurs", long, 1, store.ErrTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, service := scripted(t, tc.first, whole("data"))
				data, etag, err := s.Get(t.Context(), "name")
				wantOnly(t, err, tc.want)
				if n := len(service.Seen()); n != tc.requests {
					t.Fatalf("%d requests, want %d", n, tc.requests)
				}
				if err == nil && (string(data) != "data" || etag != someTag) {
					t.Fatalf("got %q, %q", data, etag)
				}
			})
		})
	}
}

func TestGetGivesUpInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := whole("da")
		cut.Cut = true
		s, service := scripted(t, cut)
		data, _, err := s.Get(t.Context(), "name")
		wantOnly(t, err, store.ErrUnavailable)
		if n := len(service.Seen()); n != 4 || data != nil {
			t.Fatalf("%d requests gave %q", n, data)
		}
	})
}

func TestRangeIsAskedForAndChecked(t *testing.T) {
	for _, tc := range []struct {
		name           string
		offset, length int64
		answer         azfake.Answer
		header         string
		want           error
	}{
		{"Inside", 10, 4, part("data", 10), "bytes=10-13", nil},
		{"FromTheStart", 0, 4, part("data", 0), "bytes=0-3", nil},
		{"WholeShortBlob", 0, 100, whole("data"), "bytes=0-99", nil},
		{"OverTheEnd", 10, 1 << 40, part("data", 10), fmt.Sprintf("bytes=10-%d", 10+store.MaxBlobBytes-1), nil},
		{"BeyondTheEnd", 1 << 40, 5, failure(416, "InvalidRange"), fmt.Sprintf("bytes=%d-%d", store.MaxBlobBytes, store.MaxBlobBytes+4), store.ErrInvalid},
		{"AtTheEnd", 10, 5, part("", 10), "bytes=10-14", store.ErrInvalid},
		{"HeaderDroppedOnTheWay", 10, 100, whole("data"), "bytes=10-109", store.ErrUnavailable},
		{"AnotherRange", 10, 4, part("data", 11), "bytes=10-13", store.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, service := scripted(t, tc.answer)
				data, _, err := s.GetRange(t.Context(), "name", tc.offset, tc.length)
				wantOnly(t, err, tc.want)
				if err == nil && string(data) != "data" {
					t.Fatalf("got %q", data)
				}
				h := service.Seen()[0].Header
				if got := h.Get("x-ms-range") + h.Get("Range"); got != tc.header {
					t.Fatalf("asked for %q, want %q", got, tc.header)
				}
			})
		})
	}
}

func TestRangeWithoutSenseIsNeverSent(t *testing.T) {
	s, service := scripted(t)
	for _, r := range [][2]int64{{-1, 1}, {0, 0}, {0, -5}} {
		_, _, err := s.GetRange(t.Context(), "name", r[0], r[1])
		wantOnly(t, err, store.ErrInvalid)
	}
	if n := len(service.Seen()); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

func listing(next string, names ...string) azfake.Answer {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>`)
	for _, name := range names {
		b.WriteString(`<Blob><Name>` + name + `</Name><Properties><Last-Modified>Tue, 01 Jan 2030 12:00:00 GMT</Last-Modified>` +
			`<Etag>0x1</Etag><Content-Length>7</Content-Length></Properties></Blob>`)
	}
	b.WriteString(`</Blobs><NextMarker>` + next + `</NextMarker></EnumerationResults>`)
	return azfake.Answer{Status: http.StatusOK, Header: map[string]string{"Content-Type": "application/xml"}, Body: b.String()}
}

func TestListFollowsMarkers(t *testing.T) {
	s, service := scripted(t, listing("m1", "p/a", "p/b"), listing("m2"), listing("", "p/c"))
	var names []string
	for marker, more := "", true; more; more = marker != "" {
		page, err := s.List(t.Context(), "p/", marker)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Blobs {
			if b.Size != 7 || !b.Modified.Equal(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)) {
				t.Errorf("got %+v", b)
			}
			names = append(names, b.Name)
		}
		marker = page.Next
	}
	if fmt.Sprint(names) != "[p/a p/b p/c]" {
		t.Fatalf("listed %v", names)
	}
	for i, want := range []string{"", "m1", "m2"} {
		u, err := url.Parse(service.Seen()[i].URL)
		if err != nil {
			t.Fatal(err)
		}
		if q := u.Query(); q.Get("marker") != want || q.Get("prefix") != "p/" {
			t.Errorf("request %d asks with marker %q and prefix %q", i, q.Get("marker"), q.Get("prefix"))
		}
	}
}

func TestListingThatMakesNoSenseIsAnError(t *testing.T) {
	for name, answer := range map[string]azfake.Answer{
		"NotXML":       {Status: 200, Body: "hello"},
		"NoProperties": {Status: 200, Body: `<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs></EnumerationResults>`},
		"NoBlobs":      {Status: 200, Body: `<EnumerationResults></EnumerationResults>`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := scripted(t, answer)
				page, err := s.List(t.Context(), "", "")
				wantOnly(t, err, store.ErrUnavailable)
				if len(page.Blobs) != 0 {
					t.Fatalf("listed %v", page.Blobs)
				}
			})
		})
	}
}

func TestDeleteTellsWhatHappened(t *testing.T) {
	for _, tc := range []struct {
		answer azfake.Answer
		want   error
	}{
		{azfake.Answer{Status: http.StatusAccepted}, nil},
		{failure(404, "BlobNotFound"), store.ErrNotFound},
		{failure(500, "InternalError"), store.ErrOutcomeUnknown},
		{azfake.Answer{Err: azfake.ErrReset}, store.ErrOutcomeUnknown},
	} {
		s, service := scripted(t, tc.answer)
		wantOnly(t, s.Delete(t.Context(), "name"), tc.want)
		if n := len(service.Seen()); n != 1 {
			t.Errorf("%d requests", n)
		}
	}
}

var hang = azfake.Answer{Do: func(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}}

func TestHungServiceIsGivenUpInTimeForTheSize(t *testing.T) {
	for _, tc := range []struct {
		size int
		want time.Duration
	}{{0, defaultTryTimeout}, {8 << 20, defaultTryTimeout + 8*time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := scripted(t, hang)
			s.single = singlePutBytes
			start := time.Now()
			_, err := s.Put(t.Context(), "name", make([]byte, tc.size), store.Create)
			wantOnly(t, err, store.ErrOutcomeUnknown)
			if took := time.Since(start); took != tc.want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d bytes: %v after %s, want %s", tc.size, err, took, tc.want)
			}
		})
	}
}

func TestEndedContextSendsNothing(t *testing.T) {
	s, service := scripted(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errPut := s.Put(ctx, "name", nil, store.Always)
	_, _, errGet := s.Get(ctx, "name")
	_, _, errRange := s.GetRange(ctx, "name", 0, 1)
	_, errList := s.List(ctx, "", "")
	for _, err := range []error{errPut, errGet, errRange, errList, s.Delete(ctx, "name")} {
		wantOnly(t, err, store.ErrUnavailable)
	}
	if n := len(service.Seen()); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

// tokens hands out tokens that name their scopes.
type tokens struct{}

func (tokens) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: strings.Join(o.Scopes, " "), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestIdentityIsUsed(t *testing.T) {
	service := azfake.New(t, whole("data"))
	s, err := New(t.Context(), Options{ServiceURL: "https://acc.blob.core.windows.net", Credential: tokens{}, Container: "box", Lazy: true, Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	if got := service.Seen()[0].Header.Get("Authorization"); got != "Bearer https://storage.azure.com/.default" {
		t.Fatalf("authorization %q", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"NoAccount":       {},
		"ShortName":       {ConnectionString: fakeString, Container: "ab"},
		"LongName":        {ConnectionString: fakeString, Container: strings.Repeat("c", 64)},
		"UpperCase":       {ConnectionString: fakeString, Container: "Box"},
		"DoubleDash":      {ConnectionString: fakeString, Container: "b--x"},
		"DashAtTheEnd":    {ConnectionString: fakeString, Container: "box-"},
		"NegativeTimeout": {ConnectionString: fakeString, TryTimeout: -1},
		"KeyNotBase64":    {ConnectionString: "AccountName=a;AccountKey=hush!;BlobEndpoint=http://h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(t.Context(), o)
			wantOnly(t, err, store.ErrInvalid)
			if strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("error %q tells the key", err)
			}
		})
	}
}
