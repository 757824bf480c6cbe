// Package progress tells people, or machines, how far a long command is: a bar
// with rate and time left on a terminal, plain lines where there is none, one
// JSON object a line for programs. The first word comes within two seconds.
package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Style is how progress is shown.
type Style int

// The styles.
const (
	// None shows nothing.
	None Style = iota
	// Bar redraws one line of a terminal.
	Bar
	// Lines prints a line every two seconds.
	Lines
	// JSON prints an object every two seconds.
	JSON
)

// Sample is how far the work is at one moment.
type Sample struct {
	// Rows is how many rows are dealt with, Failed how many of them failed.
	Rows, Failed int64
	// Bytes is how much data went through, 0 if that is not counted.
	Bytes int64
	// Done and Total are the work in any unit, such as bytes of a file; a
	// Total of 0 is unknown.
	Done, Total int64
	// Waiting says that the service is busy and the work pauses.
	Waiting bool
	// Trouble says in a few words what it waits for, if that is known.
	Trouble string
}

// Options configure a Meter.
type Options struct {
	Style Style
	// Label names the work.
	Label string
	// Out takes what is shown; the Meter writes to it alone until Stop.
	Out io.Writer
	// Sample is called by Start, and then from the Meter's goroutine.
	Sample func() Sample
}

const (
	firstLine = time.Second
	everyLine = 2 * time.Second
	everyBar  = 200 * time.Millisecond
	// stalled is how long nothing may move before it is said.
	stalled = 10 * time.Second
)

// Meter shows progress until it is stopped.
type Meter struct {
	o    Options
	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu    sync.Mutex
	rate  rate
	shown Sample
}

// Start begins to show progress.
func Start(o Options) *Meter {
	m := &Meter{o: o, stop: make(chan struct{}), done: make(chan struct{})}
	if o.Style == None {
		close(m.done)
		return m
	}
	m.rate.begin(time.Now(), o.Sample())
	run := m.lines
	if o.Style == Bar {
		run = m.bar
	}
	go func() {
		defer close(m.done)
		run()
	}()
	return m
}

// Stop ends it, and returns when nothing more will be written.
func (m *Meter) Stop() {
	m.once.Do(func() { close(m.stop) })
	<-m.done
}

// look takes a sample and updates the rate.
func (m *Meter) look() Sample {
	s := m.o.Sample()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rate.add(time.Now(), s)
	m.shown = s
	return s
}

func (m *Meter) lines() {
	t := time.NewTimer(firstLine)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
			// A progress line that cannot be written is no reason to stop.
			_, _ = io.WriteString(m.o.Out, m.line(m.look())+"\n")
			t.Reset(everyLine)
		}
	}
}

func (m *Meter) line(s Sample) string {
	if m.o.Style == JSON {
		return m.object(s)
	}
	parts := []string{Group(s.Rows) + " rows", m.perSecond()}
	if s.Bytes > 0 {
		parts = append(parts, Bytes(s.Bytes))
	}
	if s.Total > 0 {
		parts = append(parts, percent(s))
	}
	return m.o.Label + ": " + strings.Join(append(parts, m.rest(s)...), ", ")
}

// rest is what is said last: the time left, and what goes wrong.
func (m *Meter) rest(s Sample) []string {
	var parts []string
	if left := m.left(); left != "" {
		parts = append(parts, left+" left")
	}
	if s.Failed > 0 {
		parts = append(parts, Group(s.Failed)+" failed")
	}
	if s.Waiting {
		parts = append(parts, s.waiting())
	} else if d := m.still(); d >= stalled {
		parts = append(parts, "nothing has moved for "+Duration(d))
	}
	return parts
}

// still is how long nothing has moved.
func (m *Meter) still() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rate.still()
}

// waiting says that the work pauses, and why.
func (s *Sample) waiting() string {
	if s.Trouble == "" {
		return "waiting for the service"
	}
	return "waiting for the service (" + s.Trouble + ")"
}

func (m *Meter) object(s Sample) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]any{"progress": m.o.Label, "rows": s.Rows, "failed": s.Failed, "rowsPerSecond": int64(m.rate.rows()), "waiting": s.Waiting}
	if s.Waiting && s.Trouble != "" {
		out["trouble"] = s.Trouble
	}
	if s.Bytes > 0 {
		out["bytes"] = s.Bytes
	}
	if d := m.rate.still(); d >= stalled {
		out["stalledSeconds"] = int64(d.Seconds())
	}
	if s.Total > 0 {
		out["fraction"] = min(1, float64(s.Done)/float64(s.Total))
		if d, ok := m.rate.left(); ok {
			out["secondsLeft"] = int64(d.Seconds())
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return "{}" // not reached: the values are plain
	}
	return string(b)
}

func (m *Meter) perSecond() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Group(int64(m.rate.rows())) + " rows/s"
}

// left returns the time left, or "" if it cannot be told.
func (m *Meter) left() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.rate.left()
	if !ok {
		return ""
	}
	return Duration(d)
}

func (m *Meter) last() Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown
}

// bar draws with mpb.
func (m *Meter) bar() {
	p := mpb.New(mpb.WithOutput(m.o.Out), mpb.WithRefreshRate(everyBar), mpb.WithAutoRefresh())
	total := m.look().Total
	show := func(f func(Sample) string) decor.Decorator {
		return decor.Any(func(decor.Statistics) string { return f(m.last()) }, decor.WCSyncSpaceR)
	}
	b := p.New(max(total, 1), filler(total),
		mpb.PrependDecorators(decor.Name(m.o.Label+" "), show(func(s Sample) string { return Group(s.Rows) + " rows" })),
		mpb.AppendDecorators(show(m.tail)),
	)
	t := time.NewTicker(everyBar)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			m.draw(b)
			b.Abort(false)
			p.Wait()
			return
		case <-t.C:
			m.draw(b)
		}
	}
}

// filler is the bar itself; work of unknown size has none.
func filler(total int64) mpb.BarFillerBuilder {
	if total <= 0 {
		return mpb.NopStyle()
	}
	return mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]")
}

// draw moves the bar; short of its end, at which mpb would finish it.
func (m *Meter) draw(b *mpb.Bar) {
	if s := m.look(); s.Total > 0 {
		b.SetCurrent(min(s.Done, s.Total-1))
	}
}

// tail is what stands behind the bar.
func (m *Meter) tail(s Sample) string {
	out := " " + m.perSecond()
	if s.Total > 0 {
		out = " " + percent(s) + out
	}
	if s.Bytes > 0 {
		out += ", " + Bytes(s.Bytes)
	}
	for _, part := range m.rest(s) {
		out += ", " + part
	}
	return out
}

func percent(s Sample) string {
	return fmt.Sprintf("%d%%", min(100, s.Done*100/s.Total))
}
