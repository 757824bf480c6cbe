package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
)

// phaseConsole shows a command that works in phases: a meter for each, and what
// is to be told between.
type phaseConsole struct {
	e     *env
	style progress.Style
	out   io.Writer

	mu     sync.Mutex
	label  string
	sample func() progress.Sample
	meter  *progress.Meter
}

func newPhaseConsole(e *env, style progress.Style) *phaseConsole {
	c := &phaseConsole{e: e, style: style, out: e.Err}
	if e.json {
		c.out = e.Out
	}
	return c
}

// phase begins a meter; nil samples nothing.
func (c *phaseConsole) phase(label string, sample func() progress.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sample == nil {
		sample = func() progress.Sample { return progress.Sample{} }
	}
	c.pause()
	c.label, c.sample = label, sample
	c.resume()
}

// pause and resume are called with the lock held.
func (c *phaseConsole) pause() {
	if c.meter != nil {
		c.meter.Stop()
		c.meter = nil
	}
}

func (c *phaseConsole) resume() {
	if c.label != "" {
		c.meter = progress.Start(progress.Options{Style: c.style, Label: c.label, Out: c.out, Sample: c.sample})
	}
}

// note prints a line between those of the meter.
func (c *phaseConsole) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause()
	if c.e.json {
		if b, err := json.Marshal(map[string]string{"note": text}); err == nil {
			text = string(b)
		}
	}
	fmt.Fprintln(c.out, text)
	c.resume()
}

// stop ends the meter.
func (c *phaseConsole) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause()
	c.label = ""
}
