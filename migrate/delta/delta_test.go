package delta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/ledger"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/source/sourcetest"
)

// both runs a test for a source that tells changes and for one that does not.
func both(t *testing.T, f func(t *testing.T, w *world, since string)) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprintf("tells=%v", tells), func(t *testing.T) {
			w := newWorld(t, 50)
			since := ""
			if tells {
				since = w.cut()
			}
			f(t, w, since)
		})
	}
}

// TestChangesArriveAndAreKept: new, changed and expiring records; a second pass
// changes nothing.
func TestChangesArrive(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.has("k/new", "n", 0)
		w.has("k/0007", "changed", 0)
		w.has("k/0008", "soon gone", time.Hour)
		w.has("k/0009", "value "+fmt.Sprint(9), 0)
		r := w.pass(since, nil)
		if err := w.same(); err != nil {
			t.Error(err)
		}
		if got := w.live()["k/0008"].ExpiresAt; got.Sub(epoch.Add(time.Hour)).Abs() > time.Second {
			t.Errorf("expires at %v", got)
		}
		if since == "" && (r.Written != 4 || r.Same != 47 || r.Read != 51) {
			t.Errorf("compared: %+v", r.Counts)
		}
		if r.Deleted != 0 || r.Rejected != 0 {
			t.Errorf("%+v", r.Counts)
		}
		before := w.live()
		again := w.pass(since, nil)
		if err := w.same(); err != nil {
			t.Error(err)
		}
		if since == "" && (again.Written != 0 || before["k/new"].Version != w.live()["k/new"].Version) {
			t.Errorf("again: %+v", again.Counts)
		}
	})
}

// TestThePassesFollowEachOther: each begins where the last one began.
func TestThePassesFollowEachOther(t *testing.T) {
	w := newWorld(t, 20)
	since := w.cut()
	for i := range 5 {
		w.has(fmt.Sprintf("k/new%d", i), "x", 0)
		w.has(fmt.Sprintf("k/%04d", i), fmt.Sprint("changed ", i), 0)
		w.pass(since, nil)
		if err := w.same(); err != nil {
			t.Fatal(i, err)
		}
		c, ok, err := LastCut(w.folder(w.dir, nil))
		if err != nil || !ok || c.Cut == since || c.Source != "store" || c.Size < 2 {
			t.Fatalf("%+v, %v, %v", c, ok, err)
		}
		since = c.Cut
	}
}

// TestWhatExpiredReplacesWhatTheTreeHas: the source gave it an expiry that has
// passed by now; the tree had it for ever.
func TestWhatExpiredReplacesWhatTheTreeHas(t *testing.T) {
	w := newWorld(t, 20)
	since := w.cut()
	o := w.options(w.dir, nil, since)
	w.store.Now = func() time.Time { return epoch } // still lists it
	w.has("k/0003", "brief", time.Minute)
	w.clock.set(epoch.Add(time.Hour))
	r, err := Run(t.Context(), o)
	if err != nil || r.Expired != 1 {
		t.Fatal(err, r)
	}
	w.clock.set(epoch.Add(time.Hour + time.Second))
	if _, ok := w.live()["k/0003"]; ok {
		t.Error("it is there for ever")
	}
}

// TestValuesOfEveryKind: types, sizes and bytes arrive as they are.
func TestValuesOfEveryKind(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		big := bytes.Repeat([]byte("x"), 3<<20+1)
		rows := []sourcetest.Row{
			{ID: "empty", Payload: []byte{}}, {ID: "bytes", Payload: []byte{0, 0xff, '"'}}, {ID: "big", Payload: big}, {ID: "image", Payload: []byte("png"), Type: "image/png"},
			{ID: "text", Payload: []byte("a<b>&\u2028é"), Type: typeText}, {ID: "bad text", Payload: []byte{0xff}, Type: typeText},
			{ID: "json", Payload: []byte("{\"a\":\"<\u2028>\",\"n\":1.50}"), Type: typeJSON}, {ID: "loose json", Payload: []byte(`{ "a": 1 }`), Type: typeJSON},
			{ID: "big json", Payload: []byte(`"` + strings.Repeat("y", 3<<20) + `"`), Type: typeJSON},
		}
		w.store.Put(rows...)
		w.pass(since, nil)
		for _, r := range rows {
			e, err := w.tree.Get(t.Context(), r.ID, client.ReadOptions{})
			want := r.Type
			if want == "" {
				want = typeBytes
			}
			if err != nil || !bytes.Equal(e.Value, r.Payload) || e.ContentType != want {
				t.Errorf("%s: %v, %d bytes of %s", r.ID, err, len(e.Value), e.ContentType)
			}
		}
		if again := w.pass("", nil); again.Written != 0 {
			t.Errorf("compared: %+v", again.Counts)
		}
	})
}

