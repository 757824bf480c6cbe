package sqldb_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/sqldb"
)

func isRestart(err error) bool { return errors.Is(err, source.ErrRestart) }

func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, wanted one with %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

// TestSentences: what is wrong is said in a sentence, with the way out.
func TestSentences(t *testing.T) {
	path, _ := database(t, "CREATE TABLE orders (id INTEGER PRIMARY KEY, Total REAL)", "CREATE TABLE keyless (a TEXT, b TEXT UNIQUE)",
		"CREATE VIEW seen AS SELECT * FROM orders")
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    sqldb.Options
		says []string
	}{
		{sqldb.Options{DSN: path, Table: "ordres"}, []string{"there is no table ordres", "did you mean orders?"}},
		{sqldb.Options{DSN: path, Table: "other.orders"}, []string{"there is no table other.orders"}},
		{sqldb.Options{DSN: path, Table: "keyless"}, []string{"keyless has no primary key", "give key columns", "such as rowid"}},
		{sqldb.Options{DSN: path, Table: "seen"}, []string{"seen has no primary key", "give key columns"}},
		{sqldb.Options{DSN: path, Table: "orders", KeyColumns: []string{"ident"}}, []string{"orders has no column ident", "id and Total"}},
		{sqldb.Options{DSN: path, Table: "orders", KeyColumns: []string{"id", "ID"}}, []string{"id is given twice"}},
		{sqldb.Options{DSN: path, Table: "orders", ChangeColumn: "tota"}, []string{"did you mean Total?"}},
		{sqldb.Options{DSN: path, Table: "orders", Where: "colour = 1"}, []string{"SQLite says", "colour"}},
		{sqldb.Options{DSN: path, Query: "SELECT 1 FROM", KeyColumns: []string{"id"}}, []string{"SQLite says", "syntax"}},
		{sqldb.Options{DSN: path + ".none", Table: "orders"}, []string{"there is no file"}},
		{sqldb.Options{DSN: t.TempDir(), Table: "orders"}, []string{"is a folder"}},
		{sqldb.Options{DSN: garbage, Table: "orders"}, []string{"is not a database of SQLite, or it is encrypted"}},
	} {
		_, err := open(t, c.o).Inspect(t.Context())
		wantText(t, err, c.says...)
	}
	if _, err := os.Stat(path + ".none"); err == nil {
		t.Error("a missing database was made")
	}
}

// TestOptions: options that make no sense are refused before anything is done.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    sqldb.Options
		says string
	}{
		{sqldb.Options{Table: "t"}, "no database"},
		{sqldb.Options{DSN: "x"}, "a table or a query"},
		{sqldb.Options{DSN: "x", Table: "t", Query: "SELECT 1"}, "not both"},
		{sqldb.Options{DSN: "x", Query: "SELECT 1"}, "needs key columns"},
		{sqldb.Options{DSN: "x", Query: "SELECT 1", KeyColumns: []string{"a"}, Where: "1"}, "put it into the query"},
		{sqldb.Options{DSN: "x", Table: "t", PageRows: 50_001}, "1 to 50000 rows"},
		{sqldb.Options{DSN: "x", Table: "t", CutMargin: -1}, "not negative"},
	} {
		_, err := sqldb.SQLite(c.o)
		wantText(t, err, c.says)
	}
}

// TestNoSecrets: a DSN that cannot be read is not repeated.
func TestNoSecrets(t *testing.T) {
	for _, open := range []func(sqldb.Options) (*sqldb.Source, error){sqldb.Postgres, sqldb.MySQL, sqldb.SQLServer} {
		for _, dsn := range []string{"postgres://u:hunter2@ho st:1/x", "mysql://u:hunter2@host:x/y", "u:hunter2@host", "sqlserver://u:hunter2@:bad", "host=a password=hunter2 port=x"} {
			s, err := open(sqldb.Options{DSN: dsn, Table: "t", RetryFor: 1})
			if err == nil {
				s.Close()
				continue
			}
			if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "it looks like") {
				t.Errorf("%s: %v", dsn, err)
			}
		}
	}
}

