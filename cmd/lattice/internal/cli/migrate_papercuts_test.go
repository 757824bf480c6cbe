package cli

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A number below zero may stand apart from its flag, as the help writes it.
func TestMigrateTakesANegativeNumber(t *testing.T) {
	l, s := fake(t)
	args := []string{"migrate", "file", "cities", file(t, "cities.csv", cities+"it,,Roma,1\n"), "--key-template", "{country}/{id}", "--state", t.TempDir()}
	l.fails(ExitNo, "Migration completed", "", append(args, "--max-rejects", "-1")...)
	if s.Len("cities") != 4 {
		t.Error(s.Len("cities"))
	}
	l.fails(ExitUsage, "--max-rejects must be -1 or more", "", append(args, "--max-rejects", "-2")...)
}

// A preview has as many keys as were asked for, if there are.
func TestMigratePreviewPassesOverRejects(t *testing.T) {
	l, _ := fake(t)
	csv := file(t, "cities.csv", "country,id\nit,\nfr,2\nfr,1\n")
	r := l.fails(ExitNo, "The first keys:\n  fr/1\n  fr/2\n", "", "migrate", "file", "cities", csv, "--key-template", "{country}/{id}", "--state", t.TempDir(), "--preview", "2")
	if !strings.Contains(r.err, "rejected: cities.csv:2") {
		t.Error(r.err)
	}
}

// A folder that holds something else is left alone.
func TestMigrateLeavesOtherFoldersAlone(t *testing.T) {
	l, _ := fake(t)
	csv := file(t, "cities.csv", cities)
	args := []string{"file", "cities", csv, "--key-template", "{country}/{id}", "--state"}
	migrate, verify := append([]string{"migrate"}, args...), append([]string{"verify"}, args...)
	dir := filepath.Dir(csv)
	for _, a := range [][]string{append(migrate, dir), append(verify, dir), append(migrate, dir, "--since", "state")} {
		l.fails(ExitUsage, "holds other things, such as cities.csv", "", a...)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	l.ok("", append(migrate, filepath.Join(dir, "state"))...)
	if err := os.WriteFile(filepath.Join(dir, "state", "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.ok("", append(verify, filepath.Join(dir, "state"))...)
}

// The rows of a file are counted without its header.
func TestVerifyCountsRows(t *testing.T) {
	l, _ := fake(t)
	args := []string{"file", "cities", file(t, "cities.csv", "id\n1\n2\n"), "--state", t.TempDir()}
	l.ok("", append([]string{"migrate"}, args...)...)
	l.says(l.ok("", append([]string{"verify"}, args...)...), "it counted about 2 before and 2 after")
}

// What may have been loaded is not denied.
func TestMigrateInterruptedSaysAtLeast(t *testing.T) {
	l, s := fake(t)
	args := []string{"migrate", "file", "cities", file(t, "cities.csv", cities), "--key-template", "{country}/{id}", "--state", t.TempDir(), "--chunk-entries", "1"}
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/chunks/2") {
			return false
		}
		s.Intercept = nil
		s.ServeHTTP(w, r) // it arrives, and the answer does not
		cancel(ErrInterrupted)
		<-r.Context().Done()
		return true
	}
	l.ctx = ctx
	l.fails(ExitInterrupted, "4 records read: at least 2 loaded in 2 chunks.", "", args...)
}
