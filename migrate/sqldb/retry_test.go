package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlitedriver "modernc.org/sqlite"

	"github.com/latticekv/lattice/migrate/source"
)

// breaking is SQLite with connections that are lost: each gives allowed rows.
type breaking struct {
	*sqlite
	// allowed are the rows of the connections to come; when they are used up
	// nothing is lost any more.
	allowed []int
	opened  int
}

func (b *breaking) open() (*sql.DB, error) { return sql.OpenDB(b), nil }

// Connect implements driver.Connector.
func (b *breaking) Connect(context.Context) (driver.Conn, error) {
	b.opened++
	c, err := (&sqlitedriver.Driver{}).Open(b.path)
	if err != nil {
		return nil, err
	}
	left := 1 << 30
	if len(b.allowed) > 0 {
		left, b.allowed = b.allowed[0], b.allowed[1:]
	}
	if left < 0 {
		return nil, errors.Join(driver.ErrBadConn, c.Close())
	}
	return &breakingConn{c, &left}, nil
}

// Driver implements driver.Connector.
func (b *breaking) Driver() driver.Driver { return &sqlitedriver.Driver{} }

type breakingConn struct {
	driver.Conn
	left *int
}

func (c *breakingConn) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err == nil && strings.HasPrefix(query, `SELECT +"n"`) && !strings.Contains(query, "1 = 0") {
		return &breakingStmt{s, c.left}, nil
	}
	return s, err
}

type breakingStmt struct {
	driver.Stmt
	left *int
}

// QueryContext implements driver.StmtQueryContext.
func (s *breakingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	r, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return &breakingRows{r, s.left}, err
}

type breakingRows struct {
	driver.Rows
	left *int
}

func (r *breakingRows) Next(dest []driver.Value) error {
	if *r.left == 0 {
		return driver.ErrBadConn
	}
	*r.left--
	return r.Rows.Next(dest)
}

// brokenSource reads 20 rows over connections that are lost.
func brokenSource(t *testing.T, o Options, allowed ...int) (*Source, *breaking) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{"CREATE TABLE t (n INTEGER PRIMARY KEY)",
		"WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 19) INSERT INTO t SELECT i FROM s"} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	b := &breaking{sqlite: &sqlite{path: path}, allowed: allowed}
	o.DSN, o.Table = path, "t"
	if o.Query != "" {
		o.Table = ""
	}
	s, err := newSource(o, func(string) (dialect, error) { return b, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, b
}

func numbers(s *Source, t *testing.T) (got []int64, err error) {
	for p, err := range s.Read(t.Context(), nil) {
		if err != nil {
			return got, err
		}
		for _, r := range p.Records {
			v, _ := r.Get("n")
			got = append(got, v.(int64))
		}
	}
	return got, nil
}

// TestLostConnections: wherever a connection is lost, reading goes on after the
// last page, each row comes once, and people are told once per loss.
func TestLostConnections(t *testing.T) {
	for _, rows := range []int{1, 4, 7, 30} {
		for first := range 21 {
			var notes []string
			var waits []time.Duration
			s, b := brokenSource(t, Options{
				PageRows: rows,
				OnNote:   func(n string) { notes = append(notes, n) },
				wait:     func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
			}, first, -1, -1, 3)
			got, err := numbers(s, t)
			if err != nil {
				t.Fatalf("pages of %d, lost after %d rows: %v", rows, first, err)
			}
			if len(got) != 20 {
				t.Fatalf("pages of %d, lost after %d rows: %d rows", rows, first, len(got))
			}
			for i, n := range got {
				if n != int64(i) {
					t.Fatalf("pages of %d, lost after %d rows: %v", rows, first, got)
				}
			}
			if b.opened == 1 && len(waits) == 0 {
				continue // Nothing was lost: the rows were enough.
			}
			if len(notes) == 0 || !strings.Contains(notes[0], "in a new snapshot") || !strings.HasPrefix(notes[0], "The connection to ") {
				t.Errorf("pages of %d, lost after %d rows: notes %q", rows, first, notes)
			}
			for i, w := range waits {
				if w < firstWait || w > longestWait {
					t.Errorf("wait %d was %s", i, w)
				}
			}
		}
	}
}

// TestLostForGood: waiting has an end, and the error says what is wrong.
func TestLostForGood(t *testing.T) {
	var waited time.Duration
	lost := make([]int, 1000)
	s, _ := brokenSource(t, Options{RetryFor: time.Minute, wait: func(_ context.Context, d time.Duration) error { waited += d; return nil }}, lost...)
	_, err := numbers(s, t)
	if err == nil || !strings.Contains(err.Error(), "was lost") {
		t.Errorf("the error is %v", err)
	}
	if waited > time.Minute || waited < 30*time.Second {
		t.Errorf("waited %s of a minute", waited)
	}
}

// TestPermanentFailure: what does not go away is not tried again.
func TestPermanentFailure(t *testing.T) {
	s, _ := brokenSource(t, Options{wait: func(context.Context, time.Duration) error { t.Error("it waited"); return nil }})
	if _, err := s.Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.set.from = "gone"
	if _, err := numbers(s, t); err == nil {
		t.Error("a table that is not there was read")
	}
}

// TestUnsupportedChanges: without a change column there are no changes to read.
func TestUnsupportedChanges(t *testing.T) {
	s, _ := brokenSource(t, Options{})
	for _, err := range s.ReadSince(t.Context(), "{}", nil) {
		if !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("the error is %v", err)
		}
	}
}

// TestStoppedEarly: whoever stops in the midst of one statement for all rows
// does not wait for the rest of them; the next enumeration has them all.
func TestStoppedEarly(t *testing.T) {
	s, b := brokenSource(t, Options{PageRows: 2, Query: "SELECT n FROM t", KeyColumns: []string{"n"}})
	for _, err := range s.Read(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if s.snap != nil {
		t.Error("the connection was kept, and its rows read to the end")
	}
	if got, err := numbers(s, t); err != nil || len(got) != 20 || b.opened != 2 {
		t.Errorf("%d rows, %d connections, %v", len(got), b.opened, err)
	}
}

// TestFaults: a row that cannot be carried is reported with where it is and
// why, without its value, and the others come.
func TestFaults(t *testing.T) {
	s, _ := brokenSource(t, Options{PageRows: 6})
	if _, err := s.Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.set.columns[0].convert = func(v any) (any, error) {
		if v == int64(7) {
			return nil, errors.New("it cannot be read")
		}
		return v, nil
	}
	var faults []source.Fault
	records := 0
	for p, err := range s.Read(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		records += len(p.Records)
		faults = append(faults, p.Faults...)
	}
	if want := (source.Fault{Origin: "t (n=7)", Reason: "column n (integer): it cannot be read"}); records != 19 || len(faults) != 1 || faults[0] != want {
		t.Errorf("%d rows, faults %+v", records, faults)
	}
}

// TestDecimals: decimals come in the form of JSON, with all of their digits.
func TestDecimals(t *testing.T) {
	for text, want := range map[string]source.Number{
		"0": "0", "-0.00": "-0.00", "00012.50": "12.50", ".5": "0.5", "-.5": "-0.5", "000.10": "0.10",
		"99999999999999999999999999999999999999.99": "99999999999999999999999999999999999999.99",
	} {
		if got, err := toNumber(text); err != nil || got != want {
			t.Errorf("%s came as %v (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "1.", "1e5", "1.2.3", "abc", "1,5"} {
		if got, err := toNumber(text); err == nil {
			t.Errorf("%s came as %v", text, got)
		}
	}
}
