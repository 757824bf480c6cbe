package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	sqlitedriver "modernc.org/sqlite"
	sqlitecode "modernc.org/sqlite/lib"
)

type sqlite struct {
	// path is the file, parameters what stood behind it.
	path       string
	parameters url.Values
}

// sqliteParameters are those of a file: URI that a migration has a use for.
var sqliteParameters = []string{"immutable", "vfs", "cache"}

func newSQLite(dsn string) (dialect, error) {
	path := strings.TrimPrefix(dsn, "sqlite://")
	s := &sqlite{path: path, parameters: url.Values{}}
	if rest, ok := strings.CutPrefix(path, "file:"); ok {
		u, err := url.Parse("file:" + rest)
		if err != nil {
			return nil, notice("the name is not a file: URI: write it as a path")
		}
		s.path = u.Path
		if s.path == "" {
			s.path, err = url.PathUnescape(u.Opaque)
		}
		if err != nil {
			return nil, notice("the name is not a file: URI: write it as a path")
		}
		for k, v := range u.Query() {
			if slices.Contains(sqliteParameters, k) {
				s.parameters[k] = v
			}
		}
	}
	if s.path == "" || strings.HasPrefix(s.path, ":memory:") {
		return nil, notice("give the file of the database")
	}
	return s, nil
}

func (*sqlite) traits() traits {
	return traits{
		kind: "sqlite", engine: "SQLite", quote: doubled(`"`, `"`),
		placeholder: func(int) string { return "?" }, rowValues: true,
	}
}

func (s *sqlite) open() (*sql.DB, error) {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, notice("there is no file %s", s.path)
	case errors.Is(err, fs.ErrPermission):
		return nil, notice("the file %s may not be read by this user", s.path)
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, notice("%s is a folder: give the file of the database", s.path)
	}
	q := url.Values{}
	for k, v := range s.parameters {
		q[k] = v
	}
	q.Set("mode", "ro")
	q["_pragma"] = []string{"busy_timeout(10000)", "query_only(1)"}
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(s.path), RawQuery: q.Encode()}
	if !strings.HasPrefix(u.Path, "/") {
		u = url.URL{Scheme: "file", Opaque: (&url.URL{Path: u.Path}).EscapedPath(), RawQuery: q.Encode()}
	}
	return sql.Open("sqlite", u.String())
}

func (s *sqlite) place() string {
	if abs, err := filepath.Abs(s.path); err == nil {
		return abs
	}
	return s.path
}

func (*sqlite) secrets() []string { return nil }

func (s *sqlite) begin(ctx context.Context, conn *sql.Conn) (*snapshot, error) {
	snap := &snapshot{}
	var now string
	err := conn.QueryRowContext(ctx, "SELECT 'SQLite ' || sqlite_version(), strftime('%Y-%m-%d %H:%M:%f', 'now')").Scan(&snap.version, &now)
	if err != nil {
		return nil, err
	}
	if snap.now, err = time.Parse("2006-01-02 15:04:05.000", now); err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, err
	}
	snap.end = func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return err
	}
	// The first read begins the snapshot.
	var n int
	if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_schema").Scan(&n); err != nil {
		return nil, errors.Join(err, snap.end(ctx))
	}
	return snap, nil
}

func (*sqlite) tables(ctx context.Context, conn *sql.Conn, name string) ([]tableName, error) {
	found, err := collect(ctx, conn, `SELECT '', name, 1 FROM sqlite_schema WHERE type IN ('table', 'view')
		AND (? = '' OR lower(name) = lower(?)) AND (? <> '' OR name NOT LIKE 'sqlite\_%' ESCAPE '\')
		ORDER BY name LIMIT `+strconv.Itoa(maxTables), []any{name, name, name}, scanTable)
	for i := range found {
		found[i].schema = "main"
	}
	return found, err
}

func (*sqlite) estimate(ctx context.Context, conn *sql.Conn, what subject, where string) (n int64, err error) {
	// It keeps no number that could be relied on, and counts quickly.
	set := &dataset{subject: what, where: where}
	err = conn.QueryRowContext(ctx, set.count()).Scan(&n)
	return n, err
}

func (s *sqlite) failure(err error) failure {
	var e *sqlitedriver.Error
	if !errors.As(err, &e) {
		return failure{}
	}
	switch e.Code() & 0xff {
	case sqlitecode.SQLITE_BUSY, sqlitecode.SQLITE_LOCKED:
		return failure{transient: true, sentence: fmt.Sprintf("%s is locked by another program: end it, or try later", s.path)}
	case sqlitecode.SQLITE_NOTADB:
		return failure{sentence: fmt.Sprintf("%s is not a database of SQLite, or it is encrypted: decrypt it first", s.path)}
	case sqlitecode.SQLITE_CORRUPT:
		return failure{sentence: fmt.Sprintf("%s is damaged: recover it with \"sqlite3 %s .recover\" into another file, and migrate that", s.path, s.path)}
	case sqlitecode.SQLITE_CANTOPEN, sqlitecode.SQLITE_PERM, sqlitecode.SQLITE_READONLY:
		return failure{sentence: fmt.Sprintf("%s cannot be opened for reading: check the permissions of file and folder; "+
			"a database in WAL mode needs its -shm file to be writable, or copy it with \"sqlite3 %s .backup\"", s.path, s.path)}
	}
	return failure{}
}
