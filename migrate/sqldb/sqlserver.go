package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"
)

// oldestSQLServer is 2012, the first that describes results.
const oldestSQLServer = 11

type sqlServer struct{ config msdsn.Config }

func newSQLServer(dsn string) (dialect, error) {
	c, err := msdsn.Parse(dsn)
	if err != nil || c.Host == "" {
		// What the parser says may hold a part of the DSN.
		return nil, notice("the DSN is not one of SQL Server: it looks like sqlserver://user:password@host:1433?database=name, " +
			"or server=host;user id=user;password=password;database=name")
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = connectTimeout
	}
	if c.AppName == "" || c.AppName == "go-mssqldb" {
		c.AppName = "lattice migrate"
	}
	c.ReadOnlyIntent = false
	c.LogFlags = 0
	return &sqlServer{c}, nil
}

func (*sqlServer) traits() traits {
	return traits{
		kind: "sqlserver", engine: "SQL Server", quote: doubled("[", "]"),
		placeholder: func(n int) string { return "@p" + strconv.Itoa(n) }, top: true,
	}
}

func (s *sqlServer) open() (*sql.DB, error) {
	return sql.OpenDB(mssql.NewConnectorConfig(s.config)), nil
}

func (s *sqlServer) place() string {
	place := s.config.Host
	if s.config.Instance != "" {
		place += `\` + s.config.Instance
	}
	if s.config.Port != 0 {
		place = net.JoinHostPort(s.config.Host, strconv.FormatUint(s.config.Port, 10))
	}
	if s.config.Database != "" {
		place += "/" + s.config.Database
	}
	return place
}

func (s *sqlServer) secrets() []string { return []string{s.config.Password} }

func (s *sqlServer) begin(ctx context.Context, conn *sql.Conn) (*snapshot, error) {
	snap := &snapshot{end: func(context.Context) error { return nil }}
	var major int
	var edition, now, database string
	var allowed bool
	err := conn.QueryRowContext(ctx, `SELECT CAST(PARSENAME(CONVERT(varchar(32), SERVERPROPERTY('ProductVersion')), 4) AS int),
		CONVERT(varchar(32), SERVERPROPERTY('ProductVersion')), CONVERT(varchar(128), SERVERPROPERTY('Edition')),
		CONVERT(varchar(40), SYSUTCDATETIME(), 121), DB_NAME(),
		CAST(CASE WHEN (SELECT snapshot_isolation_state FROM sys.databases WHERE database_id = DB_ID()) = 1 THEN 1 ELSE 0 END AS bit)`).
		Scan(&major, &snap.version, &edition, &now, &database, &allowed)
	if err != nil {
		return nil, err
	}
	// Azure SQL says 12 whatever it is.
	if major < oldestSQLServer {
		return nil, notice("this is SQL Server %s, and the oldest that can be read is 2012 (11.0): restore it into a later one, and migrate from that", snap.version)
	}
	snap.version = "SQL Server " + snap.version + " " + edition
	if snap.now, err = time.Parse("2006-01-02 15:04:05.0000000", now); err != nil {
		return nil, err
	}
	if err := conn.QueryRowContext(ctx, "SELECT MIN_ACTIVE_ROWVERSION()").Scan(&snap.rowversion); err != nil {
		return nil, err
	}
	if !allowed {
		snap.torn = fmt.Sprintf("The database allows no snapshots: rows that change while they are read may be carried in either state, "+
			"or missed if their key changes. ALTER DATABASE %s SET ALLOW_SNAPSHOT_ISOLATION ON allows them; or make a delta pass.", s.traits().quote(database))
		return snap, nil
	}
	// The transaction outlives the call.
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelSnapshot})
	if err != nil {
		return nil, err
	}
	snap.end = func(context.Context) error { return tx.Rollback() }
	return snap, nil
}

func (*sqlServer) tables(ctx context.Context, conn *sql.Conn, name string) ([]tableName, error) {
	return collect(ctx, conn, `SELECT TOP (`+strconv.Itoa(maxTables)+`) s.name, o.name, CAST(CASE WHEN s.name = SCHEMA_NAME() THEN 1 ELSE 0 END AS bit)
		FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
		WHERE o.type IN ('U', 'V') AND o.is_ms_shipped = 0 AND (@p1 = N'' OR LOWER(o.name) = LOWER(@p1))
		ORDER BY 3 DESC, 1, 2`, []any{name}, scanTable)
}

func (*sqlServer) estimate(ctx context.Context, conn *sql.Conn, what subject, where string) (int64, error) {
	if what.query != "" || where != "" {
		return -1, nil
	}
	var n sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT SUM(rows) FROM sys.partitions WHERE object_id = OBJECT_ID(@p1) AND index_id IN (0, 1)", what.from).Scan(&n)
	if err != nil || !n.Valid {
		return -1, err
	}
	return n.Int64, nil
}

func (s *sqlServer) failure(err error) failure {
	var e mssql.Error
	if errors.As(err, &e) {
		return failure{sentence: s.sentence(e), transient: sqlServerTransient(e.Number)}
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "x509:") || strings.Contains(text, "certificate"):
		return failure{sentence: fmt.Sprintf("the certificate of %s is not trusted: give its authority with certificate=… in the DSN, "+
			"or TrustServerCertificate=true if the network in between is safe", s.place())}
	case strings.Contains(text, "TLS Handshake") || strings.Contains(text, "tls:"):
		return failure{sentence: fmt.Sprintf("%s and this program agree on no version of TLS: add tlsmin=1.0 to the DSN for an old server, or encrypt=disable if the network in between is safe", s.place())}
	case strings.Contains(text, "no instance matching"):
		return failure{sentence: fmt.Sprintf("there is no instance %s at %s: check its name, or give its port", s.config.Instance, s.config.Host)}
	}
	return failure{}
}

func sqlServerTransient(number int32) bool {
	switch number {
	case 64, 233, 1205, 1222, 3960, 4221, 10053, 10054, 10060, 10928, 10929, 40143, 40197, 40501, 40540, 40613, 49918, 49919, 49920:
		return true
	}
	return false
}

func (s *sqlServer) sentence(e mssql.Error) string {
	user := s.config.User
	switch e.Number {
	case 18456, 18452:
		return fmt.Sprintf("%s does not let user %s in: check user and password, and that the server allows SQL logins", s.place(), user)
	case 4060, 911:
		return fmt.Sprintf("there is no database %s at %s, or user %s may not use it: name another one in the DSN", s.config.Database, s.config.Host, user)
	case 229, 230, 297:
		return fmt.Sprintf("user %s lacks a permission on what is read: GRANT SELECT on it", user)
	case 18486, 18487, 18488:
		return fmt.Sprintf("user %s is locked, or the password must be changed first", user)
	case 40615:
		return fmt.Sprintf("the firewall of %s does not let this host in: add a rule for it", s.place())
	case 1033:
		return "SQL Server takes no ORDER BY inside a query that is read: leave it out, rows are ordered by the key columns"
	}
	return fmt.Sprintf("SQL Server says: %s (error %d)", strings.TrimRight(e.Message, "."), e.Number)
}
