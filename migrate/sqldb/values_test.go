package sqldb_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/sqldb"
)

// TestValuesOfSQLite: values come as they are stored, whatever type a column
// declares; nothing becomes NULL.
func TestValuesOfSQLite(t *testing.T) {
	path, db := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, any_, day DATE, at DATETIME, flag BOOLEAN, n NUMERIC, twice AS (id * 2))`)
	for i, c := range []struct{ given, want any }{
		{nil, nil}, {int64(math.MinInt64), int64(math.MinInt64)}, {int64(math.MaxInt64), int64(math.MaxInt64)},
		{0.1, 0.1}, {math.Inf(-1), math.Inf(-1)}, {math.MaxFloat64, math.MaxFloat64}, {5e-324, 5e-324},
		{"", ""}, {"0000-00-00", "0000-00-00"}, {"2024-02-30 25:61", "2024-02-30 25:61"}, {"a\x00b", "a\x00b"},
		{[]byte{}, []byte{}}, {[]byte{0, 255}, []byte{0, 255}},
	} {
		mustExec(t, db, "INSERT INTO t (id, any_, day, at) VALUES (?1, ?2, ?2, ?2)", i, c.given)
		o := sqldb.Options{DSN: path, Table: "t", Where: fmt.Sprintf("id = %d", i)}
		records, _ := readAll(t, o, false)
		for _, column := range []string{"any_", "day", "at"} {
			if got := field(t, records[0], column); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%#v in column %s came as %#v", c.given, column, got)
			}
		}
		if got := field(t, records[0], "twice"); got != int64(2*i) {
			t.Errorf("a generated column came as %v", got)
		}
	}
	mustExec(t, db, "INSERT INTO t (id, at, flag, n) VALUES (100, '2024-01-02 03:04:05', 1, '9007199254740993')")
	records, _ := readAll(t, sqldb.Options{DSN: path, Query: "SELECT * FROM t WHERE id = 100", KeyColumns: []string{"id"}}, false)
	for column, want := range map[string]any{"at": "2024-01-02 03:04:05", "flag": int64(1), "n": int64(9007199254740993)} {
		if got := field(t, records[0], column); !reflect.DeepEqual(got, want) {
			t.Errorf("column %s came as %#v", column, got)
		}
	}
}

// TestTextOfOtherEncodings: text that is not UTF-8 is passed on as it is.
func TestTextOfOtherEncodings(t *testing.T) {
	path, _ := database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, CAST(X'ff41' AS TEXT))")
	records, _ := readAll(t, sqldb.Options{DSN: path, Table: "t"}, false)
	if got := field(t, records[0], "v"); got != "\xffA" {
		t.Errorf("it came as %q", got)
	}
}

// TestBigRows: a page ends before it holds more than a few megabytes.
func TestBigRows(t *testing.T) {
	path, db := database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
	for i := range 10 {
		mustExec(t, db, "INSERT INTO t VALUES (?, zeroblob(?))", i, 3<<20)
	}
	records, pages := readAll(t, sqldb.Options{DSN: path, Table: "t"}, false)
	if len(records) != 10 || len(pages) < 3 {
		t.Errorf("%d rows in %d pages", len(records), len(pages))
	}
}

// TestTemplates: whole numbers have a place for a sign if they need one.
func TestTemplates(t *testing.T) {
	path, db := database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	if got := inspect(t, open(t, sqldb.Options{DSN: path, Table: "t"})).KeyTemplate; got != "t/{id:019d}" {
		t.Errorf("template %s", got)
	}
	mustExec(t, db, "INSERT INTO t VALUES (-1)")
	if got := inspect(t, open(t, sqldb.Options{DSN: path, Table: "t"})).KeyTemplate; got != "t/{id:+19d}" {
		t.Errorf("template %s", got)
	}
}

func changed(t *testing.T, o sqldb.Options, cut string) string {
	t.Helper()
	o.PageRows = 2
	var ids []string
	for p, err := range open(t, o).ReadSince(t.Context(), cut, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			ids = append(ids, fmt.Sprint(field(t, r, "id")))
		}
	}
	return strings.Join(ids, " ")
}

// TestChanges: a later run reads what changed since the cut of an earlier one,
// and rows of which nobody knows.
func TestChanges(t *testing.T) {
	path, db := database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, version INTEGER, at TEXT)")
	o := sqldb.Options{DSN: path, Table: "t", ChangeColumn: "Version", CutNumbers: 2}
	empty := inspect(t, open(t, o)).Cut
	for i := 1; i <= 6; i++ {
		mustExec(t, db, "INSERT INTO t VALUES (?, ?, ?)", i, 10*i, time.Now().UTC().Add(time.Duration(i-6)*24*time.Hour).Format(time.RFC3339))
	}
	if got := changed(t, o, empty); got != "1 2 3 4 5 6" {
		t.Errorf("since the cut of an empty table: %s", got)
	}
	cut := inspect(t, open(t, o)).Cut
	mustExec(t, db, "UPDATE t SET version = 61 WHERE id = 2")
	mustExec(t, db, "UPDATE t SET version = NULL WHERE id = 4")
	// Written before the cut and seen after it, and within the margin.
	mustExec(t, db, "UPDATE t SET version = 58 WHERE id = 3")
	mustExec(t, db, "UPDATE t SET version = 57 WHERE id = 1")
	if got := changed(t, o, cut); got != "2 3 4 6" {
		t.Errorf("changed since %s: %s", cut, got)
	}
	o.ChangeColumn = "at"
	cut = inspect(t, open(t, o)).Cut
	if got := changed(t, o, cut); got != "6" && got != "5 6" {
		t.Errorf("changed since %s: %s", cut, got)
	}
	s := open(t, o)
	for _, bad := range []string{"", "x", `{"column":"version","from":"i:1"}`, `{"column":"at","from":"q"}`} {
		for _, err := range s.ReadSince(t.Context(), bad, nil) {
			if err == nil {
				t.Errorf("the cut %q was accepted", bad)
			}
		}
	}
}

// TestSnapshotOfReads: Read gives the rows of the snapshot that Inspect began,
// ReadSince those of now.
func TestSnapshotOfReads(t *testing.T) {
	path, db := database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, version INTEGER)", "INSERT INTO t VALUES (1, 1)")
	s := open(t, sqldb.Options{DSN: path, Table: "t", ChangeColumn: "version"})
	cut := inspect(t, s).Cut
	mustExec(t, db, "INSERT INTO t VALUES (2, 2)")
	count := func(p source.Page, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		return len(p.Records)
	}
	for p, err := range s.Read(t.Context(), nil) {
		if n := count(p, err); n != 1 {
			t.Errorf("Read gave %d rows", n)
		}
	}
	for p, err := range s.ReadSince(t.Context(), cut, nil) {
		if n := count(p, err); n != 2 {
			t.Errorf("ReadSince gave %d rows", n)
		}
	}
}
