package cli

import (
	"strings"
	"testing"
	"time"
)

// A migration or a pass over a tree that is not the one that was loaded says so
// in one sentence, with the command to run.
func TestMigrateLooksAtTheTreeAgain(t *testing.T) {
	l, s := fake(t)
	made := time.Now().Add(-time.Hour)
	s.Now = func() time.Time { return made }
	args := []string{"migrate", "file", "cities", file(t, "cities.csv", cities), "--key-template", "{country}/{id}", "--state", t.TempDir()}
	since := append(append([]string{}, args...), "--since", "state")
	l.ok("", args...)
	s.Now = nil
	l.ok("", "set", "cities", "fr/3", "new")
	out := l.ok("", args...)
	for _, want := range []string{"Tree cities has 5 live keys.", "Nothing was left to do: the migration of "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	if out := l.ok("", append(since, "--target-prefix", "")...); !strings.Contains(out, "Delta pass completed") {
		t.Error(out)
	}
	l.ok("", "trees", "delete", "cities", "--yes")
	for _, a := range [][]string{args, since} {
		l.fails(ExitNo, `bring it back with "lattice trees recover cities", and run the same command again`, "", a...)
	}
	l.ok("", "trees", "purge", "cities", "--yes")
	for _, a := range [][]string{args, since} {
		r := l.fails(ExitNo, "tree cities was deleted for good since it was loaded", "", a...)
		if strings.Contains(r.out, "live key") || strings.Contains(r.out, "completed") {
			t.Error(r.out)
		}
	}
	l.ok("", "trees", "create", "cities")
	for _, a := range [][]string{args, since} {
		l.fails(ExitNo, "the tree is not the one that was loaded", "", a...)
	}
	l.ok("", append(args, "--restart")...)
	l.ok("", since...)
}

// A dry run says what is in the way.
func TestMigrateDryRunTellsAnObstacle(t *testing.T) {
	l, _ := fake(t)
	l.ok("", "set", "cities", "a", "1")
	l.ok("", "delete", "cities", "a")
	l.fails(ExitNo, "A migration would not begin as things are: the tree is not empty: a migration fills an empty tree, and cities holds 1 trace of deleted keys", "",
		"migrate", "file", "cities", file(t, "cities.csv", cities), "--key-template", "{country}/{id}", "--dry-run", "--state", t.TempDir()+"/s")
}
