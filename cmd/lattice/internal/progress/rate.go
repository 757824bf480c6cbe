package progress

import (
	"fmt"
	"strconv"
	"time"
)

// window is how far back the rate looks.
const window = 10 * time.Second

// point is a sample with its time.
type point struct {
	at time.Time
	s  Sample
}

// rate knows the samples of the last while, oldest first: at most one for
// every twentieth of a window.
type rate struct {
	start  point
	points []point
	// moved is when the work last moved.
	moved time.Time
}

// begin takes the sample at the start of the work.
func (r *rate) begin(at time.Time, s Sample) { r.start, r.moved = point{at, s}, at }

// still is for how long, by the last sample, nothing has moved.
func (r *rate) still() time.Duration {
	if len(r.points) == 0 {
		return 0
	}
	return r.points[len(r.points)-1].at.Sub(r.moved)
}

func (r *rate) add(at time.Time, s Sample) {
	last := r.start.s
	if n := len(r.points); n > 0 {
		last = r.points[n-1].s
	}
	if s.Rows != last.Rows || s.Done != last.Done || s.Failed != last.Failed || s.Bytes != last.Bytes {
		r.moved = at
	}
	if n := len(r.points); n > 1 && at.Sub(r.points[n-2].at) < window/20 {
		r.points = r.points[:n-1]
	}
	r.points = append(r.points, point{at, s})
	for len(r.points) > 2 && at.Sub(r.points[1].at) >= window {
		r.points = r.points[1:]
	}
}

// span returns the first and the last point of the window, which is the start
// of the work in the beginning.
func (r *rate) span() (from, to point, ok bool) {
	if len(r.points) == 0 {
		return from, to, false
	}
	from, to = r.points[0], r.points[len(r.points)-1]
	if to.at.Sub(r.start.at) <= window {
		from = r.start
	}
	return from, to, to.at.After(from.at)
}

// rows returns rows per second.
func (r *rate) rows() float64 {
	from, to, ok := r.span()
	if !ok {
		return 0
	}
	return float64(to.s.Rows-from.s.Rows) / to.at.Sub(from.at).Seconds()
}

// left returns the time left if the work goes on as in the window. Input that
// was read while no row was dealt with tells nothing.
func (r *rate) left() (time.Duration, bool) {
	from, to, ok := r.span()
	done := to.s.Done - from.s.Done
	if !ok || to.s.Total <= 0 || done <= 0 || to.s.Rows <= from.s.Rows {
		return 0, false
	}
	work := max(0, to.s.Total-to.s.Done)
	secs := float64(work) / float64(done) * to.at.Sub(from.at).Seconds()
	const most = 1000 * 24 * 3600
	return time.Duration(min(secs, most) * float64(time.Second)), true
}

// Group writes a number with commas between thousands.
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Bytes writes an amount of data: 512 B, 1.5 MiB.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 4; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

// Took writes how long something took: 12ms, 4.7s, 1m3.2s.
func Took(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// Duration writes a duration as people say it: 45s, 3m20s, 2h05m.
func Duration(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm", s/3600, s%3600/60)
}
