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

// TestMariaDBKeys: each row comes once, whatever the types, the collation and
// the NULLs of its key.
func TestMariaDBKeys(t *testing.T) {
	server := engines.StartMariaDB(t)
	db := server.Open(t)
	maria := opener(sqldb.MySQL)
	words := quoted([]string{"", "a", "A", "b", "B", "a ", "é", "É", "z", "Z", "ß", "ss", "10", "9", "_", "日本", "\U0001F600", `\`})
	numbers := []string{"-9223372036854775808", "-1", "0", "1", "9223372036854775807", "NULL"}
	for i, c := range []struct {
		types         string
		first, second []string
		key           string
	}{
		{"a VARCHAR(20) COLLATE utf8mb4_general_ci, `Key B` BIGINT", words, numbers, ""},
		{"a VARCHAR(20) COLLATE utf8mb4_bin NOT NULL, `Key B` BIGINT", words, numbers, ""},
		{"a VARCHAR(20) COLLATE utf8mb4_nopad_bin NOT NULL, `Key B` BIGINT NOT NULL", words, numbers[:5], "PRIMARY KEY"},
		{"a VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL, `Key B` CHAR(3) CHARACTER SET latin1 NOT NULL", quoted([]string{"a", "b", "10"}), quoted([]string{"é", "x", "Z", "ß"}), "PRIMARY KEY"},
		{"a BIGINT UNSIGNED, `Key B` DECIMAL(65,2)", []string{"0", "9223372036854775808", "18446744073709551615", "NULL"},
			[]string{"-1.5", "999999999999999999999999999999999999999999999999999999999999999.99", "999999999999999999999999999999999999999999999999999999999999999.98", "NULL"}, "UNIQUE"},
		{"a FLOAT, `Key B` DOUBLE", []string{"0.1", "1e-38", "16777217", "3.4e38", "NULL"}, []string{"0.1", "1e-300", "-1.7e308", "NULL"}, "UNIQUE"},
		{"a DATETIME(6), `Key B` DATE", []string{"'0000-00-00 00:00:00'", "'2024-00-00 00:00:00'", "'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "NULL"},
			[]string{"'0000-00-00'", "'2024-01-00'", "'2024-02-29'", "NULL"}, "UNIQUE"},
		{"a TIMESTAMP(3) NULL, `Key B` TIME(6)", []string{"0", "'2024-01-01 00:00:00.001'", "'2038-01-19 03:14:07.999'", "NULL"},
			[]string{"'-838:59:59'", "'838:59:59.999999'", "'00:00:00.000001'", "NULL"}, "UNIQUE"},
		{"a ENUM('small','big','Big one') NULL, `Key B` SET('x','y','z')", []string{"'small'", "'big'", "'Big one'", "NULL"}, []string{"''", "'x'", "'y,z'", "NULL"}, "UNIQUE"},
		{"a VARBINARY(10), `Key B` BINARY(2)", []string{"''", "X'00'", "X'00FF'", "X'FF'", "NULL"}, []string{"X'00'", "X'FFFF'", "NULL"}, "UNIQUE"},
		{"a YEAR, `Key B` BIT(10)", []string{"1901", "2155", "NULL"}, []string{"b'0'", "b'1111111111'", "NULL"}, "UNIQUE"},
		{"a TINYINT UNSIGNED, `Key B` BOOLEAN", []string{"0", "255", "NULL"}, []string{"TRUE", "FALSE", "NULL"}, "UNIQUE"},
	} {
		table := fmt.Sprintf("keys%d", i)
		exec(t, db, fmt.Sprintf("CREATE TABLE %s (id BIGINT NOT NULL, %s)", table, c.types))
		values, rows := product(c.first, c.second)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'", fmt.Sprintf("INSERT INTO %s VALUES %s", table, values)} {
			if _, err := conn.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		if c.key != "" {
			if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE %s ADD %s (a, `Key B`)", table, c.key)); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		o := sqldb.Options{DSN: server.DSN, Table: table, KeyColumns: []string{"a", "Key B"}}
		maria.wantOnce(t, o, rows)
		o.Query, o.Table, o.DSN = "SELECT * FROM "+table, "", server.URL
		maria.wantOnce(t, o, rows)
		if t.Failed() {
			t.Fatalf("the table is (%s)", c.types)
		}
	}
}

// TestMariaDBValues: values come exactly, or as text; nothing becomes NULL.
func TestMariaDBValues(t *testing.T) {
	server := engines.StartMariaDB(t)
	db := server.Open(t)
	maria := opener(sqldb.MySQL)
	exec(t, db, `CREATE TABLE v (id INT PRIMARY KEY, i1 TINYINT, i8 BIGINT, u8 BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(65,30), b BIT(9),
		t TEXT, e VARCHAR(5), l VARCHAR(5) CHARACTER SET latin1, x VARBINARY(9), xe BLOB, day DATE, zero DATE, at DATETIME(6), ts TIMESTAMP(6) NULL, tz TIMESTAMP NULL,
		span TIME(6), y YEAR, en ENUM('one','two'), s SET('p','q'), j JSON, g POINT, un UUID, nothing TEXT)`,
		"SET GLOBAL sql_mode = 'ALLOW_INVALID_DATES'", "SET GLOBAL time_zone = '+05:00'")
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{"SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+02:00'",
		`INSERT INTO v VALUES (-1, -128, -9223372036854775808, 18446744073709551615, 0.1, 1.7976931348623157e308,
		12345678901234567890123456789012345.123456789012345678901234567890, b'100000001', 'ä😀', '', 'é', X'00FF', '', '2024-02-31', '0000-00-00',
		'9999-12-31 23:59:59.999999', '2024-01-02 03:04:05.123456', 0, '-838:59:58.5', 1999, 'two', 'p,q', '{"a": 1.0}', POINT(1, 2),
		'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', NULL)`} {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	o := sqldb.Options{DSN: server.DSN, Table: "v"}
	maria.wantValues(t, o, map[string]any{
		"id": int64(-1), "i1": int64(-128), "i8": int64(math.MinInt64), "u8": uint64(math.MaxUint64), "f": 0.1, "d": math.MaxFloat64,
		"n": source.Number("12345678901234567890123456789012345.123456789012345678901234567890"), "b": int64(257), "t": "ä😀", "e": "", "l": "é",
		"x": []byte{0, 255}, "xe": []byte{}, "day": "2024-02-31", "zero": "0000-00-00", "at": "9999-12-31 23:59:59.999999",
		"ts": time.Date(2024, 1, 2, 1, 4, 5, 123456000, time.UTC), "tz": "0000-00-00 00:00:00", "span": "-838:59:58.500000", "y": int64(1999),
		"en": "two", "s": "p,q", "j": json.RawMessage(`{"a": 1.0}`), "un": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "nothing": nil,
	})
	info := maria.inspect(t, o)
	if lossy := strings.Join(info.Lossy, "\n"); !strings.Contains(lossy, "Column g (geometry)") || len(info.Lossy) != 1 {
		t.Errorf("lossy:\n%s", lossy)
	}
	if info.KeyTemplate != "v/{id:+19d}" || !info.Consistent || !strings.HasPrefix(info.Version, "MariaDB ") {
		t.Errorf("%+v", info)
	}
	exec(t, db, "CREATE TABLE old (id BIGINT UNSIGNED PRIMARY KEY) ENGINE=MyISAM")
	info = maria.inspect(t, sqldb.Options{DSN: server.URL, Table: "old"})
	if info.Consistent || !strings.Contains(info.Notes[0], "MyISAM have no snapshots") || info.KeyTemplate != "old/{id:020d}" {
		t.Errorf("%+v", info)
	}
}

// TestMariaDBSnapshot: one snapshot is read whatever is written meanwhile, and
// a connection that is killed is made anew, with a note.
func TestMariaDBSnapshot(t *testing.T) {
	server := engines.StartMariaDB(t)
	db := server.Open(t)
	maria := opener(sqldb.MySQL)
	exec(t, db, "CREATE TABLE s (id BIGINT PRIMARY KEY, k VARCHAR(20))", "INSERT INTO s SELECT seq, CONCAT('k', seq) FROM seq_0_to_99")
	for _, end := range []bool{false, true} {
		var notes []string
		s := maria.open(t, sqldb.Options{DSN: server.DSN, Table: "s", PageRows: 9, OnNote: func(n string) { notes = append(notes, n) }})
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
			exec(t, db, fmt.Sprintf("INSERT INTO s VALUES (%d, 'z')", 1000+pages))
			if end && pages == 3 {
				kill(t, server)
			}
		}
		for id := range int64(100) {
			if seen[id] != 1 {
				t.Errorf("ended %t: row %d came %d times", end, id, seen[id])
			}
		}
		if !end && (len(seen) != 100 || len(notes) > 0) || end && (len(notes) != 1 || !strings.Contains(notes[0], "new snapshot")) {
			t.Errorf("ended %t: %d rows, notes %q", end, len(seen), notes)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		exec(t, db, "DELETE FROM s WHERE id >= 1000")
	}
	changes(t, maria, server)
}

// kill ends the connections of others that are in a transaction.
func kill(t *testing.T, server engines.MariaDB) {
	t.Helper()
	db := server.Open(t)
	rows, err := db.QueryContext(t.Context(), "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	killed := 0
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		exec(t, db, fmt.Sprint("KILL CONNECTION ", id))
		killed++
	}
	if err := rows.Err(); err != nil || killed == 0 {
		t.Fatalf("%d connections killed, %v", killed, err)
	}
}

// changes reads what changed since a cut.
func changes(t *testing.T, maria opener, server engines.MariaDB) {
	db := server.Open(t)
	exec(t, db, "CREATE TABLE c (id BIGINT PRIMARY KEY, ts TIMESTAMP NULL, at DATETIME, n BIGINT UNSIGNED)",
		"INSERT INTO c SELECT seq, UTC_TIMESTAMP() - INTERVAL 2 * seq DAY, UTC_TIMESTAMP() - INTERVAL 2 * seq DAY, 18446744073709551610 - 1000 * seq FROM seq_1_to_5")
	for column, value := range map[string]string{"ts": "UTC_TIMESTAMP()", "at": "UTC_TIMESTAMP()", "n": "18446744073709551615"} {
		o := sqldb.Options{DSN: server.DSN, Table: "c", ChangeColumn: column, CutNumbers: 10, PageRows: 1}
		cut := maria.inspect(t, o).Cut
		exec(t, db, fmt.Sprintf("INSERT INTO c (id, %s) VALUES (100, %s)", column, value), "INSERT INTO c (id) VALUES (101)")
		ids := map[int64]bool{}
		for p, err := range maria.open(t, o).ReadSince(t.Context(), cut, nil) {
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
}

// TestMariaDBSentences: errors say what is wrong and what to do, without the
// password.
func TestMariaDBSentences(t *testing.T) {
	server := engines.StartMariaDB(t)
	db := server.Open(t)
	maria := opener(sqldb.MySQL)
	exec(t, db, "CREATE DATABASE shop", "CREATE TABLE shop.Orders (id INT PRIMARY KEY)", "CREATE TABLE people (name TEXT)",
		"CREATE USER guest@'127.0.0.1' IDENTIFIED BY 'guestword'", "GRANT SELECT (name) ON people TO guest@'127.0.0.1'")
	guest := strings.Replace(server.URL, server.User+":"+server.Password, "guest:guestword", 1)
	for _, c := range []struct {
		o    sqldb.Options
		says []string
	}{
		{sqldb.Options{DSN: server.DSN, Table: "orders"}, []string{"there is no table orders", "did you mean shop.Orders?"}},
		{sqldb.Options{DSN: server.DSN, Table: "people"}, []string{"no primary key", "give key columns"}},
		{sqldb.Options{DSN: server.DSN, Query: "SELECT 1 AS id FROM", KeyColumns: []string{"id"}}, []string{"MariaDB says"}},
		{sqldb.Options{DSN: strings.Replace(server.URL, server.Password, "wrong", 1), Table: "people"}, []string{"does not let user " + server.User + " in"}},
		{sqldb.Options{DSN: guest, Table: "shop.Orders"}, []string{"there is no table shop.Orders"}},
		{sqldb.Options{DSN: guest, Query: "SELECT * FROM shop.Orders", KeyColumns: []string{"id"}}, []string{"user guest lacks a permission", "GRANT SELECT"}},
		{sqldb.Options{DSN: strings.TrimSuffix(server.URL, server.Database) + "nowhere", Table: "people"}, []string{"there is no database nowhere"}},
		{sqldb.Options{DSN: server.URL + "?tls=true", Table: "people"}, []string{"TLS"}},
	} {
		got := maria.refused(t, c.o)
		wantSays(t, got, c.says...)
		for _, secret := range []string{server.Password, "guestword", "wrong"} {
			if strings.Contains(got, secret) {
				t.Errorf("%q holds a password", got)
			}
		}
	}
	maria.inspect(t, sqldb.Options{DSN: server.URL, Table: "shop.orders"})
}
