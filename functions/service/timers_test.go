package service

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// agesOf returns the figures of lattice_timer_age_seconds by timer.
func agesOf(t *testing.T, svc *Service) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	svc.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("metrics: %d %s", w.Code, w.Body)
	}
	ages := map[string]float64{}
	for _, line := range regexp.MustCompile(`(?m)^lattice_timer_age_seconds\{timer="(\w+)"\} (\S+)$`).FindAllStringSubmatch(w.Body.String(), -1) {
		age, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		ages[line[1]] = age
	}
	return ages
}

// beatReads counts reads of heartbeats, and hangs them while away is set.
func beatReads(f *faulty.Instance, away *atomic.Bool) *faulty.Active {
	return f.Add(faulty.Rule{
		When: faulty.All(faulty.Kinds(faulty.Range), faulty.InPartition("cluster")),
		Do: func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
			if away.Load() {
				<-ctx.Done()
				return store.ErrUnavailable
			}
			return perform(ctx)
		},
	})
}

func newAged(t *testing.T, f *faulty.Instance, logs *bytes.Buffer) *Service {
	t.Helper()
	svc, err := New(Config{
		Table: f.Table(), Blobs: f.Blobs(), Options: options.Default(), InternalToken: token, Version: "test",
		Logger: slog.New(slog.NewTextHandler(logs, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

func TestAgeOfATimerIsThatOfTheLastSuccessAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		var away atomic.Bool
		var logs bytes.Buffer
		watched, other := faulty.New(m.Table(), m.Blobs(), faulty.Options{}), faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		reads := beatReads(watched, &away)
		svc, elsewhere := newAged(t, watched, &logs), newAged(t, other, &logs)
		if ages := agesOf(t, svc); len(ages) != 0 {
			t.Fatalf("ages before any tick: %v", ages)
		}
		if _, err := tick.InProcess(t.Context(), elsewhere.Handler(), token, "collect"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if ages := agesOf(t, svc); len(ages) != 1 || ages["collect"] != 20 {
			t.Fatalf("20 s after a tick elsewhere: %v", ages)
		}
		// However often it is scraped, one read in 15 s is enough.
		before := reads.Seen()
		for range 60 {
			time.Sleep(time.Second)
			agesOf(t, svc)
		}
		if n := reads.Seen() - before; n != 4 {
			t.Errorf("60 scrapes in 60 s made %d reads, want 4", n)
		}
		// While the storage is away the figure goes on ageing, and a scrape ends.
		away.Store(true)
		time.Sleep(time.Minute)
		start := time.Now()
		if ages := agesOf(t, svc); ages["collect"] != 140+time.Since(start).Seconds() {
			t.Errorf("while the storage is away: %v", ages)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("a scrape took %s", took)
		}
	})
}

func TestHeartbeatFailsNoTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		var logs bytes.Buffer
		svc := newAged(t, f, &logs)
		f.Add(faulty.Rule{When: faulty.All(faulty.InPartition("cluster"), faulty.OnKey("timer-")), Do: faulty.Do(func(ctx context.Context, _ *faulty.Call) error {
			<-ctx.Done()
			return store.ErrUnavailable
		})})
		for _, timer := range schedule.Names() {
			start := time.Now()
			if _, err := tick.InProcess(t.Context(), svc.Handler(), token, timer); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("%s took %s: %v", timer, time.Since(start), err)
			}
		}
		if n := strings.Count(logs.String(), "heartbeat was not recorded"); n != len(schedule.Names()) {
			t.Errorf("%d lines in the log:\n%s", n, logs.String())
		}
	})
}

func TestLaptopsTicksCostFewHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		var logs bytes.Buffer
		svc := newAged(t, f, &logs)
		writes := f.Add(faulty.Rule{When: faulty.All(faulty.Writes, faulty.OnKey("timer-")), Do: faulty.Delay(0, 0)})
		// Nothing else is read of a row of a timer.
		reads := f.Add(faulty.Rule{When: faulty.All(faulty.Reads, faulty.OnKey("timer-")), Do: faulty.Delay(0, 0)})
		for range 100 {
			if _, err := tick.InProcess(t.Context(), svc.Handler(), token, "migrations"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if writes.Seen() != 10 || reads.Seen() != 10 {
			t.Errorf("100 ticks made %d writes and %d reads of heartbeats, want 10 of each", writes.Seen(), reads.Seen())
		}
	})
}
