package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/source"
)

func TestSortsAndLoads(t *testing.T) {
	ids := upTo(50)
	slices.Reverse(ids)
	s, src := newService(), &listSource{pages: paged(7, numbered(ids...)...)}
	r, err := Run(t.Context(), options(t, folder(t), src, s))
	if err != nil || !r.Complete || r.Chunks != 7 || r.TotalLiveKeys != 50 || r.Phase != PhaseDone || r.Verified != nil || r.Cut != "cut 1" {
		t.Fatalf("%+v, %v", r, err)
	}
	want(t, &r, Counts{Read: 50, Mapped: 50, Loaded: 50})
	if got := s.dump(t, "t"); strings.Count(got, "\n") != 50 || !strings.HasPrefix(got, "k/0000=value 0\nk/0001=value 1\n") {
		t.Fatal(got)
	}
}

// A record of each kind: the account names all of them, and nothing is loaded
// before it is known.
func TestTheAccountBalances(t *testing.T) {
	expired := record(8, "gone")
	expired.Expiry = time.Unix(1, 0)
	lasting := record(9, "stays")
	lasting.Expiry = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	other := record(1, "another value")
	other.Origin = "row 1b"
	alike := record(2, "value 2")
	alike.Origin = "row 2b"
	pages := []source.Page{
		{Records: append(numbered(1, 2, 3), record(-4, "x"), record(5, strings.Repeat("x", 1001)), expired, lasting), Expired: 2},
		{Records: append(numbered(3, 6), other, alike), Faults: []source.Fault{{Origin: "row 7", Reason: "its date is no date"}}},
	}
	s, src, dir := newService(), &listSource{pages: pages}, folder(t)
	o := options(t, dir, src, s)
	var events []string
	o.Notify = func(e Event) {
		if e.Kind == EventReject {
			events = append(events, e.Text)
		}
	}
	r, err := Run(t.Context(), o)
	counts := Counts{Read: 14, Mapped: 8, Rejected: 4, Duplicates: 2, Expired: 3, Expiring: 1}
	if !errors.Is(err, ErrTooManyRejects) || r.Complete || r.Counts != counts || s.Len("t") != 0 || s.Requests("PUT bulk-load") != 0 {
		t.Fatalf("%+v, %v; %d keys", r, err, s.Len("t"))
	}
	wantEvents := []string{
		"rejected: row -4: field \"id\", part of the key, is below zero; {…:+4} has a form for such numbers that keeps the order",
		"rejected: row 5: the value has 1001 bytes and may have 1000", "rejected: row 7: its date is no date",
		"rejected: row 1b: its key is that of row 1, which holds something else",
	}
	if !slices.Equal(events, wantEvents) {
		t.Fatalf("%q", events)
	}
	if got := strings.Split(strings.TrimSpace(readFile(t, filepath.Join(dir, rejectName))), "\n"); len(got) != 4 ||
		got[3] != `{"origin":"row 1b","key":"k/0001","reason":"its key is that of row 1, which holds something else"}` {
		t.Fatalf("%q", got)
	}
	reads := len(src.reads)
	o.MaxRejects = 4
	r, err = Run(t.Context(), o)
	if err != nil || !r.Complete || len(src.reads) != reads {
		t.Fatalf("%+v, %v; read again: %v", r, err, src.reads[reads:])
	}
	counts.Loaded = 5
	want(t, &r, counts)
	if got := s.dump(t, "t"); got != "k/0001=value 1\nk/0002=value 2\nk/0003=value 3\nk/0006=value 6\nk/0009=stays until 2100-01-01T00:00:00Z\n" {
		t.Fatal(got)
	}
	var saved Report
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, reportName))), &saved); err != nil || saved.Counts != counts || !saved.Complete {
		t.Fatalf("%+v, %v", saved, err)
	}
}

