package sqldb

import (
	"context"
	"database/sql"
	"time"
)

// dialect is what one engine does its own way.
type dialect interface {
	traits() traits
	// open returns the pool; it does not connect.
	open() (*sql.DB, error)
	// place names the database for people, without a secret.
	place() string
	// begin prepares the session and starts the read transaction.
	begin(ctx context.Context, conn *sql.Conn) (*snapshot, error)
	// tables lists the tables and views called name in any case, or all of them
	// if name is empty; those that are found without a schema come first.
	tables(ctx context.Context, conn *sql.Conn, name string) ([]tableName, error)
	// describe gives the columns of what is read, and the unique indexes if it is
	// a table.
	describe(ctx context.Context, conn *sql.Conn, what subject) (shape, error)
	// estimate is about how many rows there are, -1 if nobody knows.
	estimate(ctx context.Context, conn *sql.Conn, what subject, where string) (int64, error)
	// failure says what an error of the engine means.
	failure(err error) failure
	// secrets are the words that no message may hold.
	secrets() []string
}

// traits are the differences in the text of statements.
type traits struct {
	// kind is the name of the source, engine that of the product.
	kind, engine string
	// quote delimits an identifier.
	quote func(string) string
	// placeholder is the n-th parameter, from 1.
	placeholder func(n int) string
	// nullsLast: NULL sorts after all values, otherwise before.
	nullsLast bool
	// rowValues: (a, b) > (x, y) is compared as such, and by an index.
	rowValues bool
	// mergesRanges: a > x OR a = x AND b > y is searched for by an index.
	mergesRanges bool
	// clustered: rows lie in the order of the primary key, and the engine would
	// rather sort all of them for a page than follow another index.
	clustered bool
	// textTokens: values are given as text and cast.
	textTokens bool
	// prepared: only prepared statements are answered in the binary form, which is
	// the exact one.
	prepared bool
	// top: the number of rows stands after SELECT, otherwise at the end.
	top bool
}

// tableName is a table of a database.
type tableName struct {
	schema, name string
	// bare: it is found without its schema.
	bare bool
}

// subject is what is read: a table, or a query.
type subject struct {
	// from is what follows FROM.
	from string
	// table is empty for a query.
	table tableName
	query string
}

// shape is what an engine knows of a subject.
type shape struct {
	columns []*column
	// hidden are columns that are there if somebody names them.
	hidden []*column
	// indexes are the unique ones, the primary key first.
	indexes []index
	// orders are further ones that need no sorting.
	orders []index
	// torn says why the pages do not come from one moment; empty if they do.
	torn string
	// notes are further remarks for people.
	notes []string
}

// index is a unique index of a table, over whole columns and all rows.
type index struct {
	columns []string
	primary bool
}

// column is a column of a subject, and how it is read exactly.
type column struct {
	name string
	// engine is the type as the engine calls it.
	engine   string
	nullable bool
	// read is the expression that carries the value, convert makes the value of
	// the field from what the driver gives; it never sees nil.
	read    string
	convert func(any) (any, error)
	// lossy says what the conversion loses, if anything.
	lossy string

	// order is the expression that rows are ordered by and compared with if the
	// column is part of the key, token the one whose value stands for it in a
	// position, and param, with a ? in it, how that value is given back.
	order, token, param string
	// typed, if set, makes the token of what the driver gives for it.
	typed func(any) (any, error)
	// unindexed: no index serves order.
	unindexed bool
	// same makes tokens of values that the engine takes for equal the same.
	same func(any) any
	// integer is the form of numbers without a fraction, for the key template.
	integer integer
	// bytes: it holds bytes, not text.
	bytes bool
	// change is how the column serves as change column.
	change change
}

// integer says which numbers a column holds.
type integer int

const (
	notInteger integer = iota
	signed
	unsigned
)

// change says how a column tells when a row changed.
type change int

const (
	// noChange: not at all.
	noChange change = iota
	// changeInstant: a moment, compared in UTC.
	changeInstant
	// changeLocal: a date and time in nobody knows which zone.
	changeLocal
	// changeDate: a date.
	changeDate
	// changeNumber: a number that grows.
	changeNumber
	// changeVersion: SQL Server's rowversion.
	changeVersion
	// changeStored: SQLite's; it depends on the values.
	changeStored
)

// snapshot is a connection and the transaction that reads on it.
type snapshot struct {
	conn *sql.Conn
	// end ends the transaction.
	end func(context.Context) error
	// version is the engine's.
	version string
	// now is the server's time in UTC, taken before the transaction began.
	now time.Time
	// torn says why the pages do not come from one moment; empty if they do.
	torn string
	// rowversion is the least of SQL Server's that a transaction may still use.
	rowversion []byte
}

// failure is what an error of an engine means.
type failure struct {
	// sentence is for people; empty if the error says nothing known.
	sentence string
	// transient: it may go away by itself.
	transient bool
}
