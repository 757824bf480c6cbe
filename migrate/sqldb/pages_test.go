package sqldb_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/sqldb"
)

// database makes a file of SQLite with the statements run in it.
func database(t testing.TB, statements ...string) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, s := range statements {
		mustExec(t, db, s)
	}
	return path, db
}

func mustExec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func open(t testing.TB, o sqldb.Options) *sqldb.Source {
	t.Helper()
	s, err := sqldb.SQLite(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func inspect(t testing.TB, s *sqldb.Source) source.Info {
	t.Helper()
	info, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// readAll reads all pages, each from the position of the last by a source of
// its own if anew is set.
func readAll(t testing.TB, o sqldb.Options, anew bool) (records []source.Record, pages []source.Page) {
	t.Helper()
	s := open(t, o)
	var from source.Position
	for {
		ended := true
		for p, err := range s.Read(t.Context(), from) {
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, p)
			records = append(records, p.Records...)
			if from = p.Next; from != nil && anew {
				ended = false
				break
			}
		}
		if ended {
			return records, pages
		}
		s.Close()
		s = open(t, o)
	}
}

func field(t testing.TB, r source.Record, name string) any {
	t.Helper()
	v, ok := r.Get(name)
	if !ok {
		t.Fatalf("%s has no field %s", r.Origin, name)
	}
	return v
}

// values are what a key column may hold, small enough to collide, and with
// letters whose order differs between collations.
var values = rapid.OneOf(
	rapid.Just[any](nil),
	rapid.Map(rapid.Int64Range(-3, 3), func(n int64) any { return n }),
	rapid.SampledFrom([]any{int64(math.MinInt64), int64(math.MaxInt64), 0.5, 1.0, 2.0, math.Copysign(0, -1), -1e300, math.Inf(1), 9007199254740993.0}),
	rapid.SampledFrom([]any{"", "a", "A", "b", "B", "a ", "é", "É", "Z", "z", "ß", "1", "-2", "NULL", "\x00"}),
	rapid.SampledFrom([]any{[]byte{}, []byte("a"), []byte{0xff, 0}}),
)

// TestEveryRowOnce: whatever the keys are, composite, of mixed types, NULL,
// equal, or equal but for their case, every row comes exactly once, in one
// enumeration as in one that is taken up again at each page.
func TestEveryRowOnce(t *testing.T) {
	path, db := database(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		table := fmt.Sprintf("t%d", n)
		columns := rapid.IntRange(1, 3).Draw(rt, "columns")
		definition, names := "", []string{}
		for i := range columns {
			kind := rapid.SampledFrom([]string{"", "INTEGER", "TEXT", "TEXT COLLATE NOCASE", "REAL", "NUMERIC", "BLOB", "DATETIME", "BOOLEAN"}).Draw(rt, "type")
			names = append(names, fmt.Sprintf("k%d", i))
			definition += fmt.Sprintf("k%d %s, ", i, kind)
		}
		mustExec(t, db, fmt.Sprintf("CREATE TABLE %s (%sid INTEGER)", table, definition))
		rows := rapid.IntRange(0, 40).Draw(rt, "rows")
		for id := range rows {
			args := []any{id}
			for range columns {
				args = append(args, values.Draw(rt, "value"))
			}
			mustExec(t, db, fmt.Sprintf("INSERT INTO %s (id, %s) VALUES (?%s)", table, joined(names), marks(columns)), args...)
		}
		if rapid.Bool().Draw(rt, "index") {
			mustExec(t, db, fmt.Sprintf("CREATE INDEX i%s ON %s (%s)", table, table, joined(names)))
		}
		o := sqldb.Options{DSN: path, Table: table, KeyColumns: names, PageRows: rapid.IntRange(1, 12).Draw(rt, "page")}
		if rapid.Bool().Draw(rt, "query") {
			o.Table, o.Query = "", "SELECT * FROM "+table
		}
		once(rt, t, o, rapid.Bool().Draw(rt, "anew"), rows)
		mustExec(t, db, "DROP TABLE "+table)
	})
}

func once(rt *rapid.T, t *testing.T, o sqldb.Options, anew bool, rows int) {
	records, pages := readAll(t, o, anew)
	var ids []int64
	for _, r := range records {
		ids = append(ids, field(t, r, "id").(int64))
	}
	slices.Sort(ids)
	for i := range rows {
		if i >= len(ids) || ids[i] != int64(i) {
			rt.Fatalf("of %d rows: %v", rows, ids)
		}
	}
	if len(ids) != rows {
		rt.Fatalf("of %d rows: %v", rows, ids)
	}
	for i, p := range pages {
		if (p.Next == nil) != (i == len(pages)-1) {
			rt.Fatalf("page %d of %d has the position %s", i, len(pages), p.Next)
		}
	}
}

func joined(names []string) string {
	out := ""
	for i, n := range names {
		if i > 0 {
			out += ", "
		}
		out += n
	}
	return out
}

func marks(n int) string {
	out := ""
	for range n {
		out += ", ?"
	}
	return out
}

// TestUniqueKeysOnce is the same over the indexes of primary keys, where
// statements are limited to a page. The first column of the key alone leaves
// rows equal.
func TestUniqueKeysOnce(t *testing.T) {
	path, db := database(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		table := fmt.Sprintf("t%d", n)
		extra := rapid.SampledFrom([]string{"", " WITHOUT ROWID"}).Draw(rt, "rowid")
		collation := rapid.SampledFrom([]string{"", " COLLATE NOCASE", " COLLATE RTRIM"}).Draw(rt, "collation")
		kind := rapid.SampledFrom([]string{"TEXT", "", "INTEGER"}).Draw(rt, "type")
		mustExec(t, db, fmt.Sprintf("CREATE TABLE %s (a %s%s, b, id INTEGER, PRIMARY KEY (a, b))%s", table, kind, collation, extra))
		rows := 0
		for range rapid.IntRange(0, 40).Draw(rt, "rows") {
			res, err := db.Exec(fmt.Sprintf("INSERT OR IGNORE INTO %s VALUES (?, ?, ?)", table), values.Draw(rt, "a"), values.Draw(rt, "b"), rows)
			if err == nil {
				added, _ := res.RowsAffected()
				rows += int(added)
			}
		}
		o := sqldb.Options{DSN: path, Table: table, PageRows: rapid.IntRange(1, 12).Draw(rt, "page")}
		o.KeyColumns = []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(rt, "keys")]
		once(rt, t, o, rapid.Bool().Draw(rt, "anew"), rows)
		mustExec(t, db, "DROP TABLE "+table)
	})
}