// MIGRATION-LESSONS 3: however the source is cut and ordered, each run counts
// the same.
func TestThreeRunsCountTheSame(t *testing.T) {
	records := append(numbered(upTo(60)...), record(-1, ""), record(7, "value 7"))
	var counts Counts
	for size := range 3 {
		slices.Reverse(records)
		s, src := newService(), &listSource{pages: paged(5+2*size, records...)}
		o := options(t, folder(t), src, s)
		o.MaxRejects = 1
		r, err := Run(t.Context(), o)
		if err != nil || !r.Complete || s.Len("t") != 60 {
			t.Fatalf("%+v, %v", r, err)
		}
		if size == 0 {
			counts = r.Counts
		}
		want(t, &r, counts)
	}
}

// Of one record that was read twice the later reading counts.
func TestARecordReadTwiceIsReplaced(t *testing.T) {
	s, src := newService(), &listSource{pages: paged(2, append(numbered(1, 2), record(1, "newer"), record(2, "value 2"))...)}
	o := options(t, folder(t), src, s)
	var told []string
	o.Notify = func(e Event) {
		if e.Kind == EventNote {
			told = append(told, e.Text)
		}
	}
	r, err := Run(t.Context(), o)
	if err != nil || len(told) != 1 || !strings.Contains(told[0], `row 1 was read again, with key "k/0001"`) {
		t.Fatalf("%q, %v", told, err)
	}
	want(t, &r, Counts{Read: 4, Mapped: 4, Duplicates: 2, Loaded: 2})
	if got := s.dump(t, "t"); got != "k/0001=newer\nk/0002=value 2\n" {
		t.Fatal(got)
	}
}

// A source of one moment yields no record twice: two that cannot be told apart
// by their origin are a conflict, and none of them is lost silently.
func TestTwoRecordsOfOneOriginAreAConflict(t *testing.T) {
	s, src := newService(), &listSource{pages: paged(2, append(numbered(1, 2), record(1, "another"), record(2, "value 2"))...)}
	o := options(t, folder(t), src, s)
	o.Info.Consistent = true
	r, err := Run(t.Context(), o)
	if !errors.Is(err, ErrTooManyRejects) || r.Rejected != 1 || r.Duplicates != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	// After it was begun anew, it may have changed in between.
	src = &listSource{pages: paged(2, append(numbered(1, 2), record(1, "another"), record(2, "value 2"))...), restartAt: map[int]bool{1: true}}
	o = options(t, folder(t), src, newService())
	o.Info.Consistent = true
	if r, err = Run(t.Context(), o); err != nil || r.Rejected != 0 || r.Duplicates != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestASourceThatBeginsAnew(t *testing.T) {
	for _, order := range []Order{OrderSort, OrderSource} {
		t.Run(string(order), func(t *testing.T) {
			pages := paged(5, numbered(upTo(40)...)...)
			pages[1].Faults = []source.Fault{{Origin: "bad", Reason: "bad"}}
			pages[1].Expired = 3
			s, src := newService(), &listSource{pages: pages, restartAt: map[int]bool{6: true, 3: true}}
			o := options(t, folder(t), src, s)
			o.Order, o.MaxRejects = order, 1
			notes := 0
			o.Notify = func(e Event) {
				if strings.Contains(e.Text, "reading begins anew") {
					notes++
				}
			}
			r, err := Run(t.Context(), o)
			if err != nil || !r.Complete || notes != 2 || r.Loaded != 40 || r.Rejected != 1 || r.Expired != 3 || r.Duplicates != 15+30 {
				t.Fatalf("%+v, %d notes, %v", r, notes, err)
			}
			if lines := strings.Count(readFile(t, r.Rejects), "\n"); lines != 1 {
				t.Fatalf("%d rejects are listed", lines)
			}
			if s.Len("t") != 40 {
				t.Fatalf("%d keys", s.Len("t"))
			}
		})
	}
}

func TestSourceOrder(t *testing.T) {
	s, src := newService(), &listSource{pages: paged(5, append(numbered(upTo(40)...), record(39, "value 39"))...)}
	o := options(t, folder(t), src, s)
	o.Order = OrderSource
	r, err := Run(t.Context(), o)
	if err != nil || !r.Complete || r.Chunks < 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	want(t, &r, Counts{Read: 41, Mapped: 41, Duplicates: 1, Loaded: 40})
	src = &listSource{pages: paged(3, numbered(1, 2, 3, 5, 4)...)}
	o = options(t, folder(t), src, newService())
	o.Order = OrderSource
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), `key "k/0004" of row 4 follows key "k/0005" of row 5`) || !strings.Contains(err.Error(), "--order sort") {
		t.Fatal(err)
	}
}

