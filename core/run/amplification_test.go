package run

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
)

// load applies writes to a shard's worth of runs as a shard does: a log row for
// every hundred writes, a flush for every MiB of user data, then merging, a
// manifest, and collection of what is no longer referenced.
type load struct {
	t      testing.TB
	blobs  *blobs
	store  *Store
	set    *Set
	policy Policy
	budget Budget
	every  int64 // bytes of user data between two flushes
	rnd    *rand.ChaCha8

	pending map[string]record.Entry
	row     []record.Record
	size    int64 // of pending
	at      int
	user    int64 // bytes of user data
	log     int64 // bytes of log rows
	steps   int
	maxRuns int
}

func newLoad(t testing.TB, seed byte) *load {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	t.Logf("seed %d", seed)
	return &load{
		t: t, blobs: b, store: s, set: s.Empty(), budget: Budget{Bytes: 16 << 20}, every: 1 << 20,
		rnd: rand.NewChaCha8([32]byte{seed}), pending: map[string]record.Entry{},
	}
}

const valueBytes = 100

func (l *load) write(key string) {
	value := make([]byte, valueBytes)
	_, _ = l.rnd.Read(value)
	l.at++
	e := record.Entry{Key: key, Value: value, Version: clock.Version{Time: clock.HLC(l.at), Writer: 1}}
	l.row = append(l.row, record.Record{Kind: record.KindPut, Entry: e})
	if len(l.row) == 100 {
		l.flushRow()
	}
	l.pending[key] = e
	l.user += e.Size()
	if l.size += e.Size(); l.size >= l.every {
		l.checkpoint()
	}
}

func (l *load) flushRow() {
	row := record.Row{Seq: uint64(l.at), Base: clock.HLC(l.at), Records: l.row}
	l.log += int64(len(record.EncodeRow(&row)))
	l.row = l.row[:0]
}

func (l *load) checkpoint() {
	entries := slices.SortedFunc(maps.Values(l.pending), func(a, b record.Entry) int { return cmp.Compare(a.Key, b.Key) })
	clear(l.pending)
	l.size = 0
	l.set = mustFlush(l.t, l.store, l.set, entries)
	next, _, err := l.store.MergeStep(l.t.Context(), l.set, l.policy, l.budget)
	if err != nil {
		l.t.Fatal(err)
	}
	l.steps++
	l.set = mustSave(l.t, l.store, next)
	l.maxRuns = max(l.maxRuns, len(l.set.Runs()))
	l.collect()
}

func (l *load) collect() {
	keep := map[string]bool{}
	for name := range l.set.Blobs() {
		keep[name] = true
	}
	l.blobs.mu.Lock()
	defer l.blobs.mu.Unlock()
	maps.DeleteFunc(l.blobs.data, func(name string, _ []byte) bool { return !keep[name] })
	l.blobs.gets = nil
}

// uniform writes keys drawn uniformly.
func (l *load) uniform(keys, writes int) {
	for range writes {
		var b [8]byte
		_, _ = l.rnd.Read(b[:])
		l.write(loadKey(int(binary.LittleEndian.Uint64(b[:]) % uint64(keys))))
	}
}

func loadKey(i int) string { return fmt.Sprintf("user/%010d", i) }

// since returns the bytes written for each byte of user data after a mark.
func (l *load) since(user, written int64) float64 {
	return float64(l.written()-written) / float64(l.user-user)
}

func (l *load) written() int64 { return l.blobs.written + l.log }

// uniformAmplification fills a shard in key order and then updates it
// uniformly, rounds times over, and reports the amplification of the updates.
func uniformAmplification(t testing.TB, keys, rounds int, every int64) (*load, float64) {
	l := newLoad(t, 1)
	l.every = every
	for i := range keys {
		l.write(loadKey(i))
	}
	filled := l.since(0, 0)
	user, written := l.user, l.written()
	l.uniform(keys, rounds*keys)
	updates := l.since(user, written)
	st := l.set.Stats()
	t.Logf("%d keys: %.2f bytes written per byte filled, %.2f per byte updated; at most %d runs; %d leaves, %d MiB",
		keys, filled, updates, l.maxRuns, st.Leaves, st.Bytes>>20)
	return l, updates
}

func TestUniformUpdatesWriteEachByteAtMostEightTimes(t *testing.T) {
	keys, rounds, every := 100_000, 4, int64(1<<20)
	if raceEnabled {
		keys, rounds, every = keys/20, 2, every/20
	}
	l, updates := uniformAmplification(t, keys, rounds, every)
	if updates > 8 {
		t.Errorf("%.2f bytes written per byte of user data, want at most 8", updates)
	}
	if l.maxRuns > 24 {
		t.Errorf("%d runs at once", l.maxRuns)
	}
}

func TestAppendingWritesHardlyMoreThanOnce(t *testing.T) {
	l, keys := newLoad(t, 2), 100_000
	if raceEnabled {
		keys /= 10
	}
	for i := range keys {
		l.write(loadKey(i))
	}
	if got := l.since(0, 0); got > 3 {
		t.Errorf("%.2f bytes written per byte of an append-only load, want at most 3", got)
	}
}

func BenchmarkWriteAmplification(b *testing.B) {
	for _, keys := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			for range b.N {
				l, updates := uniformAmplification(b, keys, 2, 1<<20)
				b.ReportMetric(updates, "written/user")
				b.ReportMetric(float64(l.maxRuns), "runs")
			}
		})
	}
}
