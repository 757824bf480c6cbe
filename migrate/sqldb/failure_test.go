package sqldb

import (
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
)

// sourceOf makes a source that is not connected.
func sourceOf(t *testing.T, open func(Options) (*Source, error), dsn string) *Source {
	t.Helper()
	s, err := open(Options{DSN: dsn, Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFailures: what engines and drivers say becomes a sentence with the way
// out, and what may go away is tried again.
func TestFailures(t *testing.T) {
	pg := sourceOf(t, Postgres, "postgres://ann:hunter2@db.example:5432/shop")
	my := sourceOf(t, MySQL, "mysql://ann:hunter2@db.example/shop")
	ms := sourceOf(t, SQLServer, "sqlserver://ann:hunter2@db.example:1433?database=shop")
	myServer := func(number uint16) error { return &mysql.MySQLError{Number: number, Message: "for hunter2"} }
	msServer := func(number int32) error { return mssql.Error{Number: number, Message: "for hunter2."} }
	pgServer := func(code, message string) error { return &pgconn.PgError{Code: code, Message: message} }
	for _, c := range []struct {
		s         *Source
		err       error
		says      string
		transient bool
	}{
		{pg, pgServer("28P01", ""), "db.example:5432/shop does not accept the password of user ann", false},
		{pg, pgServer("28000", "no pg_hba.conf entry for host, no encryption"), "wants TLS for user ann: add sslmode=require", false},
		{pg, pgServer("28000", "no pg_hba.conf entry for host, SSL encryption"), "add a line for it to pg_hba.conf", false},
		{pg, pgServer("42501", "permission denied for table t"), "GRANT SELECT", false},
		{pg, pgServer("57P01", "terminating connection"), "PostgreSQL says: terminating connection", true},
		{pg, pgServer("40001", "conflict with recovery"), "conflict with recovery", true},
		{pg, pgServer("53300", ""), "has no connection left", true},
		{pg, pgServer("22P02", "invalid input: hunter2"), "invalid input: …", false},
		{pg, errors.New("unknown authentication message type: 7"), "a way of authentication that is not supported here", false},
		{pg, fmt.Errorf("tls: %w", x509.UnknownAuthorityError{}), "sslrootcert=", false},
		{my, myServer(1045), "db.example:3306/shop does not let user ann in", false},
		{my, myServer(1142), "GRANT SELECT", false},
		{my, myServer(1044), "user ann may not use the database shop at db.example:3306, or there is none of that name", false},
		{my, myServer(1049), "there is no database shop at db.example:3306", false},
		{my, myServer(3159), "add tls=true", false},
		{my, myServer(1205), "MySQL says: for … (error 1205)", true},
		{my, myServer(1064), "(error 1064)", false},
		{my, mysql.ErrInvalidConn, "the connection to db.example:3306/shop was lost", true},
		{my, mysql.ErrUnknownPlugin, "make a user with caching_sha2_password", false},
		{my, mysql.ErrNoTLS, "does not speak TLS", false},
		{my, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, "is not trusted", false},
		{ms, msServer(18456), "does not let user ann in", false},
		{ms, msServer(4060), "there is no database shop at db.example", false},
		{ms, msServer(229), "GRANT SELECT", false},
		{ms, msServer(40615), "the firewall of db.example:1433/shop", false},
		{ms, msServer(1033), "leave it out", false},
		{ms, msServer(1205), "SQL Server says: for … (error 1205)", true},
		{ms, msServer(40501), "(error 40501)", true},
		{ms, errors.New("TLS Handshake failed: x509: certificate signed by unknown authority"), "TrustServerCertificate=true", false},
		{ms, errors.New("TLS Handshake failed: EOF"), "tlsmin=1.0", false},
		{pg, driver.ErrBadConn, "was lost", true},
		{my, io.ErrUnexpectedEOF, "was lost", true},
		{ms, &net.OpError{Op: "read", Err: errors.New("reset")}, "was lost", true},
		{ms, &net.DNSError{Name: "db.example"}, "there is no host db.example", true},
		{pg, notice("a sentence"), "a sentence", false},
	} {
		got := c.s.explained(t.Context(), c.err)
		if !strings.Contains(got.Error(), c.says) || strings.Contains(got.Error(), "hunter2") {
			t.Errorf("%v became %q", c.err, got)
		}
		if c.s.transient(c.err) != c.transient {
			t.Errorf("%v is transient: %t", c.err, !c.transient)
		}
	}
}

// TestPlaces: databases are named without user and password, also in the
// identity.
func TestPlaces(t *testing.T) {
	for want, s := range map[string]*Source{
		"h:5433/d":      sourceOf(t, Postgres, "host=h port=5433 user=u password=hunter2 dbname=d sslmode=disable"),
		"h:3306/d":      sourceOf(t, MySQL, "u:hunter2@tcp(h)/d?parseTime=true"),
		"h:3307/d":      sourceOf(t, MySQL, "mariadb://u:hunter2@h:3307/d"),
		`h\express/d`:   sourceOf(t, SQLServer, `sqlserver://u:hunter2@h/express?database=d`),
		"[::1]:1433/d":  sourceOf(t, SQLServer, "sqlserver://u:hunter2@[::1]:1433?database=d"),
		"/var/run/pg/d": sourceOf(t, Postgres, "host=/var/run/pg user=u password=hunter2 dbname=d"),
	} {
		if got := s.d.place(); got != want {
			t.Errorf("%s is %s", want, got)
		}
	}
}

// TestOldPostgres: servers that are too old are refused.
func TestOldPostgres(t *testing.T) {
	if err := oldPostgres(90624); err == nil || !strings.Contains(err.Error(), "PostgreSQL 9.6") {
		t.Errorf("9.6: %v", err)
	}
	if err := oldPostgres(110000); err != nil {
		t.Errorf("11: %v", err)
	}
}