// TestUnreachable: a database that is not there is named without its password.
func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		open func(sqldb.Options) (*sqldb.Source, error)
		dsn  string
	}{
		{sqldb.Postgres, "postgres://u:hunter2@127.0.0.1:1/db?sslmode=disable"},
		{sqldb.MySQL, "mysql://u:hunter2@127.0.0.1:1/db"},
		{sqldb.SQLServer, "sqlserver://u:hunter2@127.0.0.1:1?database=db"},
	} {
		s, err := c.open(sqldb.Options{DSN: c.dsn, Table: "t"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Inspect(t.Context())
		wantText(t, err, "127.0.0.1:1", "check host and port")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in %q", err)
		}
		s.Close()
	}
}

// TestInfo: a table is described, and the file is only read.
func TestInfo(t *testing.T) {
	path, _ := database(t, `CREATE TABLE "Order Lines" (tenant TEXT COLLATE NOCASE, nr INTEGER, note TEXT, PRIMARY KEY (tenant, nr))`,
		`INSERT INTO "Order Lines" VALUES ('acme', 1, ''), ('acme', 2, NULL)`)
	info := inspect(t, open(t, sqldb.Options{DSN: path, Table: "order lines", Where: "nr > 1 -- only these", Count: true}))
	if info.Kind != "sqlite" || !info.Consistent || info.Estimate != 1 || info.KeyTemplate != "Order Lines/{tenant}/{nr:019d}" || info.Cut != "" {
		t.Errorf("%+v", info)
	}
	if !slices.Equal(info.Fields, []string{"tenant", "nr", "note"}) || !slices.Equal(info.KeyFields, []string{"tenant", "nr"}) {
		t.Errorf("%q, key %q", info.Fields, info.KeyFields)
	}
	if !strings.HasPrefix(info.Identity, "sqlite "+path+" main.Order Lines where ") || strings.Contains(info.Identity, "only") {
		t.Errorf("identity %q", info.Identity)
	}
	if !strings.Contains(strings.Join(info.Notes, " "), "No index gives the order of tenant and nr") {
		t.Errorf("notes %q", info.Notes)
	}
	records, _ := readAll(t, sqldb.Options{DSN: path, Table: "Order Lines", PageRows: 1}, true)
	if len(records) != 2 || records[0].Origin != "Order Lines (tenant=acme, nr=1)" {
		t.Fatalf("%+v", records)
	}
	if a, b := field(t, records[0], "note"), field(t, records[1], "note"); a != "" || b != nil {
		t.Errorf("an empty text is %v, NULL is %v", a, b)
	}
}

// TestRowid: a table without a key can be read by the number of its rows.
func TestRowid(t *testing.T) {
	path, _ := database(t, "CREATE TABLE t (a TEXT)", "INSERT INTO t VALUES ('x'), ('x'), ('y')")
	records, pages := readAll(t, sqldb.Options{DSN: path, Table: "t", KeyColumns: []string{"rowid"}, PageRows: 1}, true)
	if len(records) != 3 || len(pages) != 3 || field(t, records[2], "rowid") != int64(3) {
		t.Errorf("%+v in %d pages", records, len(pages))
	}
}

// TestOddFileNames: a file may be called anything, and be a URI.
func TestOddFileNames(t *testing.T) {
	path, db := database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"odd #1?x=y&mode=rwc %41.db", "ä b.db"} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, dsn := range []string{name, "file:" + (&url.URL{Path: name}).EscapedPath() + "?mode=rwc"} {
			if records, _ := readAll(t, sqldb.Options{DSN: dsn, Table: "main.t"}, false); len(records) != 1 {
				t.Errorf("%s gave %d rows", dsn, len(records))
			}
		}
	}
}
