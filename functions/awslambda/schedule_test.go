package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

func TestTimerWithMoreToDoRunsAgainWithinItsInvocation(t *testing.T) {
	within(t, 40*time.Second, func(t *testing.T, ctx context.Context) {
		start := time.Now()
		var ran []string
		f := newFunction(func(w http.ResponseWriter, r *http.Request) {
			ran = append(ran, fmt.Sprintf("%s@%s", timerName(r), time.Since(start)))
			_, _ = io.WriteString(w, fmt.Sprintf(`{"more":%t}`, timerName(r) == "migrations" || timerName(r) == "checkpoint" && len(ran) < 6))
		})
		if _, err := f.handle(ctx, json.RawMessage(`{"source":"aws.events"}`)); err != nil {
			t.Fatal(err)
		}
		// The last one is to end 2 s before the host does, and more.
		want := []string{
			"monitor@0s", "migrations@0s", "transactions@0s", "checkpoint@0s", "collect@0s", "migrations@5s", "migrations@10s",
			"migrations@15s", "checkpoint@15s", "migrations@20s", "migrations@25s", "migrations@30s", "migrations@35s",
		}
		if !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		if left := 40*time.Second - time.Since(start); left < minMargin {
			t.Errorf("%s are left of the host's time", left)
		}
	})
}

func TestIdleInvocationEndsAtOnce(t *testing.T) {
	within(t, 40*time.Second, func(t *testing.T, ctx context.Context) {
		start := time.Now()
		f := newFunction(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"more":false}`) })
		if _, err := f.handle(ctx, json.RawMessage(`{"source":"aws.events"}`)); err != nil || time.Since(start) != 0 {
			t.Errorf("it took %s: %v", time.Since(start), err)
		}
	})
}