// A state of other options is refused, and nothing of it is touched.
func TestAnotherMigrationInTheSameFolder(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(20)...)...)}, folder(t)
	stop := errors.New("stop")
	src.beforePage = func(i int) error {
		if i == 2 {
			return stop
		}
		return nil
	}
	base := options(t, dir, src, s)
	if _, err := Run(t.Context(), base); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	src.beforePage = nil
	before := readFile(t, filepath.Join(dir, stateName))
	for want, change := range map[string]func(*Options){
		"the kind of source was \"list\" and is now \"csv\"":      func(o *Options) { o.Info.Kind = "csv" },
		"the source was \"a list\" and is now \"b\"":              func(o *Options) { o.Info.Identity = "b" },
		"the tree was \"t at service.test\" and is now \"u\"":     func(o *Options) { o.TargetName = "u" },
		"--order was \"sort\" and is now \"source\"":              func(o *Options) { o.Order = OrderSource },
		"--key-template was \"k/{id:4}\" and is now \"j/{id:4}\"": func(o *Options) { o.Shape = map[string]string{"key-template": "j/{id:4}"} },
		"--null-segment was not given and is now \"~\"":           func(o *Options) { o.Shape = map[string]string{"key-template": "k/{id:4}", "null-segment": "~"} },
	} {
		o := base
		change(&o)
		var mismatch *MismatchError
		if _, err := Run(t.Context(), o); !errors.As(err, &mismatch) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--restart") {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if after := readFile(t, filepath.Join(dir, stateName)); after != before {
		t.Fatal("a refused run changed the state")
	}
	// What shapes nothing may change.
	o := base
	o.ChunkEntries, o.Rate, o.MaxRejects = 3, 1e6, 9
	if r, err := Run(t.Context(), o); err != nil || r.Loaded != 20 {
		t.Fatal(r, err)
	}
}

func TestTwoRunsCannotShareAFolder(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(20)...)...)}, folder(t)
	o := options(t, dir, src, s)
	src.beforePage = func(i int) error {
		if i == 1 {
			second := options(t, dir, &listSource{}, s)
			if _, err := Run(t.Context(), second); !errors.Is(err, durable.ErrLocked) {
				t.Errorf("a second run: %v", err)
			}
		}
		return nil
	}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestATreeWithKeysIsRefusedBeforeReading(t *testing.T) {
	s, src := newService(), &listSource{pages: paged(5, numbered(1)...)}
	if _, err := s.tree(t, "t").Set(t.Context(), "there", nil, clientSet); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), options(t, folder(t), src, s))
	if !errors.Is(err, ErrNotEmpty) || len(src.reads) != 0 || !strings.Contains(err.Error(), `"lattice trees delete t"`) {
		t.Fatal(err, src.reads)
	}
}

// PITFALLS 42: only tombstones are left.
func TestATreeOfTombstonesIsRefused(t *testing.T) {
	s, src := newService(), &listSource{pages: paged(5, numbered(1)...)}
	tree := s.tree(t, "t")
	if _, err := tree.Set(t.Context(), "there", nil, clientSet); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Delete(t.Context(), "there", clientDelete); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), options(t, folder(t), src, s)); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "1 trace of deleted keys") {
		t.Fatal(err)
	}
}

