package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
	"github.com/latticekv/lattice/migrate/ledger"
)

// errKilled ends a run at a point.
var errKilled = errors.New("killed")

// busy is a world with differences of many kinds, in several prefixes.
func busy(t testing.TB) *world {
	w := newWorld(t)
	w.rangeSize = 14
	manyPrefixes(w, 24)
	for i := range 8 {
		w.put(fmt.Sprintf("b/%04d", i*3), "other", 0)
		w.put(fmt.Sprintf("c/extra/%d", i), "x", 0)
		w.has(fmt.Sprintf("a/lost/%d", i), "x", 0)
	}
	return w
}

func (w *world) options(path string, step func(string) error) Options {
	dir := folder(w.t, path, step)
	return Options{
		Dir: dir, Now: w.clock.now, Values: Sample, Expect: 1_000_000, Share: 0.2, RangeSize: w.rangeSize, Depth: 2, Ledger: dir, Run: "1",
		Source: "source", Target: "target", Changed: keysOf("a/0001", "a/lost/3", "b/0006"),
	}
}

// sameEnd checks that a run ended as one that nobody disturbed: report, files
// and ledger.
func sameEnd(t *testing.T, w *world, path string, r, want Report, files map[string]string) error {
	t.Helper()
	if plain(t, r) != plain(t, want) {
		return fmt.Errorf("a resumed run ends with\n%s\nwant\n%s", plain(t, r), plain(t, want))
	}
	for name, want := range files {
		got, err := os.ReadFile(path + "/" + name)
		if err != nil || string(got) != want {
			return fmt.Errorf("%s differs (%w)", name, err)
		}
	}
	versions := map[string]string{}
	for k, e := range live(w) {
		versions[k] = e.Version
	}
	owned, err := ledger.Owned(folder(t, path, nil), versions)
	if err != nil || !owned["a/0001"] || owned["c/extra/0"] || owned["b/0000"] {
		return fmt.Errorf("ledger: %w, %v", err, owned)
	}
	return nil
}

