package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// TestUniformUpdatesWriteLittle holds one shard to what it may write for each
// byte of user data.
func TestUniformUpdatesWriteLittle(t *testing.T) {
	s, err := parse([]string{"-entries=100000", "-rounds=2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d", s.seed)
	a, err := newAmplification(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.run(t.Context(), s.entries[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loading %.2f, updates %.2f: log %.2f, blobs %.2f", got.load.total(), got.update.total(), got.update.log, got.update.blobs)
	if got.update.total() > mostWritten || got.load.total() > mostWritten {
		t.Errorf("%.2f bytes are written per byte when loading, %.2f when updating", got.load.total(), got.update.total())
	}
	// Values are random; keys and framing compress.
	if got.update.log < 0.9 || got.update.blobs < 1 {
		t.Error("random bytes were written to less than their size: something is not counted")
	}
}

// TestComparisonRunsThrough keeps the comparison working. Its figures mean
// nothing here.
func TestComparisonRunsThrough(t *testing.T) {
	s, err := parse([]string{"-duration=200ms", "-warmup=50ms", "-clients=1,4", "-keys=20"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := compare(t.Context(), s, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for _, name := range []string{
		"plain aztables", "in process, 4 shards, leases off", "in process, 1 shard, leases off", "in process, 4 shards, leases on",
		"in process, 1 shard, leases on", "over HTTP, 4 shards, leases off", "over HTTP, 4 shards, leases on",
	} {
		rows := 0
		for _, line := range lines {
			if strings.HasPrefix(line, "| "+name+" ") {
				rows++
			}
		}
		if rows != 4 {
			t.Errorf("%d rows of %q, want puts and gets for two numbers of clients\n%s", rows, name, out.String())
		}
	}
}

func TestPrintCost(t *testing.T) {
	r := testing.BenchmarkResult{N: 10, T: 20 * time.Microsecond, MemAllocs: 30, MemBytes: 400}
	for expect, word := range map[time.Duration]string{2 * time.Microsecond: "≤ 2: pass", 1500 * time.Nanosecond: "≤ 1.5: short"} {
		var out strings.Builder
		printCost(&out, "get", r, expect)
		for _, want := range []string{"2.000", " 40 ", " 3 ", word} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in %s", want, out.String())
			}
		}
	}
}

func TestBenchmarkOperationsWork(t *testing.T) {
	s, err := parse([]string{"-keys=1500"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newInMemoryTree(t.Context(), s, true)
	if err != nil {
		t.Fatal(err)
	}
	m.since = upkeepEvery
	if r := testing.Benchmark(func(b *testing.B) { putMany(b, m) }); m.err != nil || r.N == 0 {
		t.Fatal(m.err)
	}
	for _, key := range []string{m.keys[0], m.keys[1499]} {
		if it, ok, err := m.tree.Get(t.Context(), key, tree.ReadOptions{}); err != nil || !ok || len(it.Value) != s.valueBytes {
			t.Errorf("%s: %v, %v", key, ok, err)
		}
	}
}

func TestGatherSortsAndCounts(t *testing.T) {
	fast, slow := &worker{}, &worker{took: []time.Duration{50 * time.Millisecond}}
	for range 99 {
		fast.took = append(fast.took, time.Millisecond)
	}
	r, err := gather([]*worker{slow, fast}, 2*time.Second)
	if err != nil || r.perSecond != 50 || r.p50 != time.Millisecond || r.p99 != 50*time.Millisecond {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestGatherReportsFailureAndSilence(t *testing.T) {
	broken := errors.New("broken")
	if _, err := gather([]*worker{{err: broken}, {took: []time.Duration{1}}}, time.Second); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := gather([]*worker{{}}, time.Second); err == nil {
		t.Error("a cell without an operation has figures")
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		ratio, expected float64
		want            string
	}{{3, 0, ""}, {10, 10, "≥ 10: pass"}, {9.99, 10, "≥ 10: short"}} {
		if got := verdict(c.ratio, c.expected); got != c.want {
			t.Errorf("%v of %v is %q, want %q", c.ratio, c.expected, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	s, err := parse([]string{"-clients", "1, 8", "-entries=10", "-duration=5s"}, io.Discard)
	if err != nil || !slices.Equal(s.clients, []int{1, 8}) || !slices.Equal(s.entries, []int{10}) || s.duration != 5*time.Second {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, bad := range [][]string{{"-clients=0"}, {"-clients="}, {"-entries=x"}, {"-keys=0"}, {"-rounds=0"}, {"-value=0"}, {"-duration=0s"}, {"-nonsense"}} {
		if _, err := parse(bad, io.Discard); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
	if err := run(t.Context(), &settings{parts: "compare it"}, io.Discard); err == nil {
		t.Error("an unknown part is accepted")
	}
}
