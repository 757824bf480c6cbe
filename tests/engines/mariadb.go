package engines

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/latticekv/lattice/tests/running"
)

// MariaDB is a running MariaDB. The collation of its database ignores case.
type MariaDB struct {
	*running.Process
	// Addr is host and port.
	Addr string
	// User, Password and Database are what to connect with.
	User, Password, Database string
	// DSN names all of it: "user:secret@tcp(host:port)/database".
	DSN string
	// URL is the same as "mysql://user:secret@host:port/database".
	URL string
}

// StartMariaDB runs a MariaDB with an empty database and returns when it
// answers.
func StartMariaDB(t testing.TB) MariaDB {
	t.Helper()
	bin := install(t, "install-engine.sh", "mariadb")
	as := unprivileged(t, "mysql")
	dir := as.folder(t, "mariadb")
	m := MariaDB{User: sqlUser, Password: password(), Database: sqlDatabase}
	data, setUp := filepath.Join(dir, "data"), filepath.Join(dir, "init.sql")
	as.createData(t, bin, dir, data)
	as.file(t, setUp, fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %[3]s;\n"+
		"CREATE USER IF NOT EXISTS '%[1]s'@'%[4]s' IDENTIFIED BY '%[2]s';\n"+
		"GRANT ALL ON *.* TO '%[1]s'@'%[4]s' WITH GRANT OPTION;\n", m.User, m.Password, m.Database, host))
	m.Process, m.Addr = server{
		name: "mariadb",
		command: func(port int) *exec.Cmd {
			// A socket relative to the data keeps below the limit of its path.
			cmd := exec.Command(filepath.Join(bin, "mariadbd"), "--no-defaults", "--datadir="+data,
				"--bind-address="+host, fmt.Sprint("--port=", port), "--socket=s", "--tmpdir="+dir,
				"--pid-file="+filepath.Join(dir, "pid"), "--init-file="+setUp, "--skip-name-resolve", "--skip-log-bin",
				"--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
				"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M")
			cmd.Dir = dir
			return as.as(cmd)
		},
		ready: m.ping,
	}.start(t)
	m.DSN = m.dsn(m.Addr)
	m.URL = "mysql://" + m.User + ":" + m.Password + "@" + m.Addr + "/" + m.Database
	return m
}

// createData fills the folder of a new server.
func (o owner) createData(t testing.TB, bin, dir, data string) {
	t.Helper()
	program := filepath.Join(bin, "mariadb-install-db")
	if found, err := exec.LookPath("mariadb-install-db"); err == nil {
		program = found
	}
	cmd := exec.CommandContext(t.Context(), program, "--no-defaults", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--tmpdir="+dir)
	cmd.Dir = dir
	o.run(t, cmd)
}

func (m MariaDB) dsn(addr string) string {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", addr, m.User, m.Password, m.Database
	return c.FormatDSN()
}

func (m MariaDB) ping(ctx context.Context, addr string) error {
	c, err := mysql.ParseDSN(m.dsn(addr))
	if err != nil {
		return err
	}
	// A connection that is refused, or not welcome yet, is no news.
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return db.PingContext(ctx)
}

// Open returns a pool of connections to the database, closed when the test ends.
func (m MariaDB) Open(t testing.TB) *sql.DB {
	t.Helper()
	return openSQL(t, "mysql", m.DSN)
}
