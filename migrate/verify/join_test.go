package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/ledger"
)

// model compares two maps the plain way.
func model(w *world, target map[string]client.Entry, now time.Time) (found []string, expired int64) {
	source := map[string]Item{}
	for _, it := range w.items {
		source[it.Key] = it
	}
	gone := func(at time.Time) bool { return !at.IsZero() && !at.After(now.Add(DefaultTolerance)) }
	for k, it := range source {
		e, ok := target[k]
		switch {
		case !ok && gone(it.Expiry):
			expired++
		case !ok:
			found = append(found, "missing "+k)
		case DigestOf(e.Value) != it.Digest:
			found = append(found, "value differs "+k)
		case it.Expiry.IsZero() != e.ExpiresAt.IsZero() || it.Expiry.Sub(e.ExpiresAt).Abs() > DefaultTolerance:
			found = append(found, "expiry differs "+k)
		}
	}
	for k, e := range target {
		switch _, ok := source[k]; {
		case ok:
		case gone(e.ExpiresAt):
			expired++
		default:
			found = append(found, "extra "+k)
		}
	}
	slices.Sort(found)
	return found, expired
}

// TestAgainstAModel: any two sets of entries, compared in ranges of any size,
// give what the plain way gives, and per-prefix counts that add up.
func TestAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		ttl := rapid.SampledFrom([]time.Duration{0, 0, time.Minute, time.Minute + time.Second, time.Hour})
		key := rapid.StringMatching(`[a-c/]{1,4}`)
		source := rapid.MapOf(key, rapid.SampledFrom([]string{"", "1", "2"})).Draw(rt, "source")
		target := rapid.MapOf(key, rapid.SampledFrom([]string{"", "1", "2"})).Draw(rt, "target")
		for _, k := range slices.Sorted(maps.Keys(source)) {
			w.has(k, source[k], ttl.Draw(rt, "ttl"))
			if rapid.IntRange(0, 2).Draw(rt, "same") > 0 {
				target[k] = source[k]
			}
		}
		for _, k := range slices.Sorted(maps.Keys(target)) {
			w.put(k, target[k], ttl.Draw(rt, "target ttl"))
		}
		now := epoch.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Hour}).Draw(rt, "now"))
		w.clock.set(now)
		want, expired := model(w, live(w), now)
		r := w.verify(Options{
			Values: rapid.SampledFrom([]Level{Sample, All}).Draw(rt, "level"), Depth: rapid.IntRange(1, 3).Draw(rt, "depth"),
			RangeSize: rapid.SampledFrom([]int{1, 2, 1000}).Draw(rt, "range"), Show: 1000,
		})
		if got := found(r); !slices.Equal(got, want) || r.Total.Expired != expired {
			rt.Fatalf("found %q and %d expired, want %q and %d", got, r.Total.Expired, want, expired)
		}
		checkSums(rt, r)
	})
}

// checkSums checks that prefixes and ranges each add up to the total.
func checkSums(t interface{ Fatalf(string, ...any) }, r Report) {
	var prefixes, ranges Tally
	seen := map[string]bool{}
	for i := range r.Prefixes {
		prefixes.add(&r.Prefixes[i].Tally)
		if seen[r.Prefixes[i].Prefix] {
			t.Fatalf("prefix %q comes twice", r.Prefixes[i].Prefix)
		}
		seen[r.Prefixes[i].Prefix] = true
	}
	for i := range r.Ranges {
		ranges.add(&r.Ranges[i].Tally)
	}
	if prefixes != r.Total || ranges != r.Total {
		t.Fatalf("prefixes %+v, ranges %+v, total %+v", prefixes, ranges, r.Total)
	}
}

// live reads the tree.
func live(w *world) map[string]client.Entry {
	w.t.Helper()
	out := map[string]client.Entry{}
	for e, err := range w.tree.Scan(context.Background(), client.Query{}) {
		if err != nil && !errors.Is(err, client.ErrTreeNotFound) {
			w.t.Fatal(err)
		}
		if err == nil {
			out[e.Key] = e
		}
	}
	return out
}

// manyPrefixes makes n keys under each of a few prefixes.
func manyPrefixes(w *world, n int) {
	for _, p := range []string{"a/", "b/", "c/x/"} {
		for i := range n {
			w.alike(fmt.Sprintf("%s%04d", p, i), fmt.Sprintf("%s value %d", p, i))
		}
	}
}