// TestDeletions: what the source has no more goes; what somebody else wrote
// stays, whenever that was.
func TestDeletions(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.put("k/theirs", "x", 0)
		w.put("k/0006", "theirs", 0)
		w.store.Delete("k/0004", "k/0005", "k/0006", "k/0007")
		w.has("k/0005", "back", 0)
		raced := false
		w.server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/batch") && w.dir != "" && !raced && deleteInBody(r) {
				raced = true
				w.put("k/0007", "written meanwhile", 0)
			}
			return false
		}
		r := w.pass(since, func(o *Options) { o.Deletes = true })
		got := w.values()
		for k, want := range map[string]string{"k/0005": "back", "k/theirs": "x", "k/0006": "theirs", "k/0007": "written meanwhile"} {
			if got[k] != want {
				t.Errorf("%s is %q", k, got[k])
			}
		}
		if _, ok := got["k/0004"]; ok || r.Deleted != 1 || r.Kept != 3 || !raced || len(got) != 50 {
			t.Errorf("%d keys, raced %v, %+v", len(got), raced, r.Counts)
		}
	})
}

// deleteInBody reports whether a batch deletes, and leaves the body readable.
func deleteInBody(r *http.Request) bool {
	var b bytes.Buffer
	_, _ = b.ReadFrom(r.Body)
	r.Body = readCloser{bytes.NewReader(b.Bytes())}
	return bytes.Contains(b.Bytes(), []byte(`"delete"`))
}

type readCloser struct{ *bytes.Reader }

// Close implements io.Closer.
func (readCloser) Close() error { return nil }

// TestWhatADeltaWroteMayBeDeletedLater, by a later pass.
func TestWhatADeltaWroteMayBeDeletedLater(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.has("k/new", "x", 0)
		w.has("k/0001", "changed", 0)
		w.pass(since, nil)
		w.store.Delete("k/new", "k/0001", "k/0002")
		if r := w.pass(since, func(o *Options) { o.Deletes = true }); r.Deleted != 3 || r.Kept != 0 {
			t.Errorf("%+v", r.Counts)
		}
		if err := w.same(); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatExpiresMeanwhileIsNotDeleted: it goes by itself, and is not counted.
func TestWhatExpiresMeanwhileIsNotDeleted(t *testing.T) {
	w := newWorld(t, 20)
	w.row("k/brief", "x", time.Minute)
	w.row("k/long", "x", time.Hour)
	w.migrated(w.dir)
	w.store.Delete("k/long")
	w.store.BeforePage = func(int) error {
		w.clock.set(epoch.Add(time.Minute))
		return nil
	}
	if r := w.pass("", func(o *Options) { o.Deletes = true }); r.Deleted != 1 || r.Kept != 0 || r.TreeKeys != 22 {
		t.Errorf("%+v", r)
	}
}

// TestOnlyThePrefixIsLookedAt for deletions.
func TestOnlyThePrefixIsLookedAt(t *testing.T) {
	w := newWorld(t, 10)
	w.put("other/1", "x", 0)
	w.put("z", "x", 0)
	w.migrated(w.dir)
	w.store.Delete("k/0001")
	r := w.pass("", func(o *Options) { o.Deletes, o.Prefix = true, "k/" })
	if r.Deleted != 1 || r.TreeKeys != 10 || w.values()["other/1"] != "x" {
		t.Errorf("%+v", r)
	}
}

// TestTooManyDeletionsAreRefused before any is made; a person can allow them.
func TestTooManyDeletionsAreRefused(t *testing.T) {
	w := newWorld(t, 300)
	for i := range MinDeletes + 1 {
		w.store.Delete(fmt.Sprintf("k/%04d", i))
	}
	o := w.options(w.dir, nil, "")
	o.Deletes = true
	_, err := Run(t.Context(), o)
	if !errors.Is(err, ErrTooManyDeletes) || !strings.Contains(err.Error(), "101 of 300 keys, and 100 are allowed") || !strings.Contains(err.Error(), `"k/0000"`) {
		t.Fatal(err)
	}
	if n := w.server.Len("t"); n != 300 {
		t.Fatalf("%d keys are left", n)
	}
	if _, ok, _ := LastCut(o.Dir); ok {
		t.Error("a cut was recorded")
	}
	o.MaxDeletes = 101
	if r, err := Run(t.Context(), o); err != nil || r.Deleted != 101 {
		t.Fatal(err, r.Counts)
	}
	// A source without records is not believed.
	for i := range 300 {
		w.store.Delete(fmt.Sprintf("k/%04d", i))
	}
	o.MaxDeletes = 1_000_000
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrTooManyDeletes) || !strings.Contains(err.Error(), "no records at all") {
		t.Fatal(err)
	}
	o.Yes = true
	if r, err := Run(t.Context(), o); err != nil || r.Deleted != 199 || w.server.Len("t") != 0 {
		t.Fatal(err, r.Counts)
	}
}

