// Package sqlsources tests the relational sources of migrations against real
// PostgreSQL and MariaDB servers. SQL Server is tested by the text of its
// statements alone, in the package of the sources.
package sqlsources

import (
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/sqldb"
)

// opener makes a source of one engine.
type opener func(sqldb.Options) (*sqldb.Source, error)

func (o opener) open(t testing.TB, options sqldb.Options) *sqldb.Source {
	t.Helper()
	s, err := o(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (o opener) inspect(t testing.TB, options sqldb.Options) source.Info {
	t.Helper()
	s := o.open(t, options)
	info, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return info
}

// refused returns the error of a source that cannot be inspected.
func (o opener) refused(t testing.TB, options sqldb.Options) string {
	t.Helper()
	s, err := o(options)
	if err == nil {
		defer s.Close()
		_, err = s.Inspect(t.Context())
	}
	if err == nil {
		t.Fatalf("%+v was accepted", options.Table)
	}
	return err.Error()
}

// read reads all pages, by sources that are made anew after every so many.
func (o opener) read(t testing.TB, options sqldb.Options, pages int) (records []source.Record, faults []source.Fault) {
	t.Helper()
	var from source.Position
	for more := true; more; {
		more = false
		s := o.open(t, options)
		left := pages
		for p, err := range s.Read(t.Context(), from) {
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, p.Records...)
			faults = append(faults, p.Faults...)
			from = p.Next
			if left--; left == 0 && from != nil {
				more = true
				break
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return records, faults
}

// wantOnce reads a table under several sizes of pages, and finds each of its
// rows once by the column id, which counts from 0. Small tables are also taken
// up again at each of their rows.
func (o opener) wantOnce(t testing.TB, options sqldb.Options, rows int) {
	t.Helper()
	sizes := []struct{ size, pages int }{{1, 1 << 30}, {3, 2}, {7, 1}, {1000, 1 << 30}}
	if rows <= 12 {
		sizes[0].pages = 1
	}
	for _, c := range sizes {
		options.PageRows = c.size
		// Connecting takes a while, so large tables are taken up again less often.
		c.pages = max(c.pages, rows/(c.size*12))
		records, faults := o.read(t, options, c.pages)
		if len(faults) > 0 {
			t.Fatalf("pages of %d: fault %+v", c.size, faults[0])
		}
		seen := make([]int, rows)
		for _, r := range records {
			v, _ := r.Get("id")
			seen[v.(int64)]++
		}
		for id, n := range seen {
			if n != 1 {
				t.Fatalf("pages of %d: of %d rows %d came, row %d %d times", c.size, rows, len(records), id, n)
			}
		}
	}
}

// wantValues reads one row and compares its fields, by name.
func (o opener) wantValues(t testing.TB, options sqldb.Options, want map[string]any) {
	t.Helper()
	records, faults := o.read(t, options, 1)
	if len(records) != 1 || len(faults) != 0 {
		t.Fatalf("%d rows, faults %+v", len(records), faults)
	}
	for _, f := range records[0].Fields {
		w, ok := want[f.Name]
		if !ok {
			continue
		}
		delete(want, f.Name)
		if !reflect.DeepEqual(f.Value, w) {
			t.Errorf("column %s came as %T %#v, wanted %T %#v", f.Name, f.Value, f.Value, w, w)
		}
	}
	for name := range want {
		t.Errorf("there is no column %s", name)
	}
}

func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func wantSays(t testing.TB, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("%q does not say %q", got, p)
		}
	}
}

// quoted makes an SQL literal of each text.
func quoted(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
	}
	return out
}

// product makes the rows of all combinations, with a number in front.
func product(first, second []string) (values string, rows int) {
	var all []string
	for _, a := range first {
		for _, b := range second {
			all = append(all, fmt.Sprintf("(%d, %s, %s)", len(all), a, b))
		}
	}
	return strings.Join(all, ", "), len(all)
}
