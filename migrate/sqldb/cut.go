package sqldb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// farthestZone is how far the local time that an application writes may be
// behind UTC.
const farthestZone = 12 * time.Hour

// cutRecord is a cut as it is written.
type cutRecord struct {
	Column string `json:"column"`
	// From is a token; everything counts as changed if there is none.
	From *string `json:"from"`
}

// cut is the moment of the snapshot, or one before.
func (s *Source) cut(ctx context.Context, snap *snapshot) (string, error) {
	v, err := s.cutValue(ctx, snap)
	if err != nil {
		return "", err
	}
	c := cutRecord{Column: s.set.change.name}
	if v != nil {
		if s.d.traits().textTokens {
			v = fmt.Sprint(v)
		}
		text, err := encodeToken(v)
		if err != nil {
			return "", err
		}
		c.From = &text
	}
	b, err := json.Marshal(c)
	return string(b), err
}

// cutValue is nil if everything that will be there counts as changed. The time
// is the server's: no row can tell what the clock was when it is written late.
func (s *Source) cutValue(ctx context.Context, snap *snapshot) (any, error) {
	at := snap.now.Add(-s.o.CutMargin)
	local := at.Add(-farthestZone)
	switch s.set.change.change {
	case changeInstant:
		return at.Format("2006-01-02 15:04:05.000000"), nil
	case changeLocal:
		return local.Format("2006-01-02 15:04:05"), nil
	case changeDate:
		return local.Format(time.DateOnly), nil
	case changeVersion:
		return snap.rowversion, nil
	}
	greatest, err := s.greatest(ctx)
	if err != nil {
		return nil, err
	}
	switch v := greatest.(type) {
	case nil:
		return nil, nil
	case int64:
		if v < math.MinInt64+s.o.CutNumbers {
			return int64(math.MinInt64), nil
		}
		return v - s.o.CutNumbers, nil
	case uint64:
		return v - min(v, uint64(s.o.CutNumbers)), nil
	case float64:
		return v - float64(s.o.CutNumbers), nil
	}
	if s.set.change.change == changeStored {
		// A date alone sorts before every form of a time on that day.
		return local.Format(time.DateOnly), nil
	}
	return nil, notice("column %s cannot tell changes: its values are no numbers", s.set.change.name)
}

// greatest is the greatest value of the change column.
func (s *Source) greatest(ctx context.Context) (greatest any, err error) {
	text := "SELECT MAX(" + s.set.change.order + ") FROM " + s.set.from
	if s.set.where != "" {
		text += " WHERE (\n" + s.set.where + "\n)"
	}
	rows, done, err := s.query(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done(err)) }()
	var v any
	if rows.Next() {
		err = rows.Scan(&v)
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		return nil, err
	}
	return s.set.change.tokenOf(v)
}

// since reads a cut.
func (s *Source) since(cut string) (*since, error) {
	if s.set.change == nil {
		return nil, &unsupported{problem{text: "changes cannot be told without a change column"}}
	}
	var c cutRecord
	if err := json.Unmarshal([]byte(cut), &c); err != nil {
		return nil, notice("the cut is not one that a database gave")
	}
	if c.Column != s.set.change.name {
		return nil, notice("the cut was made with the change column %q, not %q", c.Column, s.set.change.name)
	}
	if c.From == nil {
		return &since{all: true}, nil
	}
	v, err := decodeToken(*c.From)
	if err != nil {
		return nil, notice("the cut is not one that a database gave")
	}
	return &since{cut: v}, nil
}

// unsupported is a problem that is source.ErrUnsupported.
type unsupported struct{ problem }

// Unwrap implements the interface of errors.Is.
func (*unsupported) Unwrap() error { return source.ErrUnsupported }
