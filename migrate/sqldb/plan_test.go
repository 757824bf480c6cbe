package sqldb

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlansOfSQLite: an index finds the beginning of a page, by all columns of
// the key, or one statement gives all rows.
func TestPlansOfSQLite(t *testing.T) {
	for definition, whole := range map[string]bool{
		"a INTEGER PRIMARY KEY)": false,
		"a TEXT PRIMARY KEY)":    false,
		"a TEXT NOT NULL, b INTEGER NOT NULL, PRIMARY KEY (a, b))":       false,
		"a TEXT, b INTEGER, PRIMARY KEY (a, b))":                         true,
		"a TEXT, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID":           false,
		"a TEXT COLLATE NOCASE PRIMARY KEY)":                             true,
		"a TEXT NOT NULL, b INTEGER NOT NULL, PRIMARY KEY (a DESC, b))":  true,
		"a TEXT COLLATE NOCASE, PRIMARY KEY (a COLLATE BINARY))":         true,
		"a TEXT NOT NULL, PRIMARY KEY (a COLLATE NOCASE))":               true,
		"a TEXT NOT NULL, b TEXT NOT NULL COLLATE RTRIM, UNIQUE (a, b))": true,
		"a INTEGER NOT NULL, b REAL NOT NULL, c BLOB, UNIQUE (a, b))":    false,
	} {
		path := filepath.Join(t.TempDir(), "data.db")
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE t (" + definition); err != nil {
			t.Fatalf("%s: %v", definition, err)
		}
		s := sourceOf(t, SQLite, path)
		if _, err := s.Inspect(t.Context()); err != nil {
			t.Fatalf("%s: %v", definition, err)
		}
		if s.set.whole != whole {
			t.Errorf("%s: one statement for all rows: %t", definition, s.set.whole)
		}
		if !whole {
			wantSearch(t, db, s)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		db.Close()
	}
}

func wantSearch(t *testing.T, db *sql.DB, s *Source) {
	t.Helper()
	after := make([]any, len(s.set.keys))
	for i := range after {
		after[i] = int64(1)
	}
	text, args := s.set.page(s.d.traits(), after, nil, 10)
	var id, parent, unused int
	var plan string
	if err := db.QueryRow("EXPLAIN QUERY PLAN "+text, args...).Scan(&id, &parent, &unused, &plan); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(plan, "SEARCH") || strings.Count(plan, "?") != len(after) {
		t.Errorf("%s\nis planned as %s", text, plan)
	}
}
