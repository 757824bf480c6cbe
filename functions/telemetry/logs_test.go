package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
)

func spanned(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd}}))
}

func line(t *testing.T, write func(*slog.Logger)) map[string]any {
	t.Helper()
	var log bytes.Buffer
	write(slog.New(LogHandler(slog.NewJSONHandler(&log, nil))))
	var got map[string]any
	if err := json.Unmarshal(log.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v", log.String(), err)
	}
	delete(got, "time")
	return got
}

func TestALineCarriesWhatStandsInItsContext(t *testing.T) {
	ctx := With(t.Context(), slog.String(RequestID, "r1"), slog.String(Tree, "t"))
	ctx = With(ctx, slog.String(Tree, "u"), slog.Int(Shard, 3))
	const span = `"traceId":"ab000000000000000000000000000000","spanId":"cd00000000000000"`
	for _, c := range []struct {
		write func(*slog.Logger)
		want  string
	}{
		{func(l *slog.Logger) { l.InfoContext(ctx, "m", "k", 1) }, `"k":1,"requestId":"r1","tree":"u","shard":3`},
		{func(l *slog.Logger) { l.InfoContext(ctx, "m", Shard, 7) }, `"shard":7,"requestId":"r1","tree":"u"`},
		{func(l *slog.Logger) { l.With(Tree, "own").InfoContext(ctx, "m") }, `"tree":"own","requestId":"r1","shard":3`},
		{func(l *slog.Logger) { l.InfoContext(spanned(t.Context()), "m") }, span},
		{func(l *slog.Logger) { l.InfoContext(spanned(ctx), "m") }, `"requestId":"r1","tree":"u","shard":3,` + span},
		{func(l *slog.Logger) { l.Info("m", "k", 1) }, `"k":1`},
		{func(l *slog.Logger) { l.WithGroup("g").InfoContext(ctx, "m", "k", 1) }, `"g":{"k":1}`},
	} {
		var want map[string]any
		if err := json.Unmarshal([]byte(`{"level":"INFO","msg":"m",`+c.want+`}`), &want); err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(line(t, c.write))
		expected, _ := json.Marshal(want)
		if string(got) != string(expected) {
			t.Errorf("got %s, want %s", got, expected)
		}
	}
}

func TestAHandlerIsWrappedOnce(t *testing.T) {
	h := LogHandler(slog.NewJSONHandler(&bytes.Buffer{}, nil))
	if LogHandler(h) != h {
		t.Error("it was wrapped again, and would add everything twice")
	}
}

func TestAContextKnowsItsAttributes(t *testing.T) {
	ctx := With(t.Context(), slog.String(RequestID, "r1"))
	if Attr(ctx, RequestID) != "r1" || Attr(ctx, Tree) != "" || Attr(t.Context(), RequestID) != "" {
		t.Error("the attributes are others")
	}
}

func TestFailuresOfExportsAreToldOnceAMinuteAndWithoutSecrets(t *testing.T) {
	var log bytes.Buffer
	f := &failures{logger: slog.New(slog.NewTextHandler(&log, nil)), secrets: []string{"hunter2", ""}}
	for range 50 {
		f.Handle(errors.New("the collector said: Bearer hunter2 " + strings.Repeat("x", 10*maxFailureBytes)))
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
	if text := log.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "[redacted]") || len(text) > 2*maxFailureBytes {
		t.Errorf("the line is %s", text)
	}
	if skipped, ok := f.due(time.Now().Add(failurePause)); !ok || skipped != 49 {
		t.Errorf("a minute later: %d not told, %v", skipped, ok)
	}
}
