package telemetry

import (
	"strconv"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// samplers are the names that OTEL_TRACES_SAMPLER knows.
const samplers = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio"

// sampler reads which traces are kept: all, unless the environment says
// otherwise.
func (r *reader) sampler() sdktrace.Sampler {
	name := strings.ToLower(r.text("OTEL_TRACES_SAMPLER"))
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	var s sdktrace.Sampler
	switch kind {
	case "":
		s, parentBased = sdktrace.AlwaysSample(), true
	case "always_on":
		s = sdktrace.AlwaysSample()
	case "always_off":
		s = sdktrace.NeverSample()
	case "traceidratio":
		s = sdktrace.TraceIDRatioBased(r.ratio())
	default:
		r.fault("OTEL_TRACES_SAMPLER=%q is not one of %s", name, samplers)
		return sdktrace.NeverSample()
	}
	if !parentBased {
		return s
	}
	asked := &bounded{asked: sdktrace.AlwaysSample(), beyond: s}
	return sdktrace.ParentBased(s, sdktrace.WithRemoteParentSampled(asked))
}

// ratio reads the share of traces to keep.
func (r *reader) ratio() float64 {
	const variable = "OTEL_TRACES_SAMPLER_ARG"
	text := r.text(variable)
	if text == "" {
		return 1
	}
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || !(share >= 0 && share <= 1) {
		r.fault("%s=%q is not a number from 0 to 1", variable, text)
		return 0
	}
	return share
}

// maxAsked is how many traces a second are kept because callers ask for it.
const maxAsked = 100

// bounded keeps the traces that callers ask for, but not without end: anybody
// can ask. Those beyond the bound are treated as if nobody had asked.
type bounded struct {
	asked, beyond sdktrace.Sampler

	mu     sync.Mutex
	second int64
	kept   int
}

// ShouldSample implements sdktrace.Sampler.
func (b *bounded) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if b.admit(time.Now().Unix()) {
		return b.asked.ShouldSample(p)
	}
	return b.beyond.ShouldSample(p)
}

func (b *bounded) admit(second int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if second != b.second {
		b.second, b.kept = second, 0
	}
	b.kept++
	return b.kept <= maxAsked
}

// Description implements sdktrace.Sampler.
func (b *bounded) Description() string { return "Bounded{" + b.asked.Description() + "}" }
