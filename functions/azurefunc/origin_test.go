package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// from sends a call of the timer collect that does not come from the host, and
// reports whether the timer ran.
func from(t *testing.T, set func(*http.Request)) bool {
	t.Helper()
	ran := false
	service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = ran || strings.HasPrefix(r.URL.Path, "/internal/")
		w.WriteHeader(http.StatusNotFound)
	})
	server := httptest.NewServer(newHost(service))
	defer server.Close()
	req, err := http.NewRequest("POST", server.URL+"/collect", strings.NewReader(`{"Data":{},"Metadata":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	set(req)
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return ran
}

func TestOnlyTheHostRunsTimers(t *testing.T) {
	if !from(t, func(r *http.Request) { r.Header.Set("X-Azure-Functions-Invocationid", "1") }) {
		t.Fatal("the host itself cannot run the timer")
	}
	for _, name := range []string{"lattice.azurewebsites.net", "localhost:7071", "127.0.0.1", "127.0.0.1:1", ""} {
		if from(t, func(r *http.Request) {
			if r.Host = name; name == "" {
				r.Host = "\t"
			}
		}) {
			t.Errorf("a request for %q ran a timer", name)
		}
	}
	for _, header := range outside {
		if from(t, func(r *http.Request) { r.Header.Set(header, "x") }) {
			t.Errorf("a request with %s ran a timer", header)
		}
	}
}

func TestKeyOfTheFunctionAppIsNotTheServicesBusiness(t *testing.T) {
	for query, want := range map[string]string{
		"":                          "",
		"code=k":                    "",
		"code=k%3D%3D&b64=YQ":       "b64=YQ",
		"b64=YQ&Code=k":             "b64=YQ",
		"a=1&code=k&b=2&code=l":     "a=1&b=2",
		"c%6Fde=k&code=x":           "",
		"key=code%3D1":              "key=code%3D1",
		"key=code=1":                "key=code=1",
		"prefix=code&barcode=1&x=%": "prefix=code&barcode=1&x=%",
		"%zz=1&code=2":              "%zz=1",
	} {
		got, original := "none", httptest.NewRequest("GET", "http://lattice.test/v1/trees/t/key?"+query, http.NoBody)
		service := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.RawQuery })
		newHost(service).ServeHTTP(httptest.NewRecorder(), original)
		if got != want || original.URL.RawQuery != query {
			t.Errorf("%q became %q, want %q; the request itself has %q", query, got, want, original.URL.RawQuery)
		}
	}
}

func TestRequestEndsBeforeThePlatformGivesUp(t *testing.T) {
	if requestLimit >= 230*time.Second || requestLimit < 200*time.Second {
		t.Errorf("the limit is %s", requestLimit)
	}
	var cause error
	h := newHost(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		cause = context.Cause(r.Context())
		_, _ = io.WriteString(w, "in time")
	}))
	h.limit = time.Millisecond
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", "http://lattice.test/v1/trees/t/entries", http.NoBody))
	if !errors.Is(cause, errTooLong) || !errors.Is(cause, context.DeadlineExceeded) || answer.Body.String() != "in time" {
		t.Errorf("cause %v, answer %q", cause, answer.Body)
	}
}
