package mapping

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// The bounds of a plausible moment, in Unix milliseconds: a moment before 1973
// or after the year 5138 is one in the other unit.
const (
	firstMilli = 100_000_000_000
	lastMilli  = 100_000_000_000_000
	// maxMilli is the last moment of the year 9999.
	maxMilli = 253_402_300_799_999
)

// expiry returns when a record ceases to exist, in Unix milliseconds, 0 for
// never.
func (m *Mapper) expiry(r *source.Record) (int64, error) {
	name := m.o.TTLColumn + m.o.ExpiresColumn
	if name == "" {
		if r.Expiry.IsZero() {
			return 0, nil
		}
		return bounded(r.Expiry.UnixMilli())
	}
	v, ok := r.Get(name)
	if !ok {
		return 0, fmt.Errorf("there is no field %q, which is to give the expiry", name)
	}
	if v == nil {
		return 0, nil
	}
	read := m.moments
	if m.o.TTLColumn != "" {
		read = m.ttl
	}
	at, err := read(v)
	if err == nil {
		at, err = bounded(at)
	}
	if err != nil {
		return 0, fmt.Errorf("field %q, which gives the expiry, %w", name, err)
	}
	return at, nil
}

// bounded refuses what the service cannot keep. The first moment of 1970
// stands for never, so it becomes the one after; both have passed.
func bounded(at int64) (int64, error) {
	if at > maxMilli {
		return 0, errors.New("lies beyond the year 9999")
	}
	return max(at, 1), nil
}

// ttl reads a time to live.
func (m *Mapper) ttl(v any) (int64, error) {
	n, err := number(v)
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, errors.New("is not positive; NULL is for ever")
	}
	if m.o.TTLUnit == Seconds {
		n *= 1000
	}
	if n > maxMilli {
		return 0, errors.New("lies beyond the year 9999")
	}
	return m.o.Start.UnixMilli() + int64(math.Ceil(n)), nil
}

// moments reads a moment: a time, text in RFC 3339, or a number in the unit.
func (m *Mapper) moments(v any) (int64, error) {
	if at, ok := v.(time.Time); ok {
		return at.UnixMilli(), nil
	}
	if s, ok := v.(string); ok {
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
			return at.UnixMilli(), nil
		}
	}
	n, err := number(v)
	if err != nil {
		return 0, err
	}
	switch m.o.TTLUnit {
	case "":
		return 0, errors.New("is a number, which needs --ttl-unit")
	case Seconds:
		n *= 1000
	}
	if n < firstMilli || n > lastMilli {
		return 0, fmt.Errorf("is no likely moment when counted in %s: is the unit right?", m.o.TTLUnit)
	}
	return int64(math.Ceil(n)), nil
}

// number reads a finite number.
func number(v any) (float64, error) {
	var n float64
	var err error
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case uint64:
		n = float64(v)
	case float64:
		n = v
	case string:
		n, err = strconv.ParseFloat(v, 64)
	case source.Number:
		n, err = strconv.ParseFloat(string(v), 64)
	default:
		err = errors.New("kind")
	}
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, errors.New("is neither a time nor a number")
	}
	return n, nil
}
