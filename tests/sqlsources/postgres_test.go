package sqlsources

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/sqldb"
	"github.com/latticekv/lattice/tests/engines"
)

// TestPostgresKeys: each row comes once, whatever the types, the collation and
// the NULLs of its key.
func TestPostgresKeys(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	pg := opener(sqldb.Postgres)
	exec(t, db, "CREATE EXTENSION IF NOT EXISTS citext",
		"CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
		"CREATE TYPE mood AS ENUM ('sad', 'ok', 'Happy')", "CREATE DOMAIN code AS text CHECK (value <> 'never')")
	words := quoted([]string{"", "a", "A", "b", "B", "a ", "é", "É", "z", "Z", "ß", "ss", "10", "9", "_", "日本", "\U0001F600"})
	numbers := []string{"-9223372036854775808", "-1", "0", "1", "9223372036854775807", "NULL"}
	for i, c := range []struct {
		types         string
		first, second []string
		key           string
	}{
		{"%s text NOT NULL, %s bigint", words, numbers, ""},
		{"%s text COLLATE nocase, %s bigint", words, numbers, ""},
		{"%s text COLLATE \"C\" NOT NULL, %s bigint NOT NULL", words, numbers[:5], "PRIMARY KEY"},
		{"%s varchar(20) NOT NULL, %s code NOT NULL", words, words, "PRIMARY KEY"},
		{"%s citext, %s integer", words, []string{"1", "NULL"}, ""},
		{"%s char(4), %s integer", quoted([]string{"a", "A", "b", ""}), []string{"1", "2", "NULL"}, "UNIQUE"},
		{"%s numeric, %s numeric(20,4)", []string{"1e-30", "-5", "1e300", "0.10", "'NaN'", "NULL", "9007199254740993"}, []string{"1.5", "-1.2500", "NULL"}, "UNIQUE"},
		{"%s real, %s double precision", []string{"0.1", "1e-40", "3.4028235e38", "'NaN'", "'-Infinity'", "16777217"}, []string{"0.1", "1e-300", "'NaN'", "'Infinity'", "NULL"}, "UNIQUE"},
		{"%s timestamptz, %s date", []string{"'infinity'", "'-infinity'", "'0044-03-15 BC'", "'294276-12-31 23:59:59.999999+00'", "'2024-01-01 00:00:00.000001+05:30'", "NULL"},
			[]string{"'infinity'", "'4713-01-01 BC'", "'5874897-12-31'", "'2024-02-29'"}, "UNIQUE"},
		{"%s timestamp, %s time", []string{"'infinity'", "'0001-01-01 BC'", "'2024-01-01 00:00:00.123456'"}, []string{"'00:00'", "'24:00'", "'23:59:59.999999'", "NULL"}, "UNIQUE"},
		{"%s uuid, %s mood", []string{"'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "NULL"}, []string{"'sad'", "'ok'", "'Happy'", "NULL"}, "UNIQUE"},
		{"%s bytea, %s boolean", []string{`'\x'`, `'\x00'`, `'\x00ff'`, `'\xff'`, "NULL"}, []string{"true", "false", "NULL"}, "UNIQUE"},
		{"%s interval, %s text[]", []string{"'1 day'", "'-3 mons'", "'1 year 2.5 seconds'"}, []string{"'{}'", "'{a,NULL,\"b c\"}'", "NULL"}, "UNIQUE"},
		{"%s inet, %s bit(3)", []string{"'10.0.0.1'", "'::1/64'"}, []string{"B'000'", "B'101'", "NULL"}, "UNIQUE"},
	} {
		table := fmt.Sprintf("keys%d", i)
		exec(t, db, fmt.Sprintf("CREATE TABLE %s (id bigint NOT NULL, "+c.types+")", table, "a", `"Key B"`))
		values, rows := product(c.first, c.second)
		exec(t, db, fmt.Sprintf("INSERT INTO %s VALUES %s", table, values))
		if c.key != "" {
			exec(t, db, fmt.Sprintf(`ALTER TABLE %s ADD %s (a, "Key B")`, table, c.key))
		}
		o := sqldb.Options{DSN: server.DSN, Table: table, KeyColumns: []string{"a", "Key B"}}
		pg.wantOnce(t, o, rows)
		o.Query, o.Table = "SELECT * FROM "+table, ""
		pg.wantOnce(t, o, rows)
		if t.Failed() {
			t.Fatalf("the table is (%s)", c.types)
		}
	}
	exec(t, db, "CREATE TABLE parts (id bigint PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (100)", "INSERT INTO parts SELECT * FROM generate_series(0, 19)",
		"CREATE VIEW seen AS SELECT * FROM parts", "CREATE MATERIALIZED VIEW kept AS SELECT * FROM parts")
	for _, table := range []string{"parts", "seen", "kept"} {
		pg.wantOnce(t, sqldb.Options{DSN: server.DSN, Table: table, KeyColumns: []string{"id"}}, 20)
	}
	t.Run("paging", func(t *testing.T) { indexedPages(t, pg, server) })
}

// indexedPages finds that statements of one page are used where an index gives
// the order, and one statement where none does.
func indexedPages(t *testing.T, pg opener, server engines.Postgres) {
	for table, sorted := range map[string]bool{"keys0": true, "keys2": false, "keys3": true} {
		info := pg.inspect(t, sqldb.Options{DSN: server.DSN, Table: table, KeyColumns: []string{"a", "Key B"}})
		if got := strings.Contains(strings.Join(info.Notes, " "), "No index gives the order"); got != sorted {
			t.Errorf("%s is sorted: %t", table, got)
		}
	}
}

// TestPostgresValues: values come exactly, or as text, or not at all with a
// reason, and what is lost is said before.
func TestPostgresValues(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	pg := opener(sqldb.Postgres)
	exec(t, db, `CREATE TYPE pair AS (x int, y text)`, `CREATE TABLE v (id int PRIMARY KEY, i2 int2, i8 int8, o oid, f4 float4, f8 float8, n numeric, n2 numeric(40,2),
		m money, b bool, t text, e text, c char(5), x bytea, xe bytea, u uuid, j json, jb jsonb, d date, ts timestamp, tz timestamptz, tm time, tmz timetz,
		iv interval, bits bit(5), arr int[], p pair, r int4range, pt point, ip inet, nothing text)`)
	exec(t, db, `INSERT INTO v VALUES (1, -32768, 9223372036854775807, 4294967295, 0.1, 'NaN', 123456789012345678901234567890.12345678901234567890, 1.5,
		'-92233720368547758.08', true, 'ä', '', 'ab', '\x00ff', '', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{"a": 1.0, "a":2}', '{"b":1e2}', '0044-03-15 BC',
		'2024-01-02 03:04:05.123456', '2024-01-02 03:04:05.123456+02', '24:00', '12:00:00+05:30', '1 year 2 mons -3 days 04:05:06.5', B'00101',
		'{1,NULL,3}', '(1,"a b")', '[1,5)', '(1,2)', '::1', NULL)`)
	want := map[string]any{
		"i2": int64(math.MinInt16), "i8": int64(math.MaxInt64), "o": int64(math.MaxUint32), "f4": 0.1,
		"n": source.Number("123456789012345678901234567890.12345678901234567890"), "n2": source.Number("1.50"), "m": source.Number("-92233720368547758.08"),
		"b": true, "t": "ä", "e": "", "c": "ab", "x": []byte{0, 255}, "xe": []byte{}, "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
		"j": json.RawMessage(`{"a": 1.0, "a":2}`), "jb": json.RawMessage(`{"b": 100}`), "d": "0044-03-15 BC",
		"ts": "2024-01-02 03:04:05.123456", "tz": time.Date(2024, 1, 2, 1, 4, 5, 123456000, time.UTC), "tm": "24:00:00", "tmz": "12:00:00+05:30",
		"iv": "P1Y2M-3DT4H5M6.5S", "bits": "00101", "arr": "{1,NULL,3}", "p": `(1,"a b")`, "r": "[1,5)", "pt": "(1,2)", "ip": "::1", "nothing": nil,
	}
	o := sqldb.Options{DSN: server.DSN, Table: "v"}
	pg.wantValues(t, o, want)
	info := pg.inspect(t, o)
	lossy := strings.Join(info.Lossy, "\n")
	wantSays(t, lossy, "Column arr (integer[])", "Column p (pair)", "Column r (int4range)", "Column pt (point)", "Column c (character(5))")
	if strings.Count(lossy, "\n") != 4 {
		t.Errorf("lossy:\n%s", lossy)
	}
	if info.KeyTemplate != "v/{id:019d}" || !info.Consistent || !strings.HasPrefix(info.Version, "PostgreSQL ") {
		t.Errorf("%+v", info)
	}
	exec(t, db, "TRUNCATE v", `INSERT INTO v (id, n, f4, f8, d, ts, tz) VALUES (2, 'NaN', '-Infinity', 5e-324, 'infinity', '-infinity', '294276-12-31 23:59:59+00')`)
	pg.wantValues(t, o, map[string]any{
		"f4": math.Inf(-1), "f8": 5e-324, "d": "infinity", "ts": "-infinity", "tz": "294276-12-31 23:59:59+00",
	})
	records, _ := pg.read(t, o, 1)
	if v, _ := records[0].Get("n"); !math.IsNaN(v.(float64)) {
		t.Errorf("NaN came as %v", v)
	}
}

// TestPostgresChanges: rows changed since a cut come, whichever way the column
// tells.
func TestPostgresChanges(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	pg := opener(sqldb.Postgres)
	exec(t, db, `CREATE TABLE c (id int PRIMARY KEY, tz timestamptz, ts timestamp, d date, n bigint)`,
		`INSERT INTO c SELECT i, now() - i * interval '2 days', now() - i * interval '2 days', now() - i * interval '2 days', 10000 - i * 1000 FROM generate_series(1, 5) i`)
	for _, column := range []string{"tz", "ts", "d", "n"} {
		exec(t, db, "UPDATE c SET id = id")
		o := sqldb.Options{DSN: server.DSN, Table: "c", ChangeColumn: column, CutNumbers: 10, PageRows: 1}
		cut := pg.inspect(t, o).Cut
		exec(t, db, fmt.Sprintf("INSERT INTO c (id, %[1]s) SELECT 100, max(%[1]s) + (SELECT max(%[1]s) - min(%[1]s) FROM c) FROM c", column), "INSERT INTO c (id) VALUES (101)")
		ids := map[int64]bool{}
		for p, err := range pg.open(t, o).ReadSince(t.Context(), cut, nil) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Records {
				v, _ := r.Get("id")
				ids[v.(int64)] = true
			}
		}
		if !ids[100] || !ids[101] || ids[5] {
			t.Errorf("since %s came %v", cut, ids)
		}
		exec(t, db, "DELETE FROM c WHERE id >= 100")
	}
	wantSays(t, pg.refused(t, sqldb.Options{DSN: server.DSN, Table: "c", ChangeColumn: "idd"}), "did you mean id?")
}

// TestPostgresSnapshot: one snapshot is read whatever is written meanwhile, and
// a connection that the server ends is made anew, with a note.
func TestPostgresSnapshot(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	pg := opener(sqldb.Postgres)
	exec(t, db, "CREATE TABLE s (id bigint PRIMARY KEY, k text)", "INSERT INTO s SELECT i, 'k' || i FROM generate_series(0, 99) i")
	for _, c := range []struct {
		key string
		end bool
	}{{"id", false}, {"k", false}, {"id", true}, {"k", true}} {
		var notes []string
		s := pg.open(t, sqldb.Options{DSN: server.DSN, Table: "s", KeyColumns: []string{c.key}, PageRows: 9, OnNote: func(n string) { notes = append(notes, n) }})
		seen := map[int64]int{}
		pages := 0
		for p, err := range s.Read(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Records {
				v, _ := r.Get("id")
				seen[v.(int64)]++
			}
			pages++
			exec(t, db, fmt.Sprintf("INSERT INTO s VALUES (%d, 'z%d')", 1000+pages, pages))
			if c.end && pages == 3 {
				exec(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lattice migrate'")
			}
		}
		for id := range int64(100) {
			if seen[id] != 1 {
				t.Errorf("by %s, ended %t: row %d came %d times", c.key, c.end, id, seen[id])
			}
		}
		if !c.end && len(seen) != 100 {
			t.Errorf("by %s: %d rows of a snapshot of 100", c.key, len(seen))
		}
		// A statement that had sent all of its rows is not hurt by the end.
		if c.end && c.key == "id" && (len(notes) != 1 || !strings.Contains(notes[0], "new snapshot")) || !c.end && len(notes) > 0 {
			t.Errorf("by %s, ended %t: notes %q", c.key, c.end, notes)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		exec(t, db, "DELETE FROM s WHERE id >= 1000")
	}
}

// TestPostgresSentences: errors say what is wrong and what to do, without the
// password.
func TestPostgresSentences(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	pg := opener(sqldb.Postgres)
	exec(t, db, "CREATE SCHEMA shop", `CREATE TABLE shop."Orders" (id int PRIMARY KEY, doc json)`, "CREATE TABLE people (name text)",
		"CREATE TABLE secret (id int PRIMARY KEY)", "CREATE ROLE guest LOGIN PASSWORD 'guestword'",
		"CREATE TABLE rows_of (id int PRIMARY KEY)", "INSERT INTO rows_of VALUES (1), (2)", "ALTER TABLE rows_of ENABLE ROW LEVEL SECURITY",
		"CREATE POLICY p ON rows_of USING (id = 1)", "GRANT SELECT ON rows_of TO guest")
	guest := strings.Replace(server.DSN, server.User+":"+server.Password, "guest:guestword", 1)
	for _, c := range []struct {
		o    sqldb.Options
		says []string
	}{
		{sqldb.Options{DSN: server.DSN, Table: "orders"}, []string{"there is no table orders", "did you mean shop.Orders?"}},
		{sqldb.Options{DSN: server.DSN, Table: "shop.order"}, []string{"did you mean shop.Orders?"}},
		{sqldb.Options{DSN: server.DSN, Table: "people"}, []string{"no primary key", "give key columns"}},
		{sqldb.Options{DSN: server.DSN, Table: "shop.Orders", KeyColumns: []string{"doc"}}, []string{"cannot be ordered by json"}},
		{sqldb.Options{DSN: server.DSN, Query: "SELECT id, id FROM secret", KeyColumns: []string{"id"}}, []string{"two columns", "called id"}},
		{sqldb.Options{DSN: server.DSN, Table: "people", KeyColumns: []string{"name"}, Where: "nme = ''"}, []string{"PostgreSQL says", "nme"}},
		{sqldb.Options{DSN: strings.Replace(server.DSN, server.Password, "wrong", 1), Table: "people"}, []string{"does not accept the password of user " + server.User}},
		{sqldb.Options{DSN: guest, Table: "secret"}, []string{"user guest lacks a permission", "GRANT SELECT"}},
		{sqldb.Options{DSN: strings.Replace(server.DSN, "/"+server.Database+"?", "/nowhere?", 1), Table: "people"}, []string{"there is no database nowhere"}},
		{sqldb.Options{DSN: strings.Replace(server.DSN, "sslmode=disable", "sslmode=require", 1), Table: "people"}, []string{"does not speak TLS", "sslmode=disable"}},
	} {
		got := pg.refused(t, c.o)
		wantSays(t, got, c.says...)
		for _, secret := range []string{server.Password, "guestword", "wrong"} {
			if strings.Contains(got, secret) {
				t.Errorf("%q holds a password", got)
			}
		}
	}
	o := sqldb.Options{DSN: guest, Table: "rows_of", Count: true}
	if info := pg.inspect(t, o); info.Estimate != 1 || !strings.Contains(strings.Join(info.Notes, " "), "Row-level security hides rows") || strings.Contains(info.Identity, "guestword") {
		t.Errorf("%+v", info)
	}
	pg.inspect(t, sqldb.Options{DSN: server.DSN, Table: `shop."Orders"`})
	pg.inspect(t, sqldb.Options{DSN: server.DSN, Table: "SHOP.orders"})
}
