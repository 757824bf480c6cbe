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
	readMany(t, sqldb.Postgres, server.DSN, server.Open(t),
		"CREATE TABLE orders (tenant text NOT NULL, nr bigint NOT NULL, id bigint NOT NULL UNIQUE, note text, PRIMARY KEY (tenant, nr))",
		"INSERT INTO orders SELECT CASE i % 4 WHEN 0 THEN 'acme' WHEN 1 THEN 'Acme' WHEN 2 THEN 'zoo' ELSE 'Zoo' END, i / 4, i, 'note ' || i FROM generate_series(0, 199999) i")
}

// TestMariaDBMany reads many rows by an index and by sorting.
func TestMariaDBMany(t *testing.T) {
	server := engines.StartMariaDB(t)
	readMany(t, sqldb.MySQL, server.URL, server.Open(t),
		"CREATE TABLE orders (tenant VARCHAR(20) NOT NULL, nr BIGINT NOT NULL, id BIGINT NOT NULL UNIQUE, note TEXT, PRIMARY KEY (tenant, nr))",
		"INSERT INTO orders SELECT ELT(1 + seq % 4, 'acme', 'bolt', 'zoo', 'éa'), seq DIV 4, seq, CONCAT('note ', seq) FROM seq_0_to_199999")
}

func readMany(t *testing.T, open opener, dsn string, db *sql.DB, statements ...string) {
	exec(t, db, statements...)
	for _, keys := range [][]string{nil, {"id"}} {
		s := open.open(t, sqldb.Options{DSN: dsn, Table: "orders", KeyColumns: keys})
		// Whoever looks at the first page alone gets all of them afterwards.
		for p, err := range s.Read(t.Context(), nil) {
			if err != nil || len(p.Records) != sqldb.DefaultPageRows {
				t.Fatalf("the first page has %d rows, %v", len(p.Records), err)
			}
			break
		}
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
	}
}
