package sqldb_test

import (
	"testing"

	"github.com/latticekv/lattice/migrate/sqldb"
)

// BenchmarkRead reads rows by an index, a page at a time.
func BenchmarkRead(b *testing.B) {
	path, db := database(b, "CREATE TABLE t (tenant TEXT, nr INTEGER, note TEXT, total REAL, PRIMARY KEY (tenant, nr)) WITHOUT ROWID")
	mustExec(b, db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) INSERT INTO t SELECT 'tenant' || (i % 9), i, 'note ' || i, i / 7.0 FROM n")
	for b.Loop() {
		s := open(b, sqldb.Options{DSN: path, Table: "t"})
		n := 0
		for p, err := range s.Read(b.Context(), nil) {
			if err != nil {
				b.Fatal(err)
			}
			n += len(p.Records)
		}
		if n != 100_000 {
			b.Fatalf("%d rows", n)
		}
	}
	b.ReportMetric(float64(100_000*b.N)/b.Elapsed().Seconds(), "rows/s")
}