// TestWhatCannotBeReadIsNotDeleted: a record that has no key could be any.
func TestWhatCannotBeReadIsNotDeleted(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.store.Put(sourcetest.Row{ID: "k/0003", Fault: "torn"})
		o := w.options(w.dir, nil, since)
		o.Deletes, o.MaxRejects = true, -1
		_, err := Run(t.Context(), o)
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), `1 of them (the first one: row "k/0003": torn)`) || strings.Contains(err.Error(), "too many") {
			t.Fatal(err)
		}
		if n := w.server.Len("t"); n != 50 {
			t.Fatalf("%d keys are left", n)
		}
		// Without deletions nothing is in the way.
		o.Deletes = false
		if r, err := Run(t.Context(), o); err != nil || r.Deleted != 0 {
			t.Fatal(err)
		}
		// Mended, the same command works.
		o.Deletes = true
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrUnreadable) {
			t.Fatal(err)
		}
		w.has("k/0003", "mended", 0)
		if r, err := Run(t.Context(), o); err != nil || r.Deleted != 0 || r.Rejected != 0 || w.same() != nil {
			t.Fatal(err, w.same(), r.Counts)
		}
	})
}

// TestAPersonMayDeleteBesideUnreadableRecords.
func TestAPersonMayDeleteBesideUnreadableRecords(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.store.Put(sourcetest.Row{ID: "unknown", Fault: "torn"})
		w.store.Delete("k/0003")
		r := w.pass(since, func(o *Options) { o.Deletes, o.Yes, o.MaxRejects = true, true, -1 })
		if r.Deleted != 1 || w.server.Len("t") != 49 {
			t.Fatalf("%+v", r.Counts)
		}
	})
}

// keyed gives the faults of a source a key.
type keyed struct {
	source.Source
	key string
}

func (k keyed) with(pages iter.Seq2[source.Page, error]) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		for p, err := range pages {
			for i := range p.Faults {
				p.Faults[i].Key = k.key
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// Read implements source.Source.
func (k keyed) Read(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
	return k.with(k.Source.Read(ctx, from))
}

// ReadSince implements source.Changing.
func (k keyed) ReadSince(ctx context.Context, cut string, from source.Position) iter.Seq2[source.Page, error] {
	return k.with(k.Source.(source.Changing).ReadSince(ctx, cut, from))
}

// TestARejectedRecordWhoseKeyIsKnown keeps its own key alone: one that is too
// long for the tree, and one that could not be read.
func TestARejectedRecordWhoseKeyIsKnown(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.store.Put(sourcetest.Row{ID: strings.Repeat("k", 1025), Payload: []byte("x")}, sourcetest.Row{ID: "k/0005", Fault: "torn"})
		w.store.Delete("k/0003")
		r := w.pass(since, func(o *Options) {
			o.Source = keyed{w.store.Changing(), "k/0005"}
			o.Deletes, o.MaxRejects = true, -1
		})
		if _, ok := w.values()["k/0005"]; !ok || r.Deleted != 1 || r.Rejected != 2 {
			t.Fatalf("%+v", r.Counts)
		}
	})
}

