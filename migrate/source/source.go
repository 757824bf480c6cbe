// Package source says what a migration needs of the store it reads: to be
// described, to be enumerated page by page from a position that survives a
// restart, and, where it can, to tell what has changed since a cut. It holds no
// code of any store.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"
)

// ErrRestart: the position does not fit the source any more (it was restarted,
// or failed over); the enumeration must begin anew.
var ErrRestart = errors.New("the source cannot be resumed at this position")

// ErrUnsupported: the source lacks what was asked for.
var ErrUnsupported = errors.New("not supported by this source")

// Source enumerates the records of one dataset. It is used by one goroutine at
// a time.
type Source interface {
	// Inspect connects and describes the dataset. Its errors are for people:
	// one sentence on what is wrong and the way out. No secret is ever in it.
	Inspect(ctx context.Context) (Info, error)
	// Read yields pages from a position on; a nil position is the beginning. It
	// ends after the last page, or with an error. Throttling is honoured and
	// transient failures are retried inside, within bounds.
	Read(ctx context.Context, from Position) iter.Seq2[Page, error]
	// Close ends the connection.
	Close() error
}

// Changing is a source that can tell what has changed.
type Changing interface {
	// ReadSince yields pages of the records that changed at or after a cut, as
	// Info.Cut gave it at an earlier time. It may yield records that did not
	// change. It does not tell of deletions.
	ReadSince(ctx context.Context, cut string, from Position) iter.Seq2[Page, error]
}

// Position is where an enumeration stands, as JSON that only the source that
// made it understands. It holds no secret.
type Position = json.RawMessage

// Page is what comes between two positions.
type Page struct {
	Records []Record
	// Faults are the records that could not be read or converted.
	Faults []Fault
	// Expired counts records that were listed and had ceased to exist when they
	// were read.
	Expired int64
	// Next is the position after the page; nil on the last one.
	Next Position
}

// Info describes a dataset.
type Info struct {
	// Kind is the name of the sub-command: "redis", "postgres"…
	Kind string
	// Identity names the dataset for people and for the state file, without any
	// secret: two runs with the same identity read the same dataset.
	Identity string
	// Version is that of the engine.
	Version string
	// Fields are the names of the fields of a record, where they are known
	// beforehand.
	Fields []string
	// KeyFields are those that identify a record, in order.
	KeyFields []string
	// KeyTemplate is the template used when the user gives none.
	KeyTemplate string
	// Estimate is about how many records there are, -1 if nobody knows.
	Estimate int64
	// Consistent says that all pages come from one moment.
	Consistent bool
	// Cut is the moment of the enumeration, to be given to ReadSince of a later
	// run; empty if the source cannot tell changes.
	Cut string
	// Lossy lists the conversions that lose something, a sentence each. It is
	// shown before the start.
	Lossy []string
	// Notes are other remarks shown before the start.
	Notes []string
}

// Record is one row, key or item.
type Record struct {
	// Origin says where it is, for people: `orders (tenant=acme, id=7)`,
	// `key "a:b" of db 0`, `cities.csv:17`.
	Origin string
	// Fields are the columns, in the order of the source. A key template and the
	// JSON form of the value are made of them.
	Fields []Field
	// Payload is the value itself where the source stores opaque bytes; nil
	// where the value is made of the fields. An empty one is not nil.
	Payload []byte
	// Type is the media type of Payload; empty is application/octet-stream.
	Type string
	// Expiry is when the record ceases to exist, zero for never.
	Expiry time.Time
	// Losses are the conversions of its fields that lost a distinction.
	Losses []Loss
}

// Loss is a conversion that loses a distinction.
type Loss struct {
	// Field is the name of the field, What says what became of what, in the same
	// words for every record.
	Field, What string
}

// Field is a named value: nil (NULL), bool, int64, uint64, float64, string,
// []byte, time.Time, Number (a decimal in digits, exact) or json.RawMessage.
type Field struct {
	Name  string
	Value any
}

// Number is a decimal number as its digits: "-12.50", "1e400".
type Number string

// Fault is a record that cannot be migrated.
type Fault struct {
	// Origin is where it is, Reason why it cannot be, for people, without the
	// value.
	Origin, Reason string
	// Key is the key, if it came that far.
	Key string
}

// Get returns the value of a field and whether there is one.
func (r *Record) Get(name string) (any, bool) {
	for i := range r.Fields {
		if r.Fields[i].Name == name {
			return r.Fields[i].Value, true
		}
	}
	return nil, false
}
