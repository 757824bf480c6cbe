package client_test

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/memory"
)

func TestTimersAgainstTheService(t *testing.T) {
	m := memory.New(memory.Options{})
	svc, err := service.New(service.Config{
		Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), InternalToken: "token", Logger: slog.New(slog.DiscardHandler), Instance: 0xbeef,
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(svc.Handler())
	defer web.Close()
	c, err := client.New(web.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tick.InProcess(t.Context(), svc.Handler(), "token", "collect"); err != nil {
		t.Fatal(err)
	}
	got, err := c.Timers(t.Context())
	if err != nil || len(got.Timers) != 5 || got.ObservedAt.IsZero() {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, timer := range got.Timers {
		ticked := timer.Timer == "collect"
		if timer.Late == ticked || (timer.Age != nil) != ticked || (timer.LastSucceededAt != nil) != ticked || (timer.LastStartedAt != nil) != ticked {
			t.Errorf("timer %+v", timer)
		}
		if timer.Interval == 0 || timer.LateAfter != client.Span(3*time.Minute) || (timer.Instance == "000000000000beef") != ticked {
			t.Errorf("timer %+v", timer)
		}
	}
}

func TestSpanIsADurationAsText(t *testing.T) {
	var s client.Span
	if err := json.Unmarshal([]byte(`"1m30s"`), &s); err != nil || s != client.Span(90*time.Second) {
		t.Errorf("got %v, %v", s, err)
	}
	if text, err := json.Marshal(s); err != nil || string(text) != `"1m30s"` {
		t.Errorf("became %s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`"soon"`), &s); err == nil || !strings.Contains(err.Error(), "soon") {
		t.Errorf("got %v", err)
	}
}
