package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

type mySQL struct {
	config *mysql.Config
	// maria: the server is MariaDB.
	maria bool
}

func newMySQL(dsn string) (dialect, error) {
	c, err := mysqlConfig(dsn)
	if err != nil {
		// What the parsers say may hold a part of the DSN.
		return nil, notice("the DSN is not one of MySQL: it looks like mysql://user:password@host:3306/database?tls=true, " +
			"or user:password@tcp(host:3306)/database?tls=true")
	}
	if c.Timeout == 0 {
		c.Timeout = connectTimeout
	}
	// The driver's log would name hosts and users on standard error.
	c.Logger = &mysql.NopLogger{}
	// Times stay text, which holds 0000-00-00 and every fraction; parameters go
	// to the server as they are, so that its answers are binary and exact.
	c.ParseTime, c.InterpolateParams, c.MultiStatements, c.ClientFoundRows = false, false, false, false
	return &mySQL{config: c}, nil
}

// mysqlConfig reads a URL, or the driver's own form.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	scheme, _, isURL := strings.Cut(dsn, "://")
	if !isURL || scheme != "mysql" && scheme != "mariadb" {
		return mysql.ParseDSN(dsn)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	// The query is that of the driver's form; the rest is set below.
	c, err := mysql.ParseDSN("tcp(host)/?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.DBName = strings.TrimPrefix(u.Path, "/")
	if c.TLS != nil && c.TLS.ServerName == "host" {
		c.TLS.ServerName = u.Hostname()
	}
	return c, nil
}

func (*mySQL) traits() traits {
	return traits{
		kind: "mysql", engine: "MySQL", quote: doubled("`", "`"),
		placeholder: func(int) string { return "?" }, mergesRanges: true, clustered: true, prepared: true,
	}
}

func (m *mySQL) open() (*sql.DB, error) {
	connector, err := mysql.NewConnector(m.config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (m *mySQL) place() string { return m.config.Addr + "/" + m.config.DBName }

func (m *mySQL) secrets() []string { return []string{m.config.Passwd} }

// mysqlSession makes values exact and independent of the server's settings. A
// slow reader must not lose the connection within a statement.
const mysqlSession = "SET NAMES utf8mb4; SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, wait_timeout = 28800;" +
	"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"

func (m *mySQL) begin(ctx context.Context, conn *sql.Conn) (*snapshot, error) {
	for _, set := range strings.Split(mysqlSession, ";") {
		if _, err := conn.ExecContext(ctx, set); err != nil {
			return nil, err
		}
	}
	snap := &snapshot{}
	var now string
	if err := conn.QueryRowContext(ctx, "SELECT VERSION(), CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&snap.version, &now); err != nil {
		return nil, err
	}
	maria, err := supported(snap.version)
	if err != nil {
		return nil, err
	}
	m.maria = maria
	unlimited := "SET SESSION max_execution_time = 0"
	if maria {
		unlimited = "SET SESSION max_statement_time = 0"
		snap.version = "MariaDB " + snap.version
	} else {
		snap.version = "MySQL " + snap.version
	}
	if snap.now, err = time.Parse("2006-01-02 15:04:05.000000", now); err != nil {
		return nil, err
	}
	for _, text := range []string{unlimited, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	snap.end = func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return err
	}
	return snap, nil
}

// supported refuses servers that are too old, and tells MariaDB from MySQL.
func supported(version string) (maria bool, err error) {
	maria = strings.Contains(version, "MariaDB")
	name, oldest := "MySQL", [2]int{5, 7}
	if maria {
		name, oldest = "MariaDB", [2]int{10, 3}
		// Some answer in the form 5.5.5-10.6.1-MariaDB.
		version = strings.TrimPrefix(version, "5.5.5-")
	}
	var v [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &v[0], &v[1]); err != nil {
		return maria, nil
	}
	if v[0] < oldest[0] || v[0] == oldest[0] && v[1] < oldest[1] {
		return maria, notice("this is %s %d.%d, and the oldest that can be read is %d.%d: dump it into a later one, and migrate from that",
			name, v[0], v[1], oldest[0], oldest[1])
	}
	return maria, nil
}

func (m *mySQL) tables(ctx context.Context, conn *sql.Conn, name string) ([]tableName, error) {
	return collect(ctx, conn, `SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_SCHEMA <=> DATABASE() FROM information_schema.TABLES
		WHERE (? = '' OR LOWER(TABLE_NAME) = LOWER(?))
		AND (? <> '' OR TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema'))
		ORDER BY 3 DESC, 1, 2 LIMIT `+strconv.Itoa(maxTables), []any{name, name, name}, scanTable)
}

func (m *mySQL) estimate(ctx context.Context, conn *sql.Conn, what subject, where string) (int64, error) {
	if what.query != "" || where != "" {
		return -1, nil
	}
	var n sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		what.table.schema, what.table.name).Scan(&n)
	if err != nil || !n.Valid {
		return -1, err
	}
	return n.Int64, nil
}

func (m *mySQL) failure(err error) failure {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return failure{sentence: m.sentence(e), transient: mysqlTransient(e.Number)}
	}
	text := err.Error()
	switch {
	case errors.Is(err, mysql.ErrInvalidConn):
		return failure{transient: true, sentence: fmt.Sprintf("the connection to %s was lost", m.place())}
	case errors.Is(err, mysql.ErrNoTLS):
		return failure{sentence: fmt.Sprintf("%s does not speak TLS: take tls=… out of the DSN, if the network in between is safe", m.place())}
	case errors.Is(err, mysql.ErrOldPassword), errors.Is(err, mysql.ErrCleartextPassword), errors.Is(err, mysql.ErrNativePassword),
		errors.Is(err, mysql.ErrUnknownPlugin):
		return failure{sentence: fmt.Sprintf("%s wants a way of authentication that is not supported here: "+
			"make a user with caching_sha2_password or mysql_native_password for the migration", m.place())}
	case strings.Contains(text, "x509:") || strings.Contains(text, "tls:"):
		return failure{sentence: fmt.Sprintf("the certificate of %s is not trusted: add its authority to the system's, or tls=skip-verify to the DSN if the network in between is safe", m.place())}
	}
	return failure{}
}

func mysqlTransient(number uint16) bool {
	switch number {
	case 1040, 1053, 1077, 1158, 1159, 1160, 1161, 1205, 1213, 1317, 1927, 2006, 2013, 4031:
		return true
	}
	return false
}

func (m *mySQL) sentence(e *mysql.MySQLError) string {
	user := m.config.User
	switch e.Number {
	case 1045:
		return fmt.Sprintf("%s does not let user %s in: check user, password, and the hosts it may come from", m.place(), user)
	case 1142, 1143:
		return fmt.Sprintf("user %s lacks a permission on what is read: GRANT SELECT on it", user)
	case 1046:
		return "no database is named: put one into the DSN, or give the table as database.table"
	case 1044:
		// MariaDB says so of a database that does not exist, to users who have not
		// the right to see all.
		return fmt.Sprintf("user %s may not use the database %s at %s, or there is none of that name: check the name in the DSN, or GRANT SELECT on it",
			user, m.config.DBName, m.config.Addr)
	case 1049:
		return fmt.Sprintf("there is no database %s at %s: name another one in the DSN", m.config.DBName, m.config.Addr)
	case 1040, 1203, 1226:
		return fmt.Sprintf("%s has no connection left for user %s: end others, or try later", m.place(), user)
	case 1130, 1129:
		return fmt.Sprintf("%s accepts no connection from this host: have it allowed there", m.place())
	case 3159:
		return fmt.Sprintf("%s wants TLS: add tls=true to the DSN", m.place())
	case 1862, 1820:
		return fmt.Sprintf("the password of user %s has expired: change it first", user)
	}
	name := "MySQL"
	if m.maria {
		name = "MariaDB"
	}
	return fmt.Sprintf("%s says: %s (error %d)", name, e.Message, e.Number)
}