// MIGRATION-LESSONS 11: the load is gone, and the message names the command.
func TestALostLoadIsExplained(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(40)...)...)}, folder(t)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.after = func(what string) error {
		if strings.HasSuffix(what, "/chunks/2") {
			cancel(stop)
		}
		return nil
	}
	o := options(t, dir, src, s)
	if _, err := Run(ctx, o); !errors.Is(err, stop) || !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	s.after = nil
	tree := s.tree(t, "t")
	if err := errors.Join(tree.Drop(t.Context()), tree.Purge(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), o)
	if !errors.Is(err, ErrSessionLost) || !strings.Contains(err.Error(), "run the same command with --restart") {
		t.Fatal(err)
	}
	o.Restart = true
	if r, err := Run(t.Context(), o); err != nil || r.Loaded != 40 || s.Len("t") != 40 {
		t.Fatal(r, err)
	}
}

// Restart ends the load of the earlier run, which would block the tree.
func TestRestart(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(40)...)...)}, folder(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.before = func(what string) error {
		if strings.HasSuffix(what, "/chunks/0") {
			cancel()
		}
		return nil
	}
	o := options(t, dir, src, s)
	if _, err := Run(ctx, o); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	s.before = nil
	o.Restart, o.Info.Identity = true, "another list"
	if r, err := Run(t.Context(), o); err != nil || r.Loaded != 40 || r.Source != "another list" {
		t.Fatal(r, err)
	}
}

// MIGRATION-LESSONS 8: a service that throttles for minutes is waited for as
// it asks, and the migration is done.
func TestThrottlingIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src := newService(), &listSource{pages: paged(5, numbered(upTo(40)...)...)}
		refused, waits := 0, 0
		s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/chunks/") || refused >= 6 {
				return false
			}
			refused++
			clienttest.Problem(w, http.StatusTooManyRequests, "storage_throttled", "slow down", 45)
			return true
		}
		o := options(t, folder(t), src, s)
		o.Stats = &Stats{}
		o.Notify = func(e Event) {
			if e.Kind == EventWait {
				if waits++; o.Stats.Trouble() == nil {
					t.Error("the meter is not told")
				}
			}
		}
		start := time.Now()
		r, err := Run(t.Context(), o)
		if err != nil || r.Loaded != 40 || refused != 6 || waits != 6 {
			t.Fatalf("%+v, %d refusals, %d waits, %v", r, refused, waits, err)
		}
		if took := time.Since(start); took < 6*45*time.Second {
			t.Fatalf("only %s were waited", took)
		}
	})
}

func TestAServiceThatStaysAwayEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(40)...)...)}, folder(t)
		gone := false
		s.before = func(what string) error {
			if gone = gone || strings.HasSuffix(what, "/chunks/3"); gone {
				return errors.New("connection refused")
			}
			return nil
		}
		o := options(t, dir, src, s)
		start := time.Now()
		r, err := Run(t.Context(), o)
		if !errors.Is(err, ErrPatience) || r.Loaded != 24 || r.Complete {
			t.Fatalf("%+v, %v", r, err)
		}
		if took := time.Since(start); took < 45*time.Second || took > time.Minute {
			t.Fatalf("it was waited for during %s", took)
		}
		s.before = nil
		if r, err := Run(t.Context(), o); err != nil || r.Loaded != 40 || len(s.sent["3"]) != 1 {
			t.Fatal(r, err)
		}
	})
}

func TestAServiceThatNeverAnsweredIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.before = func(string) error { return errors.New("connection refused") }
		start := time.Now()
		o := options(t, folder(t), &listSource{}, s)
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrPatience) || time.Since(start) > firstContact {
			t.Fatal(time.Since(start), err)
		}
	})
}

// MIGRATION-LESSONS 8: the rate is kept within a tenth.
func TestRateIsKept(t *testing.T) {
	for _, order := range []Order{OrderSort, OrderSource} {
		synctest.Test(t, func(t *testing.T) {
			s, src := newService(), &listSource{pages: paged(100, numbered(upTo(5000)...)...)}
			o := options(t, folder(t), src, s)
			o.Rate, o.Order, o.ChunkEntries, o.Spool.SortMemory = 250, order, 1000, 0
			start := time.Now()
			if _, err := Run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			rate := 5000 / time.Since(start).Seconds()
			if rate < 225 || rate > 275 {
				t.Fatalf("%.0f records a second, 250 were asked for", rate)
			}
		})
	}
}

