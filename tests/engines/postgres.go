package engines

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of Open

	"github.com/latticekv/lattice/tests/running"
)

// sqlUser is the superuser of both SQL servers, and the name of the database.
const (
	sqlUser     = "lattice"
	sqlDatabase = "lattice"
)

// Postgres is a running PostgreSQL. The collation of its database is that of
// American English, which is not the order of bytes.
type Postgres struct {
	*running.Process
	// Addr is host and port.
	Addr string
	// User, Password and Database are what to connect with.
	User, Password, Database string
	// DSN names all of it: "postgres://user:secret@host:port/database?sslmode=disable".
	DSN string
}

// StartPostgres runs a PostgreSQL with an empty database and returns when it
// answers.
func StartPostgres(t testing.TB) Postgres {
	t.Helper()
	bin := install(t, "install-engine.sh", "postgres")
	as := unprivileged(t, "postgres")
	dir := as.folder(t, "postgres")
	p := Postgres{User: sqlUser, Password: password(), Database: sqlDatabase}
	secret, data := filepath.Join(dir, "password"), filepath.Join(dir, "data")
	as.file(t, secret, p.Password)
	initdb := exec.CommandContext(t.Context(), filepath.Join(bin, "initdb"), "-D", data, "-U", p.User,
		"--auth=scram-sha-256", "--pwfile="+secret, "-E", "UTF8", "--no-sync",
		"--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US")
	initdb.Dir = dir
	as.run(t, initdb)
	p.Process, p.Addr = server{
		name: "postgres",
		command: func(port int) *exec.Cmd {
			cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data,
				"-c", "listen_addresses="+host, "-p", fmt.Sprint(port),
				"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=64MB")
			cmd.Dir = dir
			return as.as(cmd)
		},
		ready: func(ctx context.Context, addr string) error {
			return execPostgres(ctx, p.dsn(addr, "postgres"), "SELECT 1")
		},
	}.start(t)
	t.Cleanup(p.shutdown)
	if err := execPostgres(t.Context(), p.dsn(p.Addr, "postgres"), "CREATE DATABASE "+p.Database); err != nil {
		t.Fatalf("create the database: %v", err)
	}
	p.DSN = p.dsn(p.Addr, p.Database)
	return p
}

func (p Postgres) dsn(addr, database string) string {
	return "postgres://" + p.User + ":" + p.Password + "@" + addr + "/" + database + "?sslmode=disable"
}

func execPostgres(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// shutdown has the server end its children and release its shared memory, which
// a kill would not.
func (p Postgres) shutdown() {
	if p.Signal(syscall.SIGQUIT) != nil {
		return
	}
	select {
	case <-p.Exited():
	case <-time.After(stopTimeout):
	}
}

// Open returns a pool of connections to the database, closed when the test ends.
func (p Postgres) Open(t testing.TB) *sql.DB {
	t.Helper()
	return openSQL(t, "pgx", p.DSN)
}

func openSQL(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
