package cli

import (
	"os"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/sqldb"
)

// migrateSQLFlags are what the relational sources have in common.
type migrateSQLFlags struct {
	migrateFlags

	Table      string   `help:"Table or view to read, as NAME or SCHEMA.NAME." placeholder:"NAME" group:"Source"`
	Query      string   `help:"SELECT whose result is read; it needs --key-columns." placeholder:"SQL" group:"Source"`
	KeyColumns []string `help:"Columns that identify a row, in order; the primary key if not given." placeholder:"NAME" group:"Source"`
	Where      string   `help:"Condition in SQL that rows have to meet." placeholder:"SQL" group:"Source"`
	PageRows   int      `default:"1000" help:"Most rows in a page." placeholder:"N" group:"Source"`
	Count      bool     `help:"Count the rows first, for an exact time left." group:"Source"`

	ChangeColumn  string        `help:"Column that tells when a row changed: a time, or a number that grows. It makes a later pass over changes possible." placeholder:"NAME" group:"Source"`
	ChangeMargin  time.Duration `default:"10m" help:"How far before the start that pass begins, for a time; longer than any transaction of the application." placeholder:"DURATION" group:"Source"`
	ChangeNumbers int64         `default:"1000" help:"The same for a number: how far below the greatest one." placeholder:"N" group:"Source"`
}

// source makes the options of a source, and records those that decide what is
// read.
func (f *migrateSQLFlags) source(dsn string) sqldb.Options {
	f.shape = map[string]string{"key-columns": strings.Join(f.KeyColumns, ","), "change-column": f.ChangeColumn}
	return sqldb.Options{
		DSN: dsn, Table: f.Table, Query: f.Query, KeyColumns: f.KeyColumns, Where: f.Where, ChangeColumn: f.ChangeColumn,
		CutMargin: f.ChangeMargin, CutNumbers: f.ChangeNumbers, PageRows: f.PageRows, Count: f.Count, RetryFor: f.RetryFor, OnNote: f.note,
	}
}

// migrateFrom migrates from a database that is reached by an address.
func (f *migrateSQLFlags) migrateFrom(e *env, a *address, open func(sqldb.Options) (*sqldb.Source, error)) error {
	dsn, err := a.resolve(e, os.LookupEnv)
	if err != nil {
		return err
	}
	src, err := open(f.source(dsn))
	if err != nil {
		return usagef("%v", err)
	}
	return f.run(e, src)
}

// sqlHelp is what the help of all relational sources says.
const sqlHelp = `Rows are read in the order of their key columns, a page at a time, and a key column of text is
ordered by its bytes, whatever its collation. Without --key-template the key is made of the table and
the key columns, numbers padded; the value is the row as an object, or as --value and --columns say.
`

// migratePostgresCmd migrates from PostgreSQL.
type migratePostgresCmd struct {
	migrateSQLFlags
	address
}

// Help implements kong.HelpProvider.
func (migratePostgresCmd) Help() string {
	return sqlHelp + `All rows come from one snapshot (REPEATABLE READ). The address is a URL, or words such as
"host=… user=… password=… dbname=…". PostgreSQL 11 or later.

In the JSON of a row, NULL and a json or jsonb value that is null are both null: which it was is not told any
more. A query can tell, with a column of its own such as doc IS NULL. Moments like infinity, or before Christ,
become the text that PostgreSQL has for them, and are counted.

Examples:

    lattice migrate postgres orders --source-env PG_URL --table shop.orders --dry-run
    lattice migrate postgres orders --source-env PG_URL --table shop.orders \
        --key-template 'order/{tenant}/{id:019d}' --change-column updated_at
    lattice migrate postgres names --source-file pg.url --query 'SELECT id, name FROM people' --key-columns id`
}

// Run carries the command out.
func (c *migratePostgresCmd) Run(e *env) error { return c.migrateFrom(e, &c.address, sqldb.Postgres) }

// migrateMySQLCmd migrates from MySQL or MariaDB.
type migrateMySQLCmd struct {
	migrateSQLFlags
	address
}

// Help implements kong.HelpProvider.
func (migrateMySQLCmd) Help() string {
	return sqlHelp + `All rows come from one snapshot if the tables are of InnoDB. The address is a mysql:// URL, or
user:password@tcp(host:port)/database. MySQL 5.7, MariaDB 10.3, or later.

Examples:

    lattice migrate mysql orders --source-env MYSQL_URL --table orders --dry-run
    lattice migrate mysql orders --source-env MYSQL_URL --table shop.orders --where "state <> 'draft'"`
}

// Run carries the command out.
func (c *migrateMySQLCmd) Run(e *env) error { return c.migrateFrom(e, &c.address, sqldb.MySQL) }

// migrateSQLServerCmd migrates from SQL Server.
type migrateSQLServerCmd struct {
	migrateSQLFlags
	address
}

// Help implements kong.HelpProvider.
func (migrateSQLServerCmd) Help() string {
	return sqlHelp + `All rows come from one snapshot if the database allows snapshot isolation; it is said if not. The
address is a sqlserver:// URL, or words such as "server=…;user id=…;password=…;database=…". SQL Server
2012 or later, and Azure SQL. This source has been tested by the text of its statements, not yet against
a server: begin with --dry-run.

Example:

    lattice migrate sqlserver orders --source-env MSSQL_URL --table dbo.Orders --change-column RowVersion`
}

// Run carries the command out.
func (c *migrateSQLServerCmd) Run(e *env) error { return c.migrateFrom(e, &c.address, sqldb.SQLServer) }

// migrateSQLiteCmd migrates from a file of SQLite.
type migrateSQLiteCmd struct {
	migrateSQLFlags
	File string `arg:"" help:"The file of the database."`
}

// Help implements kong.HelpProvider.
func (migrateSQLiteCmd) Help() string {
	return sqlHelp + `All rows come from one read transaction; the file is never written to. Values come as they are stored,
whatever type a column declares. A table without a key can be read with --key-columns rowid.

Examples:

    lattice migrate sqlite tracks music.db --table tracks --dry-run
    lattice migrate sqlite tracks music.db --table tracks --key-template 'track/{AlbumId:6}/{TrackId:6}'`
}

// Run carries the command out.
func (c *migrateSQLiteCmd) Run(e *env) error {
	src, err := sqldb.SQLite(c.source(c.File))
	if err != nil {
		return usagef("%v", err)
	}
	return c.run(e, src)
}
