package sqlsources

import (
	"database/sql"
	"testing"

	"github.com/latticekv/lattice/migrate/sqldb"
	"github.com/latticekv/lattice/tests/engines"
)

// many is the number of rows of the large tables.
const many = 200_000

// TestPostgresMany reads many rows by an index and by sorting.
func TestPostgresMany(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	db.SetMaxOpenConns(1)
	// The counters are those of sessions that have ended.
	work := func() (rows int64) {
		const query = "SELECT COALESCE(SUM(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_user_tables WHERE relname IN ('orders', 'numbered')"
		exec(t, db, "SELECT pg_stat_force_next_flush()")
		for range 50 {
			if err := db.QueryRowContext(t.Context(), query).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			exec(t, db, "SELECT pg_sleep(0.02)")
		}
		return rows
	}
	readMany(t, sqldb.Postgres, server.DSN, db, work,
		"CREATE TABLE orders (tenant text NOT NULL, kind int NOT NULL, nr bigint NOT NULL, id bigint NOT NULL UNIQUE, note text, PRIMARY KEY (tenant, nr), UNIQUE (kind, nr))",
		"INSERT INTO orders SELECT CASE i % 4 WHEN 0 THEN 'acme' WHEN 1 THEN 'Acme' WHEN 2 THEN 'zoo' ELSE 'Zoo' END, i % 4, i / 4, i, 'note ' || i FROM generate_series(0, 199999) i")
}

// TestMariaDBMany reads many rows by an index and by sorting.
func TestMariaDBMany(t *testing.T) {
	server := engines.StartMariaDB(t)
	db := server.Open(t)
	work := func() (rows int64) {
		const query = "SELECT CAST(SUM(VARIABLE_VALUE) AS SIGNED) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('HANDLER_READ_NEXT', 'HANDLER_READ_RND_NEXT')"
		if err := db.QueryRowContext(t.Context(), query).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	readMany(t, sqldb.MySQL, server.URL, db, work,
		"CREATE TABLE orders (tenant VARCHAR(20) NOT NULL, kind INT NOT NULL, nr BIGINT NOT NULL, id BIGINT NOT NULL UNIQUE, note TEXT, PRIMARY KEY (tenant, nr), UNIQUE (kind, nr))",
		"INSERT INTO orders SELECT ELT(1 + seq % 4, 'acme', 'bolt', 'zoo', 'éa'), seq % 4, seq DIV 4, seq, CONCAT('note ', seq) FROM seq_0_to_199999")
}

// readMany finds each row once, without the server reading rows of an index
// much more often than once.
func readMany(t *testing.T, open opener, dsn string, db *sql.DB, work func() int64, statements ...string) {
	exec(t, db, statements...)
	exec(t, db, "CREATE TABLE numbered (kind int NOT NULL, nr bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (kind, nr))",
		"INSERT INTO numbered SELECT kind, nr, id FROM orders")
	for i, keys := range [][]string{nil, {"id"}, {"kind", "nr"}, nil} {
		table := "orders"
		if i == 3 {
			table = "numbered"
		}
		s := open.open(t, sqldb.Options{DSN: dsn, Table: table, KeyColumns: keys})
		// Whoever looks at the first page alone gets all of them afterwards.
		for p, err := range s.Read(t.Context(), nil) {
			if err != nil || len(p.Records) != sqldb.DefaultPageRows {
				t.Fatalf("the first page has %d rows, %v", len(p.Records), err)
			}
			break
		}
		before := work()
		seen := make([]bool, many)
		n := 0
		for p, err := range s.Read(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Records {
				v, _ := r.Get("id")
				if seen[v.(int64)] {
					t.Fatalf("by %v: %s came twice", keys, r.Origin)
				}
				seen[v.(int64)] = true
				n++
			}
		}
		if n != many {
			t.Fatalf("by %v: %d rows of %d", keys, n, many)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if read := work() - before; read < many/2 || read > 5*many/2 {
			t.Errorf("%s by %v: the server read %d rows for %d", table, keys, read, many)
		}
	}
}