// TestConcurrentInserts: rows that are inserted between pages, even before the
// position, and deleted, change nothing of a snapshot; and an enumeration that
// is taken up in a new one has each row that was there all the time once.
func TestConcurrentInserts(t *testing.T) {
	for _, anew := range []bool{false, true} {
		path, db := database(t, "CREATE TABLE t (a TEXT COLLATE NOCASE, n INTEGER, PRIMARY KEY (a, n))")
		for i := range 50 {
			mustExec(t, db, "INSERT INTO t VALUES (?, ?)", string(rune('a'+i%5)), i)
		}
		s := open(t, sqldb.Options{DSN: path, Table: "t", PageRows: 7})
		var from source.Position
		seen := map[int64]int{}
		inserted := 0
		for more := true; more; {
			more = false
			for p, err := range s.Read(t.Context(), from) {
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range p.Records {
					seen[field(t, r, "n").(int64)]++
				}
				mustExec(t, db, "INSERT INTO t VALUES (?, ?)", string(rune('A'+inserted%5)), 1000+inserted)
				inserted++
				if from = p.Next; from != nil && anew {
					more = true
					break
				}
			}
			s.Close()
			s = open(t, sqldb.Options{DSN: path, Table: "t", PageRows: 7})
		}
		for i := range int64(50) {
			if seen[i] != 1 {
				t.Errorf("anew %t: row %d came %d times", anew, i, seen[i])
			}
		}
		if !anew && len(seen) != 50 {
			t.Errorf("a snapshot of 50 rows gave %d", len(seen))
		}
	}
}

