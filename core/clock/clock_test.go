package clock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/clock"
)

func TestNextFollowsTheWallClockAndNeverGoesBack(t *testing.T) {
	at := func(milli int64) clock.Instant { return clock.Instant{Wall: milli * int64(time.Millisecond)} }
	for _, c := range []struct {
		name string
		last clock.HLC
		now  clock.Instant
		want clock.HLC
	}{
		{"wall clock ahead", clock.At(1000), at(2000), clock.At(2000)},
		{"same millisecond", clock.At(1000), at(1000), clock.At(1000) + 1},
		{"wall clock behind", clock.At(5000) + 7, at(1000), clock.At(5000) + 8},
		{"counter overflows", clock.At(1000) + 0xffff, at(1000), clock.At(1001)},
		{"before 1970", 0, at(-5), 1},
	} {
		if got := clock.Next(c.last, c.now); got != c.want {
			t.Errorf("%s: %x, want %x", c.name, got, c.want)
		}
	}
}

func TestVersionsSortInEveryForm(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) clock.Version {
		return clock.Version{
			Time:   clock.HLC(rapid.Uint64Range(0, 3).Draw(t, "time") << rapid.SampledFrom([]int{0, 16, 60}).Draw(t, "shift")),
			Writer: rapid.Uint32().Draw(t, "writer"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		order := a.Compare(b)
		if got := slices.Compare(a.Append(nil), b.Append(nil)); got != order {
			t.Fatalf("binary forms of %v and %v compare as %d, not %d", a, b, got, order)
		}
		if (a.String() < b.String()) != (order < 0) || (a == b) != (order == 0) {
			t.Fatalf("%v and %v do not sort as their strings", a, b)
		}
		if back, err := clock.ParseVersion(a.String()); err != nil || back != a {
			t.Fatalf("%v reads back as %v, %v", a, back, err)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"", "00", "0123456789abcdef01234567", "0123456789abcdef0123456g", "0123456789ABCDEF01234567"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := clock.ParseVersion(s)
		if err != nil {
			return
		}
		if back, err := clock.ParseVersion(v.String()); err != nil || back != v {
			t.Fatalf("%q reads as %v and back as %v, %v", s, v, back, err)
		}
	})
}

func TestSleepEndsWithTimeOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		start := src.Now()
		if err := src.Sleep(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		now := src.Now()
		if now.Mono-start.Mono != time.Second || now.Wall-start.Wall != int64(time.Second) {
			t.Errorf("slept from %+v to %+v", start, now)
		}
		if now.Milli() != now.Time().UnixMilli() {
			t.Errorf("%d ms is not %s", now.Milli(), now.Time())
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		for _, d := range []time.Duration{0, time.Hour} {
			if err := src.Sleep(ctx, d); !errors.Is(err, cause) {
				t.Errorf("sleep of %s under an ended context: %v", d, err)
			}
		}
	})
}

func TestJitterStaysWithinHalf(t *testing.T) {
	src := clock.NewSeeded(clock.NewSystem(), 1)
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := clock.Jitter(src, 100)
		low, high = min(low, d), max(high, d)
	}
	if low < 50 || low > 55 || high > 100 || high < 95 {
		t.Errorf("jitter of 100 lies in %d to %d", low, high)
	}
	for _, d := range []time.Duration{0, 1} {
		if got := clock.Jitter(src, d); got != d {
			t.Errorf("jitter of %d is %d", d, got)
		}
	}
}