// TestWithoutALedgerNothingIsDeleted, and what to do is said.
func TestWithoutALedgerNothingIsDeleted(t *testing.T) {
	w := newWorld(t, 10)
	o := w.options(durabletest.Folder(t), nil, "")
	o.Deletes = true
	if _, err := Run(t.Context(), o); !errors.Is(err, ledger.ErrNone) || !strings.Contains(err.Error(), "lattice verify") {
		t.Fatal(err)
	}
}

// TestRejects: bounded, and listed with their origin.
func TestRejects(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		w.store.Put(sourcetest.Row{ID: "bad", Fault: "torn"}, sourcetest.Row{ID: strings.Repeat("k", 1025), Payload: []byte("x")})
		w.has("k/good", "x", 0)
		o := w.options(w.dir, nil, since)
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrTooManyRejects) {
			t.Fatal(err)
		}
		if _, ok, _ := LastCut(o.Dir); ok {
			t.Error("a cut was recorded")
		}
		o.MaxRejects = 2
		r, err := Run(t.Context(), o)
		if err != nil || r.Rejected != 2 || w.values()["k/good"] != "x" {
			t.Fatal(err, r)
		}
		b, err := os.ReadFile(r.Rejects)
		if err != nil || strings.Count(string(b), "\n") != 2 || !strings.Contains(string(b), "torn") {
			t.Fatalf("%v, %s", err, b)
		}
	})
}

// TestTheServiceRefusesOneEntry of a batch as a whole: the others are written.
func TestTheServiceRefusesOneEntry(t *testing.T) {
	w := newWorld(t, 10)
	since := w.cut()
	for i := range 9 {
		w.has(fmt.Sprint("n", i), "x", 0)
	}
	w.has("poison", "x", 0)
	w.server.Intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/batch") {
			return false
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		r.Body = readCloser{bytes.NewReader(b.Bytes())}
		if bytes.Contains(b.Bytes(), []byte("poison")) {
			clienttest.Problem(rw, 422, "schema_violation", "no poison", 0)
			return true
		}
		return false
	}
	r := w.pass(since, func(o *Options) { o.MaxRejects = 1 })
	if r.Rejected != 1 || w.values()["n8"] != "x" {
		t.Errorf("%+v", r.Counts)
	}
	if b, err := os.ReadFile(r.Rejects); err != nil || !strings.Contains(string(b), `row \"poison\"`) || !strings.Contains(string(b), "no poison") {
		t.Errorf("%v, %s", err, b)
	}
}

// TestABusyService is waited for, with the time to live that is left by then;
// one that stays away is given up, and the pass goes on later.
func TestABusyService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20)
		start := time.Now()
		w.clock.set(start)
		w.server.Now, w.store.Now = time.Now, time.Now
		since := w.cut()
		w.store.Put(sourcetest.Row{ID: "k/ttl", Payload: []byte("x"), Expiry: start.Add(time.Hour)})
		var busy atomic.Bool
		busy.Store(true)
		w.server.Intercept = func(rw http.ResponseWriter, r *http.Request) bool {
			if busy.Load() && strings.HasSuffix(r.URL.Path, "/batch") {
				clienttest.Problem(rw, 429, "storage_throttled", "slow down", 60)
				return true
			}
			return false
		}
		o := w.options(w.dir, nil, since)
		o.Now = time.Now
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrPatience) {
			t.Fatal(err)
		}
		if spent := time.Since(start); spent < 4*time.Minute || spent > 5*time.Minute {
			t.Errorf("given up after %s", spent)
		}
		time.AfterFunc(3*time.Minute, func() { busy.Store(false) })
		if r, err := Run(t.Context(), o); err != nil || !r.Complete {
			t.Fatal(err)
		}
		if got := w.live()["k/ttl"].ExpiresAt; got.Sub(start.Add(time.Hour)).Abs() > time.Second {
			t.Errorf("expires at %v, want %v", got, start.Add(time.Hour))
		}
	})
}