func TestVerification(t *testing.T) {
	for _, order := range []Order{OrderSort, OrderSource} {
		s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(20)...)...)}, folder(t)
		o := options(t, dir, src, s)
		o.Order = order
		equal := false
		o.Verify = func(ctx context.Context, v *Verification) (Verdict, error) {
			var keys []string
			for e, err := range v.Entries(ctx, "k/0004") {
				if err != nil {
					return Verdict{}, err
				}
				keys = append(keys, e.Key+"="+string(e.Value))
			}
			if len(keys) != 15 || keys[0] != "k/0005=value 5" || v.Expect != 20 || v.LiveKeys != 20 {
				t.Errorf("%q, %+v", keys, v)
			}
			return Verdict{Equal: equal, Text: "one key differs", Report: map[string]int{"different": 1}}, nil
		}
		r, err := Run(t.Context(), o)
		if !errors.Is(err, ErrDiffers) || r.Complete || r.Verified == nil || *r.Verified || string(r.Verification) != `{"different":1}` {
			t.Fatalf("%+v, %v", r, err)
		}
		equal = true
		if r, err = Run(t.Context(), o); err != nil || !r.Complete || !*r.Verified {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

// The tree has fewer keys than were loaded: that is no completion.
func TestAShortfallIsNoCompletion(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(20)...)...)}, folder(t)
	tree := s.tree(t, "t")
	s.before = func(what string) error {
		if strings.HasSuffix(what, "/commit") {
			s.before = nil
			_, err := tree.Delete(t.Context(), "k/0007", clientDelete)
			return err
		}
		return nil
	}
	r, err := Run(t.Context(), options(t, dir, src, s))
	if !errors.Is(err, ErrDiffers) || r.Complete || !strings.Contains(err.Error(), "the tree has only 19 keys") {
		t.Fatalf("%+v, %v", r, err)
	}
}

