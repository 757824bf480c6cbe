package splits

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// step is the resolution of a series.
const step = 500 * time.Millisecond

// series are requests that succeeded, by the time at which they ended.
type series struct{ took [][]time.Duration }

// add notes a request that ended at a time and took a while.
func (s *series) add(at, took time.Duration) {
	i := int(at / step)
	for len(s.took) <= i {
		s.took = append(s.took, nil)
	}
	s.took[i] = append(s.took[i], took)
}

func (s *series) total() (n int) {
	for _, x := range s.took {
		n += len(x)
	}
	return n
}

// phase gathers what ended between two times, rounded to steps.
func (s *series) phase(name string, from, to time.Duration) phase {
	p := phase{name: name, from: from, to: to}
	first, last := int(from/step), min(int(to/step), len(s.took))
	for _, x := range s.took[min(first, last):last] {
		p.took = append(p.took, x...)
	}
	p.length = time.Duration(last-first) * step
	slices.Sort(p.took)
	return p
}

// phase is a part of a series.
type phase struct {
	name     string
	from, to time.Duration
	length   time.Duration
	// took is sorted.
	took []time.Duration
}

// rate is in requests per second.
func (p *phase) rate() float64 {
	if p.length <= 0 {
		return 0
	}
	return float64(len(p.took)) / p.length.Seconds()
}

// quantile returns how long a share of the requests took at most.
func (p *phase) quantile(share float64) time.Duration {
	if len(p.took) == 0 {
		return 0
	}
	return p.took[min(int(share*float64(len(p.took))), len(p.took)-1)]
}

// table shows phases as Markdown.
func table(phases []phase) string {
	var b strings.Builder
	b.WriteString("| | seconds | requests/s | median | p99 |\n|---|---:|---:|---:|---:|\n")
	for i := range phases {
		p := &phases[i]
		fmt.Fprintf(&b, "| %s | %.1f | %.0f | %.0f ms | %.0f ms |\n", p.name, p.length.Seconds(), p.rate(),
			milliseconds(p.quantile(0.5)), milliseconds(p.quantile(0.99)))
	}
	return b.String()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