// TestKilledAnywhere: at every change of the disk, with a change of the source
// in between; the next run brings the tree up to date, and no cut is recorded
// before.
func TestKilledAnywhere(t *testing.T) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprintf("tells=%v", tells), func(t *testing.T) {
			steps := 0
			prepared := func(t testing.TB, path string) (*world, string) {
				w := newWorld(t, 30)
				w.dir = path
				w.migrated(path)
				since := ""
				if tells {
					since = w.cut()
				}
				w.store.Delete("k/0001", "k/0002")
				w.has("k/new", "x", 0)
				w.has("k/0003", "changed", 0)
				return w, since
			}
			w, since := prepared(t, durabletest.Folder(t))
			o := w.options(w.dir, func(string) error { steps++; return nil }, since)
			o.Deletes = true
			if _, err := Run(t.Context(), o); err != nil || steps < 20 {
				t.Fatal(err, steps)
			}
			atEach(t, steps, func(at int, path string) error {
				w, since := prepared(t, path)
				o := w.options(path, killedAfter(at), since)
				o.Deletes = true
				r, err := Run(t.Context(), o)
				if !errors.Is(err, errKilled) {
					return fmt.Errorf("not killed: %w", err)
				}
				if c, ok, _ := LastCut(w.folder(path, nil)); ok {
					if err := w.same(); err != nil || c.Cut != o.Info.Cut {
						return fmt.Errorf("the cut %+v was recorded after %+v: %w", c, r.Counts, err)
					}
				}
				w.has("k/0004", "changed later", 0)
				o = w.options(path, nil, since)
				o.Deletes = true
				if _, err := Run(t.Context(), o); err != nil {
					return err
				}
				next, ok, err := LastCut(o.Dir)
				if err != nil || !ok {
					return fmt.Errorf("no cut: %w", err)
				}
				if tells {
					since = next.Cut
				}
				o = w.options(path, nil, since)
				if _, err := Run(t.Context(), o); err != nil {
					return err
				}
				return w.same()
			})
		})
	}
}

// TestKilledAtEveryRequest to the service, before it is carried out and after.
func TestKilledAtEveryRequest(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		for at := 0; ; at++ {
			w.store.Delete(fmt.Sprintf("k/%04d", at))
			w.has("k/new", fmt.Sprint(at), 0)
			n := 0
			w.server.Intercept = func(rw http.ResponseWriter, r *http.Request) bool {
				if n++; n <= at {
					return false
				}
				if at%2 == 0 {
					was := w.server.Intercept
					w.server.Intercept = nil
					resp, err := inProcess{w.server}.RoundTrip(r)
					if err == nil {
						_ = resp.Body.Close()
					}
					w.server.Intercept = was
				}
				clienttest.Problem(rw, http.StatusForbidden, "authorization_denied", "", 0)
				return true
			}
			o := w.options(w.dir, nil, since)
			o.Deletes = true
			_, err := Run(t.Context(), o)
			w.server.Intercept = nil
			if err == nil {
				if at < 3 {
					t.Errorf("only %d requests", at)
				}
				return
			}
			if _, err := Run(t.Context(), o); err != nil {
				t.Fatal(at, err)
			}
			if err := w.same(); err != nil {
				t.Fatal(at, err)
			}
		}
	})
}

// TestKilledBetweenPages repeats no page that was saved.
func TestStoppedBetweenPages(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		if since != "" {
			for i := range 40 {
				w.has(fmt.Sprintf("k/%04d", i), "changed", 0)
			}
		}
		w.has("k/new", "x", 0)
		n := 0
		w.store.BeforePage = func(int) error {
			if n++; n == 4 {
				return errKilled
			}
			return nil
		}
		o := w.options(w.dir, nil, since)
		if _, err := Run(t.Context(), o); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		told := ""
		o.Notify = func(s string) { told += s }
		w.store.BeforePage = nil
		before := w.store.Pages()
		r, err := Run(t.Context(), o)
		if err != nil || r.Read < 41 || r.Read > 51 || !strings.Contains(told, "going on with the delta pass") {
			t.Fatal(err, r.Counts, told)
		}
		if again := w.store.Pages() - before; again > 5 {
			t.Errorf("%d pages were read", again)
		}
		if err := w.same(); err != nil {
			t.Error(err)
		}
	})
}

