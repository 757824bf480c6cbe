package azhttp

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// server counts the connections that are opened to it.
func server(t *testing.T, handler http.HandlerFunc) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	s := httptest.NewUnstartedServer(handler)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, connections
}

func get(t *testing.T, transport *Transport, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestFrozenProcessDropsItsIdleConnections(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name       string
		wall, mono time.Duration
		want       int64
	}{
		{"BothClocksWentOn", time.Hour, time.Hour, 1},
		{"SmallCorrectionOfTheWallClock", 3 * time.Second, time.Second, 1},
		{"WallClockWentOnAlone", time.Hour, time.Second, 2},
		{"WallClockSetBack", -time.Hour, time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, connections := server(t, func(http.ResponseWriter, *http.Request) {})
			now := reading{wall: start}
			transport := NewTransport()
			defer transport.CloseIdleConnections()
			transport.now = func() reading { return now }
			get(t, transport, url)
			now = reading{wall: start.Add(tc.wall), mono: tc.mono}
			get(t, transport, url)
			if got := connections.Load(); got != tc.want {
				t.Fatalf("%d connections, want %d", got, tc.want)
			}
		})
	}
}

func TestClocksAdvanceTogetherWhileAwake(t *testing.T) {
	transport := NewTransport()
	for range 100 {
		if transport.thawed() {
			t.Fatal("a running process counts as frozen")
		}
	}
}

func TestTransportFollowsNoRedirect(t *testing.T) {
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := NewTransport().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Fatalf("status %d, want the redirect itself", resp.StatusCode)
	}
}

func TestManyConnectionsStayOpen(t *testing.T) {
	const clients = 32
	arrived, release := make(chan struct{}, clients), make(chan struct{})
	url, connections := server(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	transport := NewTransport()
	defer transport.CloseIdleConnections()
	for range 2 {
		done := make(chan struct{})
		for range clients {
			go func() {
				get(t, transport, url)
				done <- struct{}{}
			}()
		}
		for range clients {
			<-arrived
		}
		for range clients {
			release <- struct{}{}
		}
		for range clients {
			<-done
		}
	}
	// The second round reuses what the first opened; a default transport would
	// have kept two. A few may still be on their way back into the pool.
	if got := connections.Load(); got > clients+clients/2 {
		t.Fatalf("%d connections for twice %d requests", got, clients)
	}
}
