package progress

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// after shows a work of 100 rows a second for d, under virtual time.
func after(t *testing.T, style Style, d time.Duration, total int64) (out string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &buffer{}
		start := time.Now()
		m := Start(Options{Style: style, Label: "import", Out: b, Sample: func() Sample {
			n := int64(time.Since(start) / (10 * time.Millisecond))
			return Sample{Rows: n, Done: n, Total: total, Failed: n / 400}
		}})
		<-time.After(d)
		m.Stop()
		m.Stop()
		out = b.String()
	})
	return out
}

func TestFirstLineComesWithinTwoSeconds(t *testing.T) {
	if out := after(t, Lines, 1500*time.Millisecond, 1000); out != "import: 100 rows, 100 rows/s, 10%, 9s left\n" {
		t.Fatalf("%q", out)
	}
}

func TestLinesEveryTwoSeconds(t *testing.T) {
	want := []string{
		"import: 100 rows, 100 rows/s, 4%, 24s left", "import: 300 rows, 100 rows/s, 12%, 22s left",
		"import: 500 rows, 100 rows/s, 20%, 20s left, 1 failed", "import: 700 rows, 100 rows/s, 28%, 18s left, 1 failed", "",
	}
	if out := after(t, Lines, 8500*time.Millisecond, 2500); out != strings.Join(want, "\n") {
		t.Fatalf("%q", out)
	}
}

func TestUnknownTotal(t *testing.T) {
	if out := after(t, Lines, 1500*time.Millisecond, 0); out != "import: 100 rows, 100 rows/s\n" {
		t.Fatalf("%q", out)
	}
}

func TestJSON(t *testing.T) {
	out := after(t, JSON, 3500*time.Millisecond, 1000)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", out)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil {
		t.Fatal(err)
	}
	if got["rows"] != 300.0 || got["rowsPerSecond"] != 100.0 || got["fraction"] != 0.3 || got["secondsLeft"] != 7.0 {
		t.Fatalf("%v", got)
	}
}

func TestNone(t *testing.T) {
	if out := after(t, None, time.Minute, 1000); out != "" {
		t.Fatalf("%q", out)
	}
}

func TestBarShowsRateAndTimeLeft(t *testing.T) {
	out := after(t, Bar, 5*time.Second, 1000)
	for _, part := range []string{"import", "500 rows", "100 rows/s", "%", "left", "[", ">"} {
		if !strings.Contains(out, part) {
			t.Errorf("the bar lacks %q:\n%q", part, out)
		}
	}
}

func TestBarOfUnknownSize(t *testing.T) {
	out := after(t, Bar, 5*time.Second, 0)
	if !strings.Contains(out, "500 rows") || !strings.Contains(out, "100 rows/s") || strings.Contains(out, "[=") || strings.Contains(out, "%") {
		t.Fatalf("%q", out)
	}
}

func TestWaitingIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &buffer{}
		var now atomic.Pointer[Sample]
		now.Store(&Sample{Waiting: true})
		m := Start(Options{Style: Lines, Label: "x", Out: b, Sample: func() Sample { return *now.Load() }})
		<-time.After(1100 * time.Millisecond)
		now.Store(&Sample{Waiting: true, Trouble: "connection refused"})
		<-time.After(2 * time.Second)
		m.Stop()
		if !strings.Contains(b.String(), "waiting for the service\n") || !strings.Contains(b.String(), "waiting for the service (connection refused)\n") {
			t.Fatalf("%q", b.String())
		}
		m.o.Style = JSON
		if line := m.line(*now.Load()); !strings.Contains(line, `"trouble":"connection refused"`) {
			t.Fatal(line)
		}
	})
}

func TestTimesAreShownAsFinelyAsTheyMatter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12345 * time.Microsecond: "12ms", 4730 * time.Millisecond: "4.7s", 63210 * time.Millisecond: "1m3.2s",
	} {
		if got := Took(d); got != want {
			t.Errorf("%v is shown as %s, want %s", d, got, want)
		}
	}
}

func TestRateLooksBackTenSeconds(t *testing.T) {
	r := rate{start: point{at: time.Unix(0, 0)}}
	for i := range 1000 {
		n := int64(i) * 10
		if i > 500 {
			n = 5000
		}
		r.add(time.Unix(0, 0).Add(time.Duration(i)*100*time.Millisecond), Sample{Rows: n, Done: n, Total: 10_000})
		if len(r.points) > 30 {
			t.Fatalf("%d points are kept", len(r.points))
		}
	}
	if got := r.rows(); got != 0 {
		t.Fatalf("%f rows/s, 50 s after the work stopped", got)
	}
	if _, ok := r.left(); ok {
		t.Fatal("time left of a work that stands still")
	}
}

func TestNoTimeLeftBeforeTheFirstRow(t *testing.T) {
	r := rate{start: point{at: time.Unix(0, 0)}}
	r.add(time.Unix(1, 0), Sample{Done: 100, Total: 1000})
	if d, ok := r.left(); ok {
		t.Fatalf("%s left, though no row is dealt with", d)
	}
}

func TestForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := Group(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 59400 * time.Millisecond: "59s", 59600 * time.Millisecond: "1m00s", 200 * time.Second: "3m20s", 2*time.Hour + 5*time.Minute: "2h05m"} {
		if got := Duration(d); got != want {
			t.Errorf("%s: %q", d, got)
		}
	}
}

// Work that was done before the start, by an earlier run, makes no rate.
func TestEarlierWorkIsNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &buffer{}
		start := time.Now()
		m := Start(Options{Style: Lines, Label: "load", Out: b, Sample: func() Sample {
			n := int64(time.Since(start) / (10 * time.Millisecond))
			return Sample{Rows: 5000 + n, Done: 5000 + n, Total: 10_000, Bytes: 3 << 20}
		}})
		<-time.After(1500 * time.Millisecond)
		m.Stop()
		if out := b.String(); out != "load: 5,100 rows, 100 rows/s, 3.0 MiB, 51%, 49s left\n" {
			t.Fatalf("%q", out)
		}
	})
}

func TestAStallIsAnnounced(t *testing.T) {
	for style, want := range map[Style]string{Lines: "nothing has moved for 12s", JSON: `"stalledSeconds":12`} {
		synctest.Test(t, func(t *testing.T) {
			b := &buffer{}
			start := time.Now()
			m := Start(Options{Style: style, Label: "read", Out: b, Sample: func() Sample {
				n := min(int64(time.Since(start)/time.Second), 3)
				return Sample{Rows: n}
			}})
			<-time.After(16 * time.Second)
			m.Stop()
			lines := strings.Split(strings.TrimSpace(b.String()), "\n")
			if len(lines) != 8 || strings.Contains(strings.Join(lines[:6], ""), "moved") || strings.Contains(strings.Join(lines[:6], ""), "stalled") || !strings.Contains(lines[7], want) {
				t.Fatalf("%q", lines)
			}
		})
	}
}