// TestOrderIsOfBytes: keys come in the order of bytes, not of a collation.
func TestOrderIsOfBytes(t *testing.T) {
	path, _ := database(t, "CREATE TABLE t (a TEXT COLLATE NOCASE, b INTEGER, PRIMARY KEY (a, b))",
		"INSERT INTO t VALUES ('b', 1), ('B', 2), ('a', 1), ('A', 2), ('é', 1), ('z', 1)")
	records, _ := readAll(t, sqldb.Options{DSN: path, Table: "t", PageRows: 2}, true)
	var got []string
	for _, r := range records {
		got = append(got, field(t, r, "a").(string))
	}
	if !slices.IsSortedFunc(got, cmp.Compare[string]) || len(got) != 6 {
		t.Errorf("keys came as %q", got)
	}
}

// TestEqualRows: many rows of one key come in one page, and too many are
// refused, whether an index gives them or they are sorted.
func TestEqualRows(t *testing.T) {
	for _, index := range []string{"", ", PRIMARY KEY (k, id)"} {
		path, db := database(t, "CREATE TABLE t (k INTEGER, id INTEGER"+index+")")
		fill := "WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2) INSERT INTO t SELECT NULL, i FROM n"
		mustExec(t, db, fill, 1, 3000)
		mustExec(t, db, "INSERT INTO t VALUES (1, 0), (2, 0), (2, 1)")
		o := sqldb.Options{DSN: path, Table: "t", KeyColumns: []string{"k"}, PageRows: 10}
		records, pages := readAll(t, o, true)
		if len(records) != 3003 || len(pages[0].Records) != 3000 {
			t.Errorf("%q: %d rows, %d of them in the first page", index, len(records), len(pages[0].Records))
		}
		mustExec(t, db, fill, 3001, 53_000)
		var last error
		for _, err := range open(t, o).Read(t.Context(), nil) {
			last = err
		}
		wantText(t, last, "more than 50000 rows", "have the same k", "give key columns that identify a row")
	}
}

// TestEqualNumbers: what the engine takes for equal is never parted by a page.
func TestEqualNumbers(t *testing.T) {
	path, _ := database(t, "CREATE TABLE t (k, id INTEGER)", "INSERT INTO t VALUES (1, 0), (1.0, 1), (0, 2), (-0.0, 3), (1, 4), (2.5, 5)")
	records, pages := readAll(t, sqldb.Options{DSN: path, Table: "t", KeyColumns: []string{"k"}, PageRows: 1}, true)
	if len(records) != 6 || len(pages) != 3 {
		t.Errorf("%d rows of 6 in %d pages of 3", len(records), len(pages))
	}
}

// TestPositionOfAnother: a position serves no other order, and nothing else.
func TestPositionOfAnother(t *testing.T) {
	path, _ := database(t, "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER UNIQUE)")
	for _, from := range []string{`{"key":["i:1"],"of":["b"]}`, `{"key":[],"of":["a"]}`, `{"key":["q:1"],"of":["a"]}`, `{"key":["i:x"],"of":["a"]}`, `[]`, `7`} {
		s := open(t, sqldb.Options{DSN: path, Table: "t"})
		for _, err := range s.Read(t.Context(), json.RawMessage(from)) {
			if err == nil {
				t.Errorf("the position %s was accepted", from)
			} else if !isRestart(err) {
				t.Errorf("%s: %v", from, err)
			}
		}
	}
}

// TestCancelled: a reader that is told to stop says so.
func TestCancelled(t *testing.T) {
	path, db := database(t, "CREATE TABLE t (a INTEGER PRIMARY KEY)")
	mustExec(t, db, "INSERT INTO t VALUES (1), (2), (3)")
	s := open(t, sqldb.Options{DSN: path, Table: "t", PageRows: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range s.Read(ctx, nil) {
		cancel()
		last = err
	}
	if last == nil || ctx.Err() == nil {
		t.Errorf("a cancelled enumeration ended with %v", last)
	}
}
