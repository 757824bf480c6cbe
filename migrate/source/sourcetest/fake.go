// Package sourcetest has a source in memory, for tests of what reads sources:
// its rows can change, expire and break off a reader while they are read.
package sourcetest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// DefaultPageSize is the number of rows in a page unless PageSize says
// otherwise.
const DefaultPageSize = 100

// Row is a row of a Store. Its id is the field "id" of the record.
type Row struct {
	ID string
	// Payload is the value; nil makes the value the row's fields.
	Payload []byte
	Type    string
	// Fields follow the field "id".
	Fields []source.Field
	// Expiry is when the row ceases to exist, zero for never.
	Expiry time.Time
	// Fault makes the row unreadable, for this reason.
	Fault string
}

// Store holds rows in the order in which their ids were first put. It may be
// used by several goroutines.
type Store struct {
	// Name is the identity; set what follows before the first reader.
	Name string
	// PageSize is the number of rows in a page.
	PageSize int
	// Now tells the time for expiries; nil is time.Now.
	Now func() time.Time
	// BeforePage, if set, is called before each page that is read, with the
	// number of pages read by then. Its error ends the reader.
	BeforePage func(read int) error
	// KeyTemplate is the template that Inspect proposes; empty is "{id}".
	KeyTemplate string
	// Consistent is what Inspect says.
	Consistent bool

	mu    sync.Mutex
	rows  []stored
	seq   int64
	clock int64
	pages int
}

// stored is a row with its place and the moment of its last change.
type stored struct {
	Row
	seq, changed int64
}

// Put inserts or replaces rows.
func (s *Store) Put(rows ...Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		s.clock++
		if i := s.find(r.ID); i >= 0 {
			s.rows[i].Row, s.rows[i].changed = r, s.clock
			continue
		}
		s.seq++
		s.rows = append(s.rows, stored{r, s.seq, s.clock})
	}
}

// Delete removes rows.
func (s *Store) Delete(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if i := s.find(id); i >= 0 {
			s.rows = slices.Delete(s.rows, i, i+1)
		}
	}
}

func (s *Store) find(id string) int {
	return slices.IndexFunc(s.rows, func(r stored) bool { return r.ID == id })
}

// Pages returns how many pages were read so far.
func (s *Store) Pages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages
}

// Source returns a reader that cannot tell what has changed.
func (s *Store) Source() source.Source { return reader{s, false} }

// Changing returns a reader that can; it implements source.Changing.
func (s *Store) Changing() source.Source { return changing{reader{s, true}} }

type reader struct {
	s   *Store
	cut bool
}

type changing struct{ reader }

// Inspect implements source.Source.
func (r reader) Inspect(ctx context.Context) (source.Info, error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	info := source.Info{
		Kind: "fake", Identity: s.Name, Version: "1", KeyFields: []string{"id"}, KeyTemplate: s.KeyTemplate,
		Estimate: int64(len(s.rows)), Consistent: s.Consistent,
	}
	if info.KeyTemplate == "" {
		info.KeyTemplate = "{id}"
	}
	if r.cut {
		info.Cut = strconv.FormatInt(s.clock, 10)
	}
	return info, ctx.Err()
}

// Read implements source.Source.
func (r reader) Read(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
	return r.s.read(ctx, from, 0)
}

// ReadSince implements source.Changing.
func (r changing) ReadSince(ctx context.Context, cut string, from source.Position) iter.Seq2[source.Page, error] {
	since, err := strconv.ParseInt(cut, 10, 64)
	if err != nil {
		return func(yield func(source.Page, error) bool) {
			yield(source.Page{}, fmt.Errorf("cut %q is not one of this source", cut))
		}
	}
	return r.s.read(ctx, from, since)
}

// Close implements source.Source.
func (reader) Close() error { return nil }

// place is a position: all rows up to After were read.
type place struct {
	After int64 `json:"after"`
}

func (s *Store) read(ctx context.Context, from source.Position, since int64) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		var at place
		if from != nil {
			if err := json.Unmarshal(from, &at); err != nil {
				yield(source.Page{}, fmt.Errorf("%w: %w", source.ErrRestart, err))
				return
			}
		}
		for {
			page, last, err := s.page(ctx, at.After, since)
			if err != nil {
				yield(source.Page{}, err)
				return
			}
			if !yield(page, nil) || page.Next == nil {
				return
			}
			at.After = last
		}
	}
}

// page reads the rows after a place.
func (s *Store) page(ctx context.Context, after, since int64) (source.Page, int64, error) {
	if err := ctx.Err(); err != nil {
		return source.Page{}, 0, err
	}
	if s.BeforePage != nil {
		if err := s.BeforePage(s.Pages()); err != nil {
			return source.Page{}, 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	size := s.PageSize
	if size == 0 {
		size = DefaultPageSize
	}
	var p source.Page
	last, taken := after, 0
	for _, r := range s.rows {
		if r.seq <= after || r.changed < since {
			continue
		}
		if taken == size {
			next, err := json.Marshal(place{last})
			p.Next = next
			return p, last, err
		}
		taken++
		last = r.seq
		s.add(&p, r.Row)
	}
	return p, last, nil
}

func (s *Store) add(p *source.Page, r Row) {
	origin := fmt.Sprintf("row %q", r.ID)
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	switch {
	case r.Fault != "":
		p.Faults = append(p.Faults, source.Fault{Origin: origin, Reason: r.Fault})
	case !r.Expiry.IsZero() && !r.Expiry.After(now()):
		p.Expired++
	default:
		fields := append([]source.Field{{Name: "id", Value: r.ID}}, r.Fields...)
		p.Records = append(p.Records, source.Record{Origin: origin, Fields: fields, Payload: slices.Clone(r.Payload), Type: r.Type, Expiry: r.Expiry})
	}
}
