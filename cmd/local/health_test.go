package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthIsThatOfTheServiceAtTheAddress(t *testing.T) {
	status := http.StatusOK
	service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		w.WriteHeader(status)
	})
	for name, server := range map[string]*httptest.Server{"http": httptest.NewServer(service), "https": httptest.NewTLSServer(service)} {
		t.Run(name, func(t *testing.T) {
			defer server.Close()
			s := &settings{flags: flags{Listen: server.Listener.Addr().String(), TLS: name == "https"}}
			status = http.StatusOK
			if err := health(t.Context(), s, nil); err != nil {
				t.Error(err)
			}
			status = http.StatusServiceUnavailable
			if err := health(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "503") {
				t.Errorf("got %v", err)
			}
			server.Close()
			if err := health(t.Context(), s, nil); err == nil {
				t.Error("nobody is healthy")
			}
		})
	}
}

func TestHealthOfAServiceThatHangsUpHintsAtTLS(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	s := &settings{flags: flags{Listen: server.Listener.Addr().String()}}
	if err := health(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "try --tls") {
		t.Errorf("got %v", err)
	}
}

func TestHealthNeedsAPort(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "127.0.0.1", ":0"} {
		if err := health(t.Context(), &settings{flags: flags{Listen: address}}, nil); err == nil || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("%s: got %v", address, err)
		}
	}
}