// TestBoundariesAreAlwaysCompared: without any sample, a value that differs is
// found among the first and the last of each prefix, and only there.
func TestBoundariesAreAlwaysCompared(t *testing.T) {
	w := newWorld(t)
	manyPrefixes(w, 60)
	for _, k := range []string{"a/0009", "a/0050", "b/0000", "b/0059", "c/x/0055"} {
		w.put(k, "other", 0)
	}
	w.put("a/0010", "other", 0)
	w.put("a/0049", "other", 0)
	dir := folder(t, t.TempDir(), nil)
	r := w.verify(Options{Values: None, Dir: dir, Ledger: dir})
	versions := map[string]string{}
	for k, e := range live(w) {
		versions[k] = e.Version
	}
	// A value found to differ at the end of a prefix is not the migration's,
	// though its key was taken for that before.
	owned, err := ledger.Owned(dir, versions)
	if err != nil || owned["a/0009"] || owned["b/0059"] || owned["c/x/0055"] || !owned["b/0058"] || !owned["c/x/0030"] {
		t.Errorf("the ledger: %v, %v", err, owned)
	}
	wantFound(t, r, "value differs a/0009", "value differs a/0050", "value differs b/0000", "value differs b/0059", "value differs c/x/0055")
	if r.Total.Compared != 60 {
		t.Errorf("%d values compared, want 10 at each end of 3 prefixes", r.Total.Compared)
	}
	if all := w.verify(Options{Values: All}); all.Total.Value != 7 || all.Total.Compared != 180 {
		t.Errorf("all: %+v", all.Total)
	}
}

// TestAPrefixForEveryKey: boundaries are compared up to a number of prefixes,
// which is said, and the report lists a bounded number of them.
func TestAPrefixForEveryKey(t *testing.T) {
	w := newWorld(t)
	const more = 25
	var b client.Batch
	for i := range maxBounded + more {
		key := fmt.Sprintf("p%05d/x", i)
		w.items = append(w.items, NewItem(key, []byte("v"), time.Time{}, ""))
		b.Ops = append(b.Ops, client.Op{Key: key, Value: []byte("v")})
		if len(b.Ops) == 5_000 || i == maxBounded+more-1 {
			if _, err := w.tree.Batch(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			b.Ops = nil
		}
	}
	r := w.verify(Options{Values: None})
	if !r.Equal() || r.Total.Compared != maxBounded || r.Unbounded != more || r.PrefixCount != maxBounded+more || len(r.Prefixes) != MaxListed {
		t.Errorf("%+v, %d prefixes, %d without boundaries, %d listed", r.Total, r.PrefixCount, r.Unbounded, len(r.Prefixes))
	}
}

// TestTheSampleIsTheSameEachTime, takes at least its least number, and reads no
// other values.
func TestTheSampleIsTheSameEachTime(t *testing.T) {
	w := newWorld(t)
	for i := range 5_000 {
		w.alike(fmt.Sprintf("k%05d", i), "v")
	}
	var sizes []int64
	for range 3 {
		r := w.verify(Options{Expect: 5_000, Boundary: 1})
		if !r.Equal() || r.Total.Compared < MinSample || r.Total.Compared > 2*MinSample {
			t.Fatalf("%+v", r.Total)
		}
		sizes = append(sizes, r.Total.Compared)
	}
	if sizes[0] != sizes[1] || sizes[1] != sizes[2] {
		t.Errorf("samples of %v", sizes)
	}
	for expect, want := range map[int64]bool{1: true, 2 * MinSample: true, 2*MinSample + 1: false, 1e9: false} {
		o := Options{Values: Sample, Share: DefaultShare, Expect: expect}
		if all := o.threshold() == ^uint64(0); all != want {
			t.Errorf("%d entries: all compared %v", expect, all)
		}
	}
	o := Options{Values: Sample, Share: 0.5, Expect: 1e9}
	if got := o.threshold(); got != 1<<63 {
		t.Errorf("a half: %x", got)
	}
}

// TestThreeRunsAreIdentical, in everything but their times.
func TestThreeRunsAreIdentical(t *testing.T) {
	w := newWorld(t)
	manyPrefixes(w, 900)
	for i := range 40 {
		w.put(fmt.Sprintf("b/%04d", i*20), "other", 0)
		w.put(fmt.Sprintf("extra/%d", i), "x", 0)
		w.has(fmt.Sprintf("lost/%d", i), "x", 0)
	}
	o := Options{Expect: 2_740, RangeSize: 100}
	first := w.verify(o)
	if first.Total.Missing != 40 || first.Total.Extra != 40 || first.RangeCount < 5 {
		t.Fatalf("%+v, %d ranges", first.Total, first.RangeCount)
	}
	for range 2 {
		if r := w.verify(o); plain(t, r) != plain(t, first) {
			t.Fatal("another run, another result")
		}
	}
}

// plain is a report as JSON without what differs from run to run.
func plain(t testing.TB, r Report) string {
	t.Helper()
	r.Differences, r.PrefixesFile, r.RangesFile, r.Started, r.Ended = "", "", "", epoch, epoch
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDigestsTellRangesApart: a key more alters the digests of its range alone.
func TestDigestsTellRangesApart(t *testing.T) {
	w := newWorld(t)
	manyPrefixes(w, 300)
	o := Options{Values: All, RangeSize: 50}
	before := w.verify(o)
	if before.Total.SourceEntries != before.Total.TargetEntries || before.Total.SourceKeys != before.Total.TargetKeys || before.Total.SourceKeys == (Sum{}) {
		t.Fatalf("equal sides, %+v", before.Total)
	}
	w.alike("b/0100x", "new")
	after := w.verify(o)
	differ := 0
	for i := range before.Ranges {
		b := before.Ranges[i]
		at := slices.IndexFunc(after.Ranges, func(r Range) bool { return r.Last == b.Last })
		if at < 0 || after.Ranges[at].SourceEntries != b.SourceEntries {
			differ++
		}
	}
	if differ != 1 || before.RangeCount < 5 {
		t.Errorf("%d of %d ranges differ", differ, before.RangeCount)
	}
}

// TestALimitedComparison looks at the keys of a prefix alone.
func TestALimitedComparison(t *testing.T) {
	w := newWorld(t)
	w.alike("b/1", "1")
	w.put("a", "1", 0)
	w.put("b", "1", 0)
	w.put("b0", "1", 0)
	r := w.verify(Options{Prefix: "b/"})
	if !r.Equal() || r.Total.Target != 1 {
		t.Errorf("%+v", r)
	}
	if r := w.verify(Options{}); r.Total.Extra != 3 {
		t.Errorf("%+v", r.Total)
	}
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{
		"": "", "a": "b", "order/": "order0", "\x7f": "\u0080", "é": "ê", "\uD7FF": "\uE000", "a\U0010FFFF": "b", "\U0010FFFF": "",
	} {
		if got := prefixEnd(prefix); got != want {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

// breaking cuts the entries' stream off after a number of lines.
func breaking(w *world, lines func(request int) int) *int {
	requests := 0
	w.server.Intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/entries") {
			return false
		}
		requests++
		n := lines(requests)
		body := record(w.server, r)
		rw.Header().Set("Content-Type", "application/x-ndjson")
		rw.WriteHeader(http.StatusOK)
		_, _ = rw.Write([]byte(strings.Join(body[:min(n, len(body))], "")))
		return true
	}
	return &requests
}

// record returns the lines that the server answers with.
func record(s *clienttest.Server, r *http.Request) []string {
	was := s.Intercept
	s.Intercept = nil
	defer func() { s.Intercept = was }()
	resp, err := inProcess{s}.RoundTrip(r)
	if err != nil {
		return nil
	}
	var b strings.Builder
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return slices.Collect(strings.Lines(b.String()))
		}
	}
}

// TestAStreamThatBreaksOffGoesOn: it is opened again behind the last key, and
// nothing is missed or counted twice; one that brings nothing new is given up.
func TestAStreamThatBreaksOffGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		manyPrefixes(w, 20)
		requests := breaking(w, func(int) int { return 8 })
		r := w.verify(Options{})
		if !r.Equal() || r.Total.Target != 60 || *requests < 8 {
			t.Errorf("%d requests, %+v", *requests, r.Total)
		}
		breaking(w, func(n int) int {
			if n == 1 {
				return 8
			}
			return 0
		})
		o := Options{Dir: folder(t, t.TempDir(), nil), Now: w.clock.now}
		_, err := Against(t.Context(), w.entries, w.tree, o)
		if !errors.Is(err, client.ErrIncomplete) {
			t.Fatal(err)
		}
		w.server.Intercept = nil
		if r := w.verify(o); !r.Equal() {
			t.Errorf("afterwards: %+v", r.Total)
		}
	})
}

