package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

func TestStorageCallsAreCountedByKindAndOutcome(t *testing.T) {
	m := memory.New(memory.Options{})
	s := newStorageMetrics(clock.NewSystem())
	w := newStorageWatch(clock.NewSystem(), s, nil, slog.New(slog.DiscardHandler))
	table, blobs := meteredTable{m.Table(), w}, meteredBlobs{m.Blobs(), w}
	ctx := t.Context()
	steps := []struct {
		kind, outcome string
		call          func() error
	}{
		{"table_get", "not_found", func() error { _, err := table.Get(ctx, "p", "r"); return err }},
		{"table_apply", "ok", func() error {
			_, err := table.Apply(ctx, "p", []store.Op{store.Insert("r", []byte("1234"))})
			return err
		}},
		{"table_apply", "exists", func() error { _, err := table.Apply(ctx, "p", []store.Op{store.Insert("r", nil)}); return err }},
		{"table_apply", "precondition", func() error {
			_, err := table.Apply(ctx, "p", []store.Op{store.Replace("r", nil, "stale")})
			return err
		}},
		{"table_apply", "invalid", func() error { _, err := table.Apply(ctx, "", []store.Op{store.Insert("r", nil)}); return err }},
		{"table_get", "ok", func() error { _, err := table.Get(ctx, "p", "r"); return err }},
		{"table_range", "ok", func() error { _, err := table.Range(ctx, "p", store.RangeQuery{}); return err }},
		{"blob_get", "not_found", func() error { _, _, err := blobs.Get(ctx, "b"); return err }},
		{"blob_put", "ok", func() error { _, err := blobs.Put(ctx, "b", []byte("123"), store.Create); return err }},
		{"blob_put", "exists", func() error { _, err := blobs.Put(ctx, "b", nil, store.Create); return err }},
		{"blob_get", "ok", func() error { _, _, err := blobs.Get(ctx, "b"); return err }},
		{"blob_range", "ok", func() error { _, _, err := blobs.GetRange(ctx, "b", 1, 2); return err }},
		{"blob_list", "ok", func() error { _, err := blobs.List(ctx, "", ""); return err }},
		{"blob_delete", "ok", func() error { return blobs.Delete(ctx, "b") }},
		{"blob_delete", "not_found", func() error { return blobs.Delete(ctx, "b") }},
	}
	for _, step := range steps {
		counter := s.operations.WithLabelValues(step.kind, step.outcome)
		before := testutil.ToFloat64(counter)
		err := step.call()
		if (err == nil) != (step.outcome == "ok") {
			t.Fatalf("%s: %v, want %s", step.kind, err, step.outcome)
		}
		if got := testutil.ToFloat64(counter) - before; got != 1 {
			t.Errorf("%s %s was counted %v times", step.kind, step.outcome, got)
		}
	}
	for kind, want := range map[string]float64{"table_apply": 4, "table_get": 4, "table_range": 4, "blob_put": 3, "blob_get": 3, "blob_range": 2} {
		if got := testutil.ToFloat64(s.bytes.WithLabelValues(kind)); kind != "table_apply" && got != want || got < want {
			t.Errorf("%s: %v bytes, want %v", kind, got, want)
		}
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	tests := map[string]error{
		"ok": nil, "not_found": store.ErrNotFound, "exists": store.ErrExists, "precondition": store.ErrPrecondition,
		"throttled": &store.ThrottledError{Err: errors.New("busy")}, "unavailable": store.ErrUnavailable,
		"unknown": store.ErrOutcomeUnknown, "too_large": store.ErrTooLarge, "invalid": store.ErrInvalid,
		"corrupt": store.Corruptf("row"), "error": context.Canceled,
	}
	for want, err := range tests {
		if err != nil {
			err = fmt.Errorf("call: %w", err)
		}
		if got := outcomeOf(err); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
