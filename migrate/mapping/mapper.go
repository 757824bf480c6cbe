package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// ErrExpired: the record had expired before it was read. It is no fault.
var ErrExpired = errors.New("expired at the source")

// Value says what the value of an entry is.
type Value string

// The rules for values. A name behind ColumnPrefix is a field.
const (
	// ValueAuto is the payload if the source has one, else JSON.
	ValueAuto Value = ""
	// ValueJSON is an object of the fields.
	ValueJSON Value = "json"
	// ColumnPrefix comes before the field that is the value.
	ColumnPrefix = "column:"
)

// Unit is what a number that tells of time counts.
type Unit string

// The units.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
)

// Options say how records become entries.
type Options struct {
	Template *keys.Template
	Value    Value
	// Columns are the fields of the JSON object; all if there are none.
	Columns []string
	// NullValue accepts NULL in the field that is the value, as an empty one.
	NullValue bool
	// Base64Text accepts text that is not UTF-8, as base64.
	Base64Text bool
	// TTLColumn is a time to live, counted from Start; ExpiresColumn a moment.
	// At most one of them. NULL is for ever. Numbers need a unit.
	TTLColumn, ExpiresColumn string
	TTLUnit                  Unit
	// Start is the moment from which times to live count, the same for all of
	// a migration, so that a record read twice makes the same entry twice.
	Start time.Time
	// MaxValueBytes is the longest value; 0 does not bound.
	MaxValueBytes int
	// Now is the time; nil is time.Now.
	Now func() time.Time
}

// Mapper makes entries. It is used by one goroutine at a time.
type Mapper struct {
	o Options
	// field is the one that is the value.
	field string
	buf   []byte
	seen  map[string]bool
	lossy map[Loss]int64
}

// Loss is a conversion that loses a distinction.
type Loss struct {
	Field string `json:"field"`
	// What says what became of what.
	What string `json:"what"`
}

// New checks the options.
func New(o Options) (*Mapper, error) {
	if o.Template == nil {
		return nil, errors.New("a migration needs a key template")
	}
	m := &Mapper{o: o, seen: map[string]bool{}, lossy: map[Loss]int64{}}
	if m.o.Now == nil {
		m.o.Now = time.Now
	}
	switch name, ok := strings.CutPrefix(string(o.Value), ColumnPrefix); {
	case ok && name != "":
		m.field = name
	case o.Value != ValueAuto && o.Value != ValueJSON:
		return nil, fmt.Errorf("a value is json or column:NAME, not %q", o.Value)
	}
	if m.field != "" && len(o.Columns) > 0 {
		return nil, errors.New("a value of one column and a list of columns exclude each other")
	}
	if o.TTLColumn != "" && o.ExpiresColumn != "" {
		return nil, errors.New("a column of times to live and one of moments exclude each other")
	}
	if o.TTLUnit != "" && o.TTLUnit != Seconds && o.TTLUnit != Milliseconds {
		return nil, fmt.Errorf("a unit of time is s or ms, not %q", o.TTLUnit)
	}
	if o.TTLColumn != "" && o.TTLUnit == "" {
		return nil, errors.New("a column of times to live needs a unit, s or ms: taking one for the other is off by a factor of 1,000")
	}
	return m, nil
}

// Map fills e from r. Its errors are faults of the record, worded for people
// and without the value, or ErrExpired. The key is set as soon as it is known.
// The value is valid until the next call.
func (m *Mapper) Map(r *source.Record, e *spool.Entry) error {
	*e = spool.Entry{Origin: r.Origin}
	var err error
	if e.Key, err = m.o.Template.Key(r); err != nil {
		return err
	}
	if e.Expiry, err = m.expiry(r); err != nil {
		return err
	}
	if e.Expiry != 0 && e.Expiry <= m.o.Now().UnixMilli() {
		return ErrExpired
	}
	if err := m.value(r, e); err != nil {
		return err
	}
	if n := len(e.Value); m.o.MaxValueBytes > 0 && n > m.o.MaxValueBytes {
		return fmt.Errorf("the value has %d bytes and may have %d", n, m.o.MaxValueBytes)
	}
	for _, l := range r.Losses {
		if m.carries(l.Field) {
			m.lose(l.Field, l.What)
		}
	}
	return nil
}

// carries reports whether a field is part of the value.
func (m *Mapper) carries(field string) bool {
	if m.field != "" {
		return field == m.field
	}
	return len(m.o.Columns) == 0 || slices.Contains(m.o.Columns, field)
}

func (m *Mapper) value(r *source.Record, e *spool.Entry) error {
	switch {
	case m.field != "":
		return m.column(r, e)
	case m.o.Value == ValueAuto && r.Payload != nil && len(m.o.Columns) == 0:
		e.Value, e.Type = r.Payload, r.Type
		return nil
	}
	e.Type = "application/json"
	return m.object(r, e)
}

// lose counts a lossy conversion.
func (m *Mapper) lose(field, what string) { m.lossy[Loss{field, what}]++ }

// Lossy returns how often each lossy conversion was made.
func (m *Mapper) Lossy() map[Loss]int64 { return m.lossy }

// Losses lists conversions by field.
func Losses(counts map[Loss]int64) []Loss {
	out := make([]Loss, 0, len(counts))
	for l := range counts {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.What, b.What))
	})
	return out
}