// TestASourceThatCannotResume is begun anew, and counted once.
func TestASourceThatCannotResume(t *testing.T) {
	both(t, func(t *testing.T, w *world, since string) {
		for i := range 30 {
			w.has(fmt.Sprintf("k/%04d", i), "changed", 0)
		}
		w.store.Delete("k/0049")
		broken := false
		w.store.BeforePage = func(int) error {
			if w.store.Pages() > 2 && !broken {
				broken = true
				return source.ErrRestart
			}
			return nil
		}
		r := w.pass(since, func(o *Options) { o.Deletes = true })
		if err := w.same(); err != nil || !broken || r.Read > 49 || r.Deleted != 1 || r.SourceKeys != 49 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// TestOtherSettingsAreRefused while a pass is unfinished.
func TestOtherSettingsAreRefused(t *testing.T) {
	w := newWorld(t, 20)
	w.store.BeforePage = func(int) error { return errKilled }
	if _, err := Run(t.Context(), w.options(w.dir, nil, "")); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.store.BeforePage = nil
	// A pass that has changed nothing stands in nobody's way.
	told := ""
	o := w.options(w.dir, nil, "")
	o.Mapping, o.Notify = "another", func(s string) { told += s }
	w.has("k/0001", "changed", 0)
	w.store.BeforePage = func(int) error {
		if w.store.Pages() > 1 {
			return errKilled
		}
		return nil
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, errKilled) || !strings.Contains(told, "what makes keys and values was m and is now another") {
		t.Fatal(err, told)
	}
	w.store.BeforePage = nil
	o.Mapping = "m"
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrOtherPass) || !strings.Contains(err.Error(), "--restart") || !strings.Contains(err.Error(), "what makes keys and values was another and is now m;") {
		t.Fatal(err)
	}
	// One that writes the same, and deletes, takes its place.
	o.Mapping, o.Deletes = "another", true
	if _, err := Run(t.Context(), o); err != nil || !strings.Contains(told, "--deletes was not given and is now given") {
		t.Fatal(err, told)
	}
	o.Restart = true
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o = w.options(w.dir, nil, "")
	o.Since = "1"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "cannot tell what has changed") {
		t.Fatal(err)
	}
}

// TestNothingIsDeletedByTheListsOfAnEarlierRun: what came back to the source
// after a refusal stays.
func TestNothingIsDeletedByTheListsOfAnEarlierRun(t *testing.T) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprintf("tells=%v", tells), func(t *testing.T) {
			w := newWorld(t, 300)
			since := ""
			if tells {
				since = w.cut()
			}
			for i := range 150 {
				w.store.Delete(fmt.Sprintf("k/%04d", i))
			}
			o := w.options(w.dir, nil, since)
			o.Deletes = true
			if _, err := Run(t.Context(), o); !errors.Is(err, ErrTooManyDeletes) {
				t.Fatal(err)
			}
			for i := range 150 {
				w.has(fmt.Sprintf("k/%04d", i), "back", 0)
			}
			o.Yes = true
			if r, err := Run(t.Context(), o); err != nil || r.Deleted != 0 {
				t.Fatal(err, r.Counts)
			}
			if err := w.same(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatCameBackWhileAPassWasDownStays: the pass is killed at any change of
// the disk, and what the source lacked by then is there again.
func TestWhatCameBackWhileAPassWasDownStays(t *testing.T) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprintf("tells=%v", tells), func(t *testing.T) {
			prepared := func(path string) (*world, string) {
				w := newWorld(t, 12)
				w.dir = path
				w.migrated(path)
				since := ""
				if tells {
					since = w.cut()
				}
				w.store.Delete("k/0001", "k/0002")
				w.has("k/0011", "changed", 0)
				return w, since
			}
			steps := 0
			w, since := prepared(durabletest.Folder(t))
			o := w.options(w.dir, func(string) error { steps++; return nil }, since)
			o.Deletes = true
			if _, err := Run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			atEach(t, steps, func(at int, path string) error {
				w, since := prepared(path)
				o := w.options(path, killedAfter(at), since)
				o.Deletes = true
				if _, err := Run(t.Context(), o); !errors.Is(err, errKilled) {
					return fmt.Errorf("not killed: %w", err)
				}
				left := w.values()
				w.store.Put(sourcetest.Row{ID: "k/0001", Payload: []byte(left["k/0001"])}, sourcetest.Row{ID: "k/0002", Payload: []byte(left["k/0002"])})
				o = w.options(path, nil, since)
				o.Deletes = true
				if _, err := Run(t.Context(), o); err != nil {
					return err
				}
				got := w.values()
				for k := range left {
					if _, ok := got[k]; !ok {
						return fmt.Errorf("%s was deleted", k)
					}
				}
				return nil
			})
		})
	}
}

