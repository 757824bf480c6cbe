package migrate

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
)

// loaded is a migration of three records that is completed; its tree was made
// an hour ago.
func loaded(t *testing.T) (*service, Options) {
	t.Helper()
	s := newService()
	made := time.Now().Add(-time.Hour)
	s.Now = func() time.Time { return made }
	o := options(t, folder(t), &listSource{pages: paged(2, numbered(1, 2, 3)...)}, s)
	if r, err := Run(t.Context(), o); err != nil || !r.Complete || r.Earlier || r.TreeCreated.IsZero() {
		t.Fatalf("%+v, %v", r, err)
	}
	s.Now = nil
	return s, o
}

func removed(t *testing.T, s *service, purged bool) {
	t.Helper()
	tree := s.tree(t, "t")
	if err := tree.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !purged {
		return
	}
	if err := tree.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A migration that was completed looks at its tree when it is run again.
func TestACompletedMigrationLooksAtItsTree(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *service)
		err    error
		says   string
		live   int64
	}{
		"untouched": {func(*testing.T, *service) {}, nil, "", 3},
		"deleted":   {func(t *testing.T, s *service) { removed(t, s, false) }, ErrNoTree, `"lattice trees recover t"`, 3},
		"purged":    {func(t *testing.T, s *service) { removed(t, s, true) }, ErrNoTree, "with --restart", 3},
		"another": {func(t *testing.T, s *service) {
			removed(t, s, true)
			if _, err := s.tree(t, "t").Create(t.Context(), client.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, ErrOtherTree, "with --restart", 3},
		"emptied": {func(t *testing.T, s *service) {
			if _, err := s.tree(t, "t").DeleteRange(t.Context(), client.Range{}, true); err != nil {
				t.Fatal(err)
			}
		}, ErrDiffers, "no keys at all", 0},
		"one less": {func(t *testing.T, s *service) {
			if _, err := s.tree(t, "t").Delete(t.Context(), "k/0002", clientDelete); err != nil {
				t.Fatal(err)
			}
		}, nil, "2 keys, at least 1 fewer than were loaded", 2},
		"one more": {func(t *testing.T, s *service) {
			if _, err := s.tree(t, "t").Set(t.Context(), "x", nil, clientSet); err != nil {
				t.Fatal(err)
			}
		}, nil, "4 keys, 1 more than were loaded", 4},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := loaded(t)
			c.change(t, s)
			told := ""
			o.Notify = func(e Event) { told += e.Text }
			r, err := Run(t.Context(), o)
			if err != nil {
				told += err.Error()
			}
			if !errors.Is(err, c.err) || !strings.Contains(told, c.says) || r.Complete != (c.err == nil) || !r.Earlier || r.TotalLiveKeys != c.live {
				t.Fatalf("%+v, %v, %q", r, err, told)
			}
		})
	}
}

// --restart keeps what was done until a new migration can begin.
func TestRestartLooksBeforeItDiscards(t *testing.T) {
	s, o := loaded(t)
	o.Restart = true
	_, err := Run(t.Context(), o)
	if !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "and t has 3 keys;") {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Dir + "/" + stateName); err != nil {
		t.Fatal("the state is gone:", err)
	}
	o.Restart = false
	if r, err := Run(t.Context(), o); err != nil || !r.Complete {
		t.Fatal(err)
	}
	removed(t, s, true)
	o.Restart = true
	if r, err := Run(t.Context(), o); err != nil || !r.Complete || r.Earlier {
		t.Fatal(err)
	}
}

// A service that makes no trees is no reason to begin again and again.
func TestATreeThatIsNotMadeIsAskedFor(t *testing.T) {
	s := newService()
	src := &listSource{pages: paged(2, numbered(1, 2, 3)...)}
	o := options(t, folder(t), src, s)
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			clienttest.Problem(w, 404, "tree_not_found", "", 0)
			return true
		}
		return false
	}
	for range 2 {
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrNoTree) || !strings.Contains(err.Error(), `"lattice trees create t"`) || strings.Contains(err.Error(), "--restart") {
			t.Fatal(err)
		}
	}
	s.Intercept = nil
	if r, err := Run(t.Context(), o); err != nil || !r.Complete || len(src.reads) != 2 {
		t.Fatal(err, src.reads)
	}
}

// A tree that is soft-deleted in the middle can be had back.
func TestATreeDeletedInTheMiddle(t *testing.T) {
	for _, at := range []string{"/chunks/0", "/chunks/1", "/commit"} {
		s := newService()
		o := options(t, folder(t), &listSource{pages: paged(2, numbered(1, 2, 3)...)}, s)
		o.ChunkEntries = 2
		s.before = func(what string) error {
			if strings.HasSuffix(what, at) {
				s.before = nil
				removed(t, s, false)
			}
			return nil
		}
		for range 2 {
			if _, err := Run(t.Context(), o); !errors.Is(err, ErrNoTree) || !strings.Contains(err.Error(), `"lattice trees recover t", and run the same command again`) {
				t.Fatal(at, err)
			}
		}
		if err := s.tree(t, "t").Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err := Run(t.Context(), o); err != nil || !r.Complete || s.Len("t") != 3 {
			t.Fatal(at, err)
		}
	}
	s, o := loaded(t)
	removed(t, s, false)
	o.Dir = folder(t)
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrNoTree) || !strings.Contains(err.Error(), `"lattice trees purge t"`) {
		t.Fatal(err)
	}
}

// Traces of deleted keys are found before the source is read, by a dry run too.
func TestTracesAreFoundBeforeReading(t *testing.T) {
	s := newService()
	tree := s.tree(t, "t")
	if _, err := tree.Set(t.Context(), "a", nil, clientSet); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Delete(t.Context(), "a", clientDelete); err != nil {
		t.Fatal(err)
	}
	src := &listSource{pages: paged(2, numbered(1, 2, 3)...)}
	o := options(t, folder(t), src, s)
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "t holds 1 trace of deleted keys;") || len(src.reads) != 0 {
		t.Fatal(err, src.reads)
	}
	if trial, err := DryRun(t.Context(), o, 0); err != nil || trial.Entries != 3 || !strings.Contains(trial.Obstacle, "1 trace of deleted keys") {
		t.Fatalf("%+v, %v", trial, err)
	}
}
