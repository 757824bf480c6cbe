// Package sqldb reads tables and queries of relational databases for a
// migration: PostgreSQL, MySQL and MariaDB, SQLite, and SQL Server.
//
// Rows are read in the order of their key columns, and a position is the key
// of the last row read, so that an enumeration goes on where it stood, whatever
// was inserted or deleted meanwhile; OFFSET is never used. The order is one of
// bytes wherever a key column holds text, and comparisons use the same
// expression as ORDER BY, so that a case-insensitive collation neither skips
// nor repeats a row. Where an index serves that order, and finds the beginning of
// a page, rows come in statements of one page each; where the engine would have
// to sort, or to search, for each of them, one statement gives them all. Rows with equal keys, such as those with NULL in a unique
// index, always come in one page.
//
// All pages come from one snapshot where the engine has one. It lasts as long
// as the connection: when that is lost, or the process restarts, reading goes
// on from the position in a new snapshot, and a delta pass closes the gap.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

const (
	// DefaultPageRows is how many rows a page has.
	DefaultPageRows = 1000
	// MaxPageRows bounds PageRows.
	MaxPageRows = 50_000
	// DefaultCutMargin is how far before the beginning of a snapshot its cut
	// lies.
	DefaultCutMargin = 10 * time.Minute
	// DefaultCutNumbers is the same for change columns that hold numbers.
	DefaultCutNumbers = 1000
	// DefaultRetryFor bounds the waiting for a database that does not answer.
	DefaultRetryFor = 5 * time.Minute
)

// Options say what to read. Either Table or Query is given.
type Options struct {
	// DSN says where the database is; for SQLite it is the file.
	DSN string
	// Table is a table or view, as name or schema.name.
	Table string
	// Query is a SELECT whose result is read; it needs KeyColumns.
	Query string
	// KeyColumns identify a row, in order; by default the primary key, or else a
	// unique index without columns that may be NULL.
	KeyColumns []string
	// Where is a condition in SQL that rows have to meet.
	Where string
	// ChangeColumn holds when a row changed last: a time, a growing number, or
	// SQL Server's rowversion. Without it changes cannot be told.
	ChangeColumn string
	// CutMargin is taken from the server's time at the beginning of the snapshot
	// to make the cut. It must exceed how long a transaction of the application
	// may take, because a row written before the snapshot began may become
	// visible after. 0 is DefaultCutMargin.
	CutMargin time.Duration
	// CutNumbers is the same for a change column of numbers: it is taken from the
	// greatest one. 0 is DefaultCutNumbers.
	CutNumbers int64
	// PageRows is how many rows a page has at most, not counting further rows of
	// the last key; 0 is DefaultPageRows. A page also ends at 8 MiB.
	PageRows int
	// Count asks for the exact number of rows; it reads the table or an index.
	Count bool
	// RetryFor bounds how long a database that does not answer is waited for;
	// 0 is DefaultRetryFor.
	RetryFor time.Duration
	// OnNote, if given, is told what people should know while pages are read,
	// such as that the snapshot was lost with the connection. It is called by the
	// goroutine that reads.
	OnNote func(string)

	// wait is replaced by tests.
	wait func(context.Context, time.Duration) error
}

// Source reads one table or query. It implements source.Source and
// source.Changing. Inspect begins a snapshot, which Read enumerates however
// often it is called; only Inspect and ReadSince begin another.
type Source struct {
	o    Options
	d    dialect
	db   *sql.DB
	snap *snapshot
	set  *dataset
	info source.Info
}

var (
	_ source.Source   = (*Source)(nil)
	_ source.Changing = (*Source)(nil)
)

// Postgres returns a source that reads PostgreSQL 11 or later. The DSN is a
// URL or words such as "host=… user=…". Nothing is connected yet.
func Postgres(o Options) (*Source, error) { return newSource(o, newPostgres) }

// MySQL returns a source that reads MySQL 5.7 or MariaDB 10.3, or later. The
// DSN is a mysql:// URL or the form user:password@tcp(host:port)/database.
func MySQL(o Options) (*Source, error) { return newSource(o, newMySQL) }

// SQLite returns a source that reads a file of SQLite, without ever writing
// to it.
func SQLite(o Options) (*Source, error) { return newSource(o, newSQLite) }

// SQLServer returns a source that reads SQL Server 2012 or later. The DSN is a
// sqlserver:// URL or words such as "server=…;user id=…".
func SQLServer(o Options) (*Source, error) { return newSource(o, newSQLServer) }

func newSource(o Options, open func(dsn string) (dialect, error)) (*Source, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	d, err := open(o.DSN)
	if err != nil {
		return nil, err
	}
	return &Source{o: o, d: d}, nil
}

// complete checks the options and fills in what was left out.
func (o *Options) complete() error {
	o.Query = strings.TrimRight(strings.TrimSpace(o.Query), "; \t\r\n")
	o.Where = strings.TrimSpace(o.Where)
	switch {
	case o.DSN == "":
		return errors.New("no database is given")
	case o.Table == "" && o.Query == "":
		return errors.New("give a table or a query to read")
	case o.Table != "" && o.Query != "":
		return errors.New("give a table or a query, not both")
	case o.Query != "" && len(o.KeyColumns) == 0:
		return errors.New("a query needs key columns: those of its result that identify a row")
	case o.Query != "" && o.Where != "":
		return errors.New("a condition goes with a table; put it into the query")
	case o.PageRows < 0 || o.PageRows > MaxPageRows:
		return fmt.Errorf("a page has 1 to %d rows", MaxPageRows)
	case o.CutMargin < 0 || o.CutNumbers < 0 || o.RetryFor < 0:
		return errors.New("margins and waiting times are not negative")
	}
	o.PageRows = orDefault(o.PageRows, DefaultPageRows)
	o.CutMargin = orDefault(o.CutMargin, DefaultCutMargin)
	o.CutNumbers = orDefault(o.CutNumbers, DefaultCutNumbers)
	o.RetryFor = orDefault(o.RetryFor, DefaultRetryFor)
	if o.OnNote == nil {
		o.OnNote = func(string) {}
	}
	if o.wait == nil {
		o.wait = sleep
	}
	return nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Inspect implements source.Source. The snapshot that Read enumerates begins
// here; Info.Cut lies before it. Of a run that was resumed, the cut of its
// first Inspect is the one that counts.
func (s *Source) Inspect(ctx context.Context) (source.Info, error) {
	s.release()
	snap, err := s.begin(ctx)
	if err != nil {
		return source.Info{}, s.explained(ctx, err)
	}
	s.snap = snap
	info, err := s.inspect(ctx, snap)
	if err != nil {
		s.release()
		return source.Info{}, s.explained(ctx, err)
	}
	s.info = info
	return info, nil
}

// Read implements source.Source.
func (s *Source) Read(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		if s.set == nil {
			if _, err := s.Inspect(ctx); err != nil {
				yield(source.Page{}, err)
				return
			}
		}
		s.enumerate(ctx, from, nil, yield)
	}
}

// ReadSince implements source.Changing. It reads a snapshot that begins with
// the call; rows whose change column is NULL are yielded too, since nobody
// knows when they changed.
func (s *Source) ReadSince(ctx context.Context, cut string, from source.Position) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		if _, err := s.Inspect(ctx); err != nil {
			yield(source.Page{}, err)
			return
		}
		since, err := s.since(cut)
		if err != nil {
			yield(source.Page{}, err)
			return
		}
		s.enumerate(ctx, from, since, yield)
	}
}

// Close implements source.Source.
func (s *Source) Close() error {
	s.release()
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}
