// Package rows reads and writes the files that the command-line tool moves in
// and out of a tree: newline-delimited JSON, CSV and TSV. It holds one record
// at a time. A record that cannot be used is a [*Fault] and does not end the
// reading; whatever else goes wrong does.
package rows

import (
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/delimited"
)

// DefaultMaxRecord bounds one record of an input: a value of 64 MiB in base64
// fits with room to spare.
const DefaultMaxRecord = 128 << 20

var (
	// ErrShort: the input has an end line that counts other rows than there
	// are; part of it is missing.
	ErrShort = errors.New("the input is incomplete")
	// ErrColumns: the columns asked for and those of the input do not agree.
	ErrColumns = errors.New("columns do not fit")
	// ErrQuote: a quoted field is still open where the input, or the bound on
	// one record, ends. Where the next row starts cannot be known.
	ErrQuote = delimited.ErrQuote
)

// Row is one usable record.
type Row struct {
	// Line is the line it starts on, from 1.
	Line int64
	// Raw is the record as it stands in the input, without its line end.
	Raw []byte
	// Op sets the key; its TTL is what the record says, or zero.
	Op client.Op
	// ExpiresAt is when the key is to vanish; zero if the record gives no
	// moment.
	ExpiresAt time.Time
	// ContentType is what the record says, or empty.
	ContentType string
}

// Fault is a record that cannot be used, and why.
type Fault struct {
	Line int64
	// Key is the key if it could be read.
	Key    string
	Reason string
	// Raw is the record as it stands in the input; of one that is too long,
	// the beginning.
	Raw []byte
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("line %d: %s", f.Line, f.Reason) }

// Source gives the rows of an input.
type Source interface {
	// Next returns the next row, io.EOF at the end, or a *Fault, after which
	// reading goes on. Any other error is final.
	Next() (Row, error)
}