// TestTheSourceChangedItsIdentity, as a file that was mended does: the pass
// begins anew.
func TestTheSourceChangedItsIdentity(t *testing.T) {
	w := newWorld(t, 20)
	w.has("k/0000", "changed", 0)
	stops := func() {
		n := 0
		w.store.BeforePage = func(int) error {
			if n++; n == 3 {
				return errKilled
			}
			return nil
		}
	}
	stops()
	o := w.options(w.dir, nil, "")
	o.SourceName, o.Info.Identity = "store", "store of noon"
	if _, err := Run(t.Context(), o); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.store.BeforePage = nil
	w.has("k/0019", "changed", 0)
	o.Info.Identity = "store of one"
	if r, err := Run(t.Context(), o); err != nil || r.Read != 20 || w.same() != nil {
		t.Fatal(err, r.Counts, w.same())
	}
	// Another one is not taken for it.
	w.has("k/0000", "changed again", 0)
	stops()
	if _, err := Run(t.Context(), o); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	o.SourceName, o.Info.Identity = "shop", "shop of one"
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrOtherPass) || !strings.Contains(err.Error(), "the source was store of one and is now shop of one") {
		t.Fatal(err)
	}
}

// TestTheFirstCutIsTheMigrations.
func TestTheFirstCutIsTheMigrations(t *testing.T) {
	w := newWorld(t, 0)
	d := w.folder(durabletest.Folder(t), nil)
	if _, ok, err := LastCut(d); ok || err != nil {
		t.Fatal(ok, err)
	}
	report := func(complete bool, phase string) {
		t.Helper()
		b, err := json.Marshal(map[string]any{"source": "s", "target": "t", "cut": "42", "complete": complete, "phase": phase, "started": epoch})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Write(reportName, b); err != nil {
			t.Fatal(err)
		}
	}
	report(false, "load")
	if _, ok, err := LastCut(d); ok || err != nil {
		t.Fatal("an unfinished migration has no cut:", ok, err)
	}
	report(true, "done")
	if c, ok, err := LastCut(d); !ok || err != nil || c.Cut != "42" || !c.Started.Equal(epoch) || c.Size != -1 {
		t.Fatal(c, ok, err)
	}
	// A pass counts from then on, until there is another migration.
	for at, want := range map[time.Duration]string{time.Hour: "43", -time.Hour: "42"} {
		if err := journal.Save(d, cutName, Cut{Cut: "43", At: epoch.Add(at)}); err != nil {
			t.Fatal(err)
		}
		if c, ok, err := LastCut(d); !ok || err != nil || c.Cut != want {
			t.Fatal(at, c, ok, err)
		}
	}
	if err := d.Write(reportName, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LastCut(d); err == nil {
		t.Fatal("a damaged report was accepted")
	}
}

// TestACancelledPass ends, and goes on later.
func TestACancelledPass(t *testing.T) {
	w := newWorld(t, 40)
	w.has("k/new", "x", 0)
	ctx, cancel := context.WithCancel(t.Context())
	w.store.BeforePage = func(int) error {
		if w.store.Pages() >= 3 {
			cancel()
		}
		return nil
	}
	o := w.options(w.dir, nil, "")
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.store.BeforePage = nil
	if _, err := Run(t.Context(), o); err != nil || w.same() != nil {
		t.Fatal(err)
	}
}

func TestChecklist(t *testing.T) {
	text := Checklist(Cutover{Source: "redis at h", Tree: "orders", Server: "https://l", Delta: "lattice migrate redis orders --since state", Verify: "lattice verify redis orders",
		Report: &Report{Counts: Counts{Written: 12, Deleted: 3}}, Took: 4 * time.Second})
	for _, want := range []string{"redis at h", "tree orders at https://l", "wrote 12 and deleted 3 keys in 4s", "lattice migrate redis orders --since state\n", "lattice verify redis orders\n", "Keep the source readable", "with --deletes if"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}
