package verify

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
)

func TestClasses(t *testing.T) {
	for _, level := range []Level{None, Sample, All} {
		t.Run(string(level), func(t *testing.T) {
			w := newWorld(t)
			w.alike("a/same", "1")
			w.has("a/missing", "1", 0)
			w.put("a/extra", "1", 0)
			w.has("a/value", "one", 0)
			w.put("a/value", "two", 0)
			w.has("b/expiry", "1", time.Hour)
			w.put("b/expiry", "1", 2*time.Hour)
			w.has("b/never", "1", 0)
			w.put("b/never", "1", time.Hour)
			w.has("b/ever", "1", time.Hour)
			w.put("b/ever", "1", 0)
			w.has("b/close", "1", time.Hour)
			w.put("b/close", "1", time.Hour+time.Second)
			r := w.verify(Options{Values: level})
			wantFound(t, r, "missing a/missing", "extra a/extra", "value differs a/value",
				"expiry differs b/expiry", "expiry differs b/never", "expiry differs b/ever")
			if r.Equal() || r.Total.Source != 7 || r.Total.Target != 7 {
				t.Errorf("%+v", r.Total)
			}
			if len(r.Prefixes) != 2 || r.Prefixes[0].Prefix != "a/" || r.Prefixes[0].Missing != 1 || r.Prefixes[0].Value != 1 || r.Prefixes[1].Expiry != 3 {
				t.Errorf("%+v", r.Prefixes)
			}
			for _, d := range r.First {
				if d.Class != Extra && d.Origin != "row "+d.Key {
					t.Errorf("%s: origin %q", d.Key, d.Origin)
				}
			}
		})
	}
}

// TestExpiredIsNoLoss: what has expired on one side by now is no difference,
// whichever side forgot it first.
func TestExpiredIsNoLoss(t *testing.T) {
	w := newWorld(t)
	w.alike("kept", "1")
	w.has("gone", "1", time.Minute)
	w.put("gone", "1", time.Minute)
	w.has("going", "1", time.Minute+time.Second) // within the tolerance of the clocks
	w.put("lingering", "1", time.Minute+time.Second)
	w.has("later", "1", time.Hour) // lost: has not expired
	w.clock.set(epoch.Add(time.Minute))
	r := w.verify(Options{})
	wantFound(t, r, "missing later")
	if r.Total.Expired != 3 || r.Total.Source != 2 || r.Total.Target != 1 {
		t.Errorf("%+v", r.Total)
	}
	w.clock.set(epoch.Add(2 * time.Hour))
	if r := w.verify(Options{}); !r.Equal() || r.Total.Expired != 3 {
		t.Errorf("later: %+v", r.Total)
	}
}

// TestAnExpiryThatWasLostIsFound: the source forgot the key, the tree never will.
func TestAnExpiryThatWasLostIsFound(t *testing.T) {
	w := newWorld(t)
	w.has("k", "1", time.Minute)
	w.put("k", "1", 0)
	w.clock.set(epoch.Add(time.Hour))
	wantFound(t, w.verify(Options{}), "expiry differs k")
}

// TestUnitsOfTime: seconds taken for milliseconds, and the other way round.
func TestUnitsOfTime(t *testing.T) {
	w := newWorld(t)
	w.has("s-for-ms", "1", 5000*time.Second)
	w.put("s-for-ms", "1", 5*time.Second)
	w.has("ms-for-s", "1", 5*time.Second)
	w.put("ms-for-s", "1", 5000*time.Second)
	wantFound(t, w.verify(Options{}), "expiry differs s-for-ms", "expiry differs ms-for-s")
}

// TestExpiresWhileItIsCompared: the entry is in the stream, and has expired when
// its value is read.
func TestExpiresWhileItIsCompared(t *testing.T) {
	w := newWorld(t)
	w.has("a", "1", time.Minute)
	w.put("a", "1", time.Minute)
	w.alike("b", "1")
	w.has("c", "1", 0)
	w.put("c", "1", 0)
	read := false
	w.server.Intercept = beforeBatchGet(func() {
		if !read {
			read = true
			w.clock.set(epoch.Add(time.Minute))
			if _, err := w.tree.Delete(context.Background(), "c", client.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	r := w.verify(Options{Values: None})
	wantFound(t, r, "missing c")
	if r.Total.Expired != 1 || r.Total.Source != 2 || r.Total.Target != 1 || !read {
		t.Errorf("%+v", r.Total)
	}
	var keys, entries Sum
	for _, k := range []string{"b", "c"} {
		keys.add(keySum(k))
		entries.add(entrySum(k, DigestOf([]byte("1"))))
	}
	if r.Total.SourceKeys != keys || r.Total.SourceEntries != entries || r.Total.TargetKeys != keySum("b") {
		t.Errorf("the digests still hold what is gone: %+v", r.Total)
	}
}

func TestChangedSinceTheCut(t *testing.T) {
	w := newWorld(t)
	w.alike("same", "1")
	w.has("new", "1", 0)
	w.has("newer", "2", 0)
	w.put("newer", "1", 0)
	w.has("lost", "1", 0)
	r := w.verify(Options{Changed: keysOf("a", "new", "newer", "same", "z")})
	wantFound(t, r, "changed at the source new", "changed at the source newer", "missing lost")
	if r.Total.Changed != 2 || r.Equal() {
		t.Errorf("%+v", r.Total)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	w := newWorld(t)
	dir := folder(t, t.TempDir(), nil)
	for name, o := range map[string]Options{
		"no folder": {}, "level": {Dir: dir, Values: "some"}, "share": {Dir: dir, Share: 1.5}, "negative share": {Dir: dir, Share: -1},
		"depth": {Dir: dir, Depth: 17}, "range": {Dir: dir, RangeSize: -1}, "show": {Dir: dir, Show: -1}, "expect": {Dir: dir, Expect: -1},
	} {
		if _, err := Against(context.Background(), w.entries, w.tree, o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestASourceOutOfOrderIsAnError(t *testing.T) {
	w := newWorld(t)
	w.alike("a", "1")
	w.alike("b", "1")
	w.items[0], w.items[1] = w.items[1], w.items[0]
	_, err := Against(context.Background(), w.entries, w.tree, Options{Dir: folder(t, t.TempDir(), nil)})
	if err == nil || !strings.Contains(err.Error(), `"a" follows "b"`) {
		t.Fatal(err)
	}
	w.items = []Item{NewItem("x/1", nil, time.Time{}, "row 1")}
	_, err = Against(context.Background(), w.entries, w.tree, Options{Dir: folder(t, t.TempDir(), nil), Prefix: "y/"})
	if err == nil || !strings.Contains(err.Error(), `does not begin with "y/"`) {
		t.Fatal(err)
	}
}

func TestAMissingTreeIsAnError(t *testing.T) {
	w := newWorld(t)
	w.has("a", "1", 0)
	if err := w.tree.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := Against(context.Background(), w.entries, w.tree, Options{Dir: folder(t, t.TempDir(), nil)})
	if !errors.Is(err, client.ErrTreeDeleted) {
		t.Fatal(err)
	}
}