// undisturbed runs once and returns what the end is like.
func undisturbed(t *testing.T, w *world) (Report, map[string]string, int) {
	t.Helper()
	path, steps := durabletest.Folder(t), 0
	r, err := Against(t.Context(), w.entries, w.tree, w.options(path, func(string) error { steps++; return nil }))
	if err != nil {
		t.Fatal(err)
	}
	if r.RangeCount < 3 || r.Total.Differs() < 16 {
		t.Fatalf("%d ranges, %+v", r.RangeCount, r.Total)
	}
	files := map[string]string{}
	for _, name := range []string{differencesName, prefixesName, rangesName} {
		b, err := os.ReadFile(path + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return r, files, steps
}

// TestKilledAtEveryChangeOfTheDisk: whatever was on its way to the disk, the
// next run comes to the same end.
func TestKilledAtEveryChangeOfTheDisk(t *testing.T) {
	w := busy(t)
	w.rangeSize = 40 // the fewer ranges, the fewer changes
	want, files, steps := undisturbed(t, w)
	atEach(t, steps, func(at int, path string) error {
		if _, err := Against(t.Context(), w.entries, w.tree, w.options(path, killedAfter(at))); !errors.Is(err, errKilled) {
			return fmt.Errorf("not killed: %w", err)
		}
		r, err := Against(t.Context(), w.entries, w.tree, w.options(path, nil))
		if err != nil {
			return err
		}
		return sameEnd(t, w, path, r, want, files)
	})
}

// TestKilledAtEveryEntry: the source breaks off at each entry in turn, in one
// folder, so that every run gets a little further. No range is compared twice.
func TestKilledAtEveryEntry(t *testing.T) {
	w := busy(t)
	want, files, _ := undisturbed(t, w)
	path, runs, read := durabletest.Folder(t), 0, 0
	for ; ; runs++ {
		left := 10 + 4*runs
		entries := func(ctx context.Context, after string) iter.Seq2[Item, error] {
			return func(yield func(Item, error) bool) {
				for it, err := range w.entries(ctx, after) {
					if left--; left < 0 {
						yield(Item{}, errKilled)
						return
					}
					if read++; !yield(it, err) {
						return
					}
				}
			}
		}
		r, err := Against(t.Context(), entries, w.tree, w.options(path, nil))
		if err == nil {
			if err := sameEnd(t, w, path, r, want, files); err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, errKilled) || runs > 100 {
			t.Fatal(runs, err)
		}
	}
	if runs < 4 {
		t.Errorf("only %d runs were cut off", runs)
	}
}

// TestKilledAtEveryRequest to the service.
func TestKilledAtEveryRequest(t *testing.T) {
	w := busy(t)
	want, files, _ := undisturbed(t, w)
	for at := 0; ; at++ {
		path, n := durabletest.Folder(t), 0
		w.server.Intercept = func(rw http.ResponseWriter, _ *http.Request) bool {
			if n++; n > at {
				clienttest.Problem(rw, http.StatusForbidden, "authorization_denied", "", 0)
				return true
			}
			return false
		}
		r, err := Against(t.Context(), w.entries, w.tree, w.options(path, nil))
		w.server.Intercept = nil
		if err == nil {
			if err := sameEnd(t, w, path, r, want, files); err != nil {
				t.Fatal(err)
			}
			if at < 4 {
				t.Errorf("only %d requests", at)
			}
			return
		}
		if r, err = Against(t.Context(), w.entries, w.tree, w.options(path, nil)); err != nil {
			t.Fatal(at, err)
		}
		if err := sameEnd(t, w, path, r, want, files); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherSettingsAreRefused while a verification is unfinished, and what to do
// is said; a finished one is no obstacle.
func TestOtherSettingsAreRefused(t *testing.T) {
	w := busy(t)
	path := durabletest.Folder(t)
	saved := 0
	o := w.options(path, func(step string) error {
		if step == "renamed "+stateName {
			if saved++; saved == 3 {
				return errKilled
			}
		}
		return nil
	})
	if _, err := Against(t.Context(), w.entries, w.tree, o); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	other := w.options(path, nil)
	other.Values, other.Source = All, "another source"
	_, err := Against(t.Context(), w.entries, w.tree, other)
	if !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "values was sample and is all") || !strings.Contains(err.Error(), "--restart") {
		t.Fatal(err)
	}
	again := w.options(path, nil)
	again.Run, again.Expect = "2", 2_000_000
	if st, err := openStore(must(t)(again.withDefaults())); err != nil || st.s.After != "" || st.close() != nil {
		t.Fatal("another reading goes on with the comparison of this one:", err)
	}
	other.Restart = true
	if r, err := Against(t.Context(), w.entries, w.tree, other); err != nil || r.Total.Compared < 70 {
		t.Fatal(err, r.Total)
	}
	if _, err := Against(t.Context(), w.entries, w.tree, w.options(path, nil)); err != nil {
		t.Fatal("after a finished one:", err)
	}
}

// TestADamagedStateIsRefused, unless it is to be forgotten.
func TestADamagedStateIsRefused(t *testing.T) {
	w := busy(t)
	path := durabletest.Folder(t)
	o := w.options(path, nil)
	if err := o.Dir.Write(stateName, []byte(`{"format":1,"digest":"0","state":{}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := Against(t.Context(), w.entries, w.tree, o); err == nil || !strings.Contains(err.Error(), "--restart begins anew") {
		t.Fatal(err)
	}
	o.Restart = true
	if _, err := Against(t.Context(), w.entries, w.tree, o); err != nil {
		t.Fatal(err)
	}
}

// TestACancelledRunStops and goes on later.
func TestACancelledRunStops(t *testing.T) {
	w := busy(t)
	want, files, _ := undisturbed(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	path := durabletest.Folder(t)
	o := w.options(path, func(step string) error {
		if step == "renamed "+stateName {
			cancel()
		}
		return nil
	})
	if _, err := Against(ctx, w.entries, w.tree, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r, err := Against(t.Context(), w.entries, w.tree, w.options(path, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := sameEnd(t, w, path, r, want, files); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T) func(Options, error) *Options {
	return func(o Options, err error) *Options {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return &o
	}
}