// TestLargeValuesAreReadByHalves, or alone, where they do not fit one answer.
func TestLargeValuesAreReadByHalves(t *testing.T) {
	w := newWorld(t)
	for i := range 9 {
		w.alike(fmt.Sprint(i), strings.Repeat("x", 100*i))
	}
	w.put("7", "other", 0)
	refused := 0
	w.server.Intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/batch-get") {
			refused++
			clienttest.Problem(rw, http.StatusRequestEntityTooLarge, "request_too_large", "the answer", 0)
			return true
		}
		return false
	}
	r := w.verify(Options{Values: None})
	wantFound(t, r, "value differs 7")
	if r.Total.Compared != 9 || refused < 9 {
		t.Errorf("%+v after %d refusals", r.Total, refused)
	}
}

// TestAllDifferencesAreInTheFile, however many the report shows.
func TestAllDifferencesAreInTheFile(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		w.has(fmt.Sprint(i), "secret-value", 0)
	}
	r := w.verify(Options{Show: 3})
	b, err := os.ReadFile(r.Differences)
	if err != nil || len(r.First) != 3 || strings.Count(string(b), "\n") != 30 || strings.Contains(string(b), "secret") {
		t.Fatalf("%v, %d shown, file %s", err, len(r.First), b)
	}
}
