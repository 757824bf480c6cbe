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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// connectTimeout bounds a connection attempt where the DSN does not.
const connectTimeout = 15 * time.Second

// oldestPostgres is 11, the first whose catalogue tells the columns of a key
// from those that an index merely includes.
const oldestPostgres = 110_000

type postgres struct{ config *pgx.ConnConfig }

func newPostgres(dsn string) (dialect, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		// What the parser says may hold a part of the DSN.
		return nil, notice("the DSN is not one of PostgreSQL: it looks like postgres://user:password@host:5432/database?sslmode=require, " +
			"or host=… user=… password=… dbname=…")
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	// Statements live in one transaction, so that poolers may be in between.
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "lattice migrate"
	}
	return &postgres{c}, nil
}

func (*postgres) traits() traits {
	return traits{
		kind: "postgres", engine: "PostgreSQL", quote: doubled(`"`, `"`),
		placeholder: func(n int) string { return "$" + strconv.Itoa(n) },
		nullsLast:   true, rowValues: true, textTokens: true,
	}
}

func (p *postgres) open() (*sql.DB, error) { return stdlib.OpenDB(*p.config), nil }

func (p *postgres) place() string {
	host := p.config.Host
	if !strings.HasPrefix(host, "/") {
		host = net.JoinHostPort(host, strconv.Itoa(int(p.config.Port)))
	}
	return host + "/" + p.config.Database
}

func (p *postgres) secrets() []string { return []string{p.config.Password} }

// postgresSession makes text forms exact and independent of the server's
// settings; it lasts as long as the transaction.
const postgresSession = `SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL IntervalStyle = 'iso_8601';
SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'; SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL standard_conforming_strings = on`

func (p *postgres) begin(ctx context.Context, conn *sql.Conn) (*snapshot, error) {
	if _, err := conn.ExecContext(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return nil, err
	}
	snap := &snapshot{end: func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return err
	}}
	if err := p.prepare(ctx, conn, snap); err != nil {
		return nil, errors.Join(err, snap.end(ctx))
	}
	return snap, nil
}

func (*postgres) prepare(ctx context.Context, conn *sql.Conn, snap *snapshot) error {
	for _, set := range strings.Split(postgresSession, ";") {
		if _, err := conn.ExecContext(ctx, set); err != nil {
			return err
		}
	}
	// now() is the moment of BEGIN; the snapshot is taken by this statement.
	var number int
	var now string
	err := conn.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, version(),
		to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')`).Scan(&number, &snap.version, &now)
	if err != nil {
		return err
	}
	if err := oldPostgres(number); err != nil {
		return err
	}
	snap.version, _, _ = strings.Cut(snap.version, " on ")
	snap.now, err = time.Parse("2006-01-02 15:04:05.000000", now)
	return err
}

// oldPostgres refuses servers that are too old.
func oldPostgres(number int) error {
	if number >= oldestPostgres {
		return nil
	}
	return notice("this is PostgreSQL %d.%d, and the oldest that can be read is 11: dump it into a later one, and migrate from that",
		number/10_000, number/100%100)
}

func (*postgres) tables(ctx context.Context, conn *sql.Conn, name string) ([]tableName, error) {
	return collect(ctx, conn, `SELECT n.nspname::text, c.relname::text, pg_catalog.pg_table_is_visible(c.oid)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND ($1::text = '' OR lower(c.relname) = lower($1::text))
		AND ($1::text <> '' OR n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast')
		ORDER BY 3 DESC, 1, 2 LIMIT `+strconv.Itoa(maxTables), []any{name}, scanTable)
}

func (*postgres) estimate(ctx context.Context, conn *sql.Conn, what subject, where string) (int64, error) {
	// The planner knows the statistics, the size of the file, and conditions.
	text := "EXPLAIN SELECT 1 FROM " + what.from
	if where != "" {
		text += " WHERE (\n" + where + "\n)"
	}
	rows, err := collect(ctx, conn, text, nil, func(s *string) []any { return []any{s} })
	if err != nil || len(rows) == 0 {
		return -1, err
	}
	_, rest, _ := strings.Cut(rows[0], " rows=")
	digits, _, _ := strings.Cut(rest, " ")
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return n, nil
	}
	return -1, nil
}

func (p *postgres) failure(err error) failure {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return p.connection(err)
	}
	transient := strings.HasPrefix(e.Code, "08") || strings.HasPrefix(e.Code, "57P") || e.Code == "40001" || e.Code == "40P01" ||
		e.Code == "53300" || e.Code == "25P03"
	return failure{sentence: p.sentence(e), transient: transient}
}

// connection explains errors that come from the driver, not the server.
func (p *postgres) connection(err error) failure {
	var c *pgconn.ConnectError
	text := err.Error()
	switch {
	case strings.Contains(text, "server refused TLS"):
		return failure{sentence: fmt.Sprintf("%s does not speak TLS: add sslmode=disable to the DSN, if the network in between is safe", p.place())}
	case strings.Contains(text, "x509:") || strings.Contains(text, "tls:"):
		return failure{sentence: fmt.Sprintf("the certificate of %s is not trusted: give its authority with sslrootcert=… in the DSN", p.place())}
	case strings.Contains(text, "unknown authentication message") || strings.Contains(text, "SASL"):
		return failure{sentence: fmt.Sprintf("%s asks for a way of authentication that is not supported here: give the user a password (scram-sha-256)", p.place())}
	case errors.As(err, &c) && errors.Is(err, context.DeadlineExceeded):
		return failure{sentence: fmt.Sprintf("%s does not answer: check host and port, and firewalls between", p.place()), transient: true}
	}
	return failure{}
}

func (p *postgres) sentence(e *pgconn.PgError) string {
	user, database := p.config.User, p.config.Database
	switch e.Code {
	case "28P01":
		return fmt.Sprintf("%s does not accept the password of user %s: check both", p.place(), user)
	case "28000":
		if strings.Contains(e.Message, "no encryption") || strings.Contains(e.Message, "SSL off") {
			return fmt.Sprintf("%s wants TLS for user %s: add sslmode=require to the DSN", p.place(), user)
		}
		return fmt.Sprintf("%s does not let user %s in from here: add a line for it to pg_hba.conf of the server", p.place(), user)
	case "3D000":
		return fmt.Sprintf("there is no database %s on %s: name another one in the DSN", database, p.place())
	case "42501":
		return fmt.Sprintf("user %s lacks a permission (%s): GRANT SELECT on it", user, e.Message)
	case "53300":
		return fmt.Sprintf("%s has no connection left: end others, or try later", p.place())
	case "57P03":
		return fmt.Sprintf("%s is starting up or shutting down: try later", p.place())
	}
	return fmt.Sprintf("PostgreSQL says: %s (SQLSTATE %s)", e.Message, e.Code)
}
