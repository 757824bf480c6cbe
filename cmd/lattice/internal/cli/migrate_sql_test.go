package cli

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the database that is migrated
)

// music is a database with a composite key, NULLs and texts that differ by
// case alone.
func music(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "music.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{
		"CREATE TABLE tracks (album TEXT COLLATE NOCASE, nr INTEGER, name TEXT, PRIMARY KEY (album, nr))",
		"INSERT INTO tracks VALUES ('b', 1, 'x'), ('A', 2, ''), ('a', 10, NULL), ('B', 9, 'y')",
		"CREATE TABLE loose (name TEXT)",
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestMigrateSQLite(t *testing.T) {
	l, s := fake(t)
	path, state := music(t), t.TempDir()
	args := []string{"migrate", "sqlite", "tracks", path, "--table", "Tracks", "--page-rows", "1", "--state", state}
	r := l.run("", args...)
	if r.code != ExitOK || !strings.Contains(r.out, "4 records read: 4 loaded in 1 chunk.") || !strings.Contains(r.err, "No index gives the order of album and nr") {
		t.Fatalf("%d: %s%s", r.code, r.out, r.err)
	}
	l.is(l.ok("", "scan", "tracks", "--keys-only"), "tracks/A/0000000000000000002\ntracks/B/0000000000000000009\ntracks/a/0000000000000000010\ntracks/b/0000000000000000001\n")
	if v, _ := s.Value("tracks", "tracks/a/0000000000000000010"); string(v) != `{"album":"a","nr":10,"name":null}` {
		t.Errorf("%s", v)
	}
	l.fails(ExitUsage, "--key-columns", "", append(args, "--key-columns", "nr,album")...)
	out := l.ok("", "migrate", "sqlite", "names", path, "--query", "SELECT nr, name FROM tracks WHERE name > ''", "--key-columns", "nr",
		"--key-template", "{nr:2}", "--value", "column:name", "--state", t.TempDir())
	if !strings.Contains(out, "2 records read: 2 loaded") {
		t.Error(out)
	}
	if v, _ := s.Value("names", "09"); string(v) != "y" {
		t.Errorf("%s", v)
	}
}

func TestMigrateSQLSentences(t *testing.T) {
	l, _ := fake(t)
	path := music(t)
	t.Setenv("LATTICE_TEST_URL", "postgres://u:hunter2@127.0.0.1:1/db")
	for want, args := range map[string][]string{
		"give a table or a query to read":               {"sqlite", "t", path},
		"did you mean tracks?":                          {"sqlite", "t", path, "--table", "track"},
		"give key columns that identify a row":          {"sqlite", "t", path, "--table", "loose"},
		"there is no file":                              {"sqlite", "t", path + ".none", "--table", "t"},
		"give the address of the source once":           {"postgres", "t", "--table", "t"},
		"the DSN is not one of MySQL":                   {"mysql", "t", "--table", "t", "--source", "hunter2@nowhere"},
		"the DSN is not one of SQL Server":              {"sqlserver", "t", "--table", "t", "--source", "sqlserver://u:hunter2@:bad"},
		"nothing listens at 127.0.0.1:1/db: check host": {"postgres", "t", "--table", "t", "--source-env", "LATTICE_TEST_URL"},
		"a page has 1 to 50000 rows":                    {"sqlite", "t", path, "--table", "tracks", "--page-rows", "50001"},
	} {
		r := l.run("", append(append([]string{"migrate"}, args...), "--state", t.TempDir())...)
		if r.code == ExitOK || !strings.Contains(r.err, want) || strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("%q: %d %s%s, wanted %q", args, r.code, r.out, r.err, want)
		}
	}
}
