package telemetry

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// kept is how many of a thousand traces a sampler keeps, with a parent elsewhere
// that is kept, one that is not, and none.
func kept(t *testing.T, s sdktrace.Sampler, parent trace.TraceFlags, remote bool) int {
	t.Helper()
	n := 0
	for i := range 1000 {
		id := trace.TraceID{1, byte(i >> 8), byte(i), 1, 1, 1, 1, 1, byte(i * 37), byte(i * 101), byte(i), 7, 7, 7, 7, byte(i)}
		ctx := t.Context()
		if remote {
			ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: parent, Remote: true}))
		}
		if s.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: id}).Decision == sdktrace.RecordAndSample {
			n++
		}
	}
	return n
}

func TestSamplers(t *testing.T) {
	for _, c := range []struct {
		name, arg           string
		none, asked, denied [2]int // at least, at most
	}{
		{"", "", [2]int{1000, 1000}, [2]int{1000, 1000}, [2]int{0, 0}},
		{"always_on", "", [2]int{1000, 1000}, [2]int{1000, 1000}, [2]int{1000, 1000}},
		{"always_off", "", [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 0}},
		{"traceidratio", "0.25", [2]int{150, 350}, [2]int{150, 350}, [2]int{150, 350}},
		{"parentbased_always_on", "", [2]int{1000, 1000}, [2]int{1000, 1000}, [2]int{0, 0}},
		// Callers may ask, but not without end. A second may turn in between.
		{"parentbased_always_off", "", [2]int{0, 0}, [2]int{maxAsked, 2 * maxAsked}, [2]int{0, 0}},
		{"parentbased_traceidratio", "0", [2]int{0, 0}, [2]int{maxAsked, 2 * maxAsked}, [2]int{0, 0}},
	} {
		r := &reader{lookup: variables("OTEL_TRACES_SAMPLER", c.name, "OTEL_TRACES_SAMPLER_ARG", c.arg)}
		s := r.sampler()
		if len(r.faults) > 0 {
			t.Errorf("%s: %v", c.name, r.faults)
		}
		for what, got := range map[string]struct {
			n     int
			bound [2]int
		}{
			"without a parent":      {kept(t, s, 0, false), c.none},
			"with one that is kept": {kept(t, s, trace.FlagsSampled, true), c.asked},
			"with one that is not":  {kept(t, s, 0, true), c.denied},
		} {
			if got.n < got.bound[0] || got.n > got.bound[1] {
				t.Errorf("%s %s: %d traces of 1000 %s, want %v", c.name, c.arg, got.n, what, got.bound)
			}
		}
	}
}

func TestTheBoundOfCallersIsPerSecond(t *testing.T) {
	b := &bounded{}
	for second := range int64(3) {
		n := 0
		for range 10 * maxAsked {
			if b.admit(1000 + second) {
				n++
			}
		}
		if n != maxAsked {
			t.Errorf("second %d: %d", second, n)
		}
	}
}