// A chunk that is damaged on the disk is not sent.
func TestADamagedChunkIsRefused(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(40)...)...)}, folder(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.before = func(what string) error {
		if strings.HasSuffix(what, "/chunks/1") {
			cancel()
		}
		return nil
	}
	o := options(t, dir, src, s)
	if _, err := Run(ctx, o); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	s.before = nil
	d, err := durable.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(chunkName(1), []byte(strings.ReplaceAll(readFile(t, d.Join(chunkName(1))), "k/", "j/"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "damaged on the disk") || s.Len("t") != 8 {
		t.Fatal(err, s.Len("t"))
	}
	if err := d.Write(stateName, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "corrupt state") {
		t.Fatal(err)
	}
}

// MIGRATION-LESSONS 4: one value is the largest allowed, one a byte larger.
func TestLargeValuesAreCarriedOrRejected(t *testing.T) {
	s := newService()
	src := &listSource{pages: paged(2, record(1, ""), record(2, "x"), record(3, strings.Repeat("y", 1000)), record(4, strings.Repeat("z", 1001)))}
	o := options(t, folder(t), src, s)
	o.ChunkBytes, o.MaxRejects = 200, -1
	r, err := Run(t.Context(), o)
	if err != nil || r.Loaded != 3 || r.Rejected != 1 || r.Chunks != 3 || r.Reasons["the value has N bytes and may have N"] != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if v, ok := s.Value("t", "k/0003"); !ok || len(v) != 1000 {
		t.Fatal(len(v), ok)
	}
}

// A phase begins with what earlier runs have done of it, so that no rate counts
// that as work of a moment.
func TestPhasesBeginWithWhatIsDone(t *testing.T) {
	s, src, dir := newService(), &listSource{pages: paged(5, numbered(upTo(40)...)...)}, folder(t)
	stop := errors.New("stop")
	src.beforePage = func(i int) error {
		if i == 3 {
			return stop
		}
		return nil
	}
	o := options(t, dir, src, s)
	o.Stats = &Stats{}
	var seen []string
	o.Notify = func(e Event) {
		if e.Kind == EventPhase {
			seen = append(seen, fmt.Sprintf("%s %d/%d", e.Text, o.Stats.Done.Load(), o.Stats.Total.Load()))
		}
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	src.beforePage = nil
	ctx, cancel := context.WithCancel(t.Context())
	s.after = func(what string) error {
		if strings.HasSuffix(what, "/chunks/1") {
			cancel()
		}
		return nil
	}
	if _, err := Run(ctx, o); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	s.after = nil
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := []string{"read 0/100", "read 15/100", "check 0/40", "load 0/40", "load 8/40", "verify 0/40"}
	heard := slices.Clone(want) // the reply to the last chunk may have come before the interruption did
	heard[4] = "load 16/40"
	if !slices.Equal(seen, want) && !slices.Equal(seen, heard) {
		t.Fatalf("%q, want %q", seen, want)
	}
}

func TestDryRun(t *testing.T) {
	ids := upTo(100)
	slices.Reverse(ids)
	other := record(5, "another")
	other.Origin = "row 5b"
	s, dir := newService(), filepath.Join(folder(t), "state")
	src := &listSource{pages: paged(7, append(numbered(ids...), record(-1, ""), other, record(7, "value 7"))...)}
	o := options(t, dir, src, s)
	tr, err := DryRun(t.Context(), o, 0)
	if err != nil || tr.Read != 103 || tr.Entries != 100 || tr.Rejected != 2 || tr.Duplicates != 1 || tr.Chunks != 13 || tr.Sampled {
		t.Fatalf("%+v, %v", tr, err)
	}
	if len(tr.FirstKeys) != 10 || tr.FirstKeys[0] != "k/0000" || tr.FirstKeys[9] != "k/0009" || tr.KeySizes != (Sizes{6, 6, 6}) || tr.ValueSizes != (Sizes{8, 8, 8}) {
		t.Fatalf("%+v", tr)
	}
	if len(tr.Shapes) != 1 || tr.Shapes[0] != (Shape{"a/9", 2, 100, "k/0000"}) || len(tr.FirstRejects) != 2 || !slices.Equal(tr.FirstDuplicate, []string{"row 5", "row 5b"}) {
		t.Fatalf("%+v", tr)
	}
	if s.Requests("PUT bulk-load") != 0 {
		t.Fatal("a dry run wrote")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); err != nil || len(left) != 0 {
		t.Fatalf("it left %q, %v", left, err)
	}
	src.reads = nil
	if tr, err = DryRun(t.Context(), o, 10); err != nil || !tr.Sampled || tr.Entries != 10 || len(src.reads) != 2 {
		t.Fatalf("%+v, pages %v, %v", tr, src.reads, err)
	}
	keys, err := FirstKeys(t.Context(), o, 3)
	if err != nil || !slices.Equal(keys, []string{"k/0097", "k/0098", "k/0099"}) {
		t.Fatal(keys, err)
	}
}

func TestSizes(t *testing.T) {
	var s sizes
	for n := range int64(10_000) {
		s.add(n)
	}
	got := s.summary()
	if got.Max != 9999 || got.P50 < 4999 || got.P50 > 5099 || got.P99 < 9899 || got.P99 > 9999 {
		t.Fatalf("%+v", got)
	}
	total := int64(0)
	for _, b := range s.histogram() {
		if total += b.Count; b.From > b.To {
			t.Fatalf("%+v", b)
		}
	}
	if total != 10_000 {
		t.Fatal(total)
	}
	for n := int64(0); n < 1<<40; n = n*3/2 + 1 {
		if top := bucketTop(bucketOf(n)); top < n || float64(top) > float64(n)*1.02 {
			t.Fatalf("%d is in the bucket up to %d", n, top)
		}
	}
}
