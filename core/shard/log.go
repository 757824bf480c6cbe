package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// errTruncated: rows that a reader needs are gone; the checkpoint holds them.
var errTruncated = errors.New("log truncated")

// errShifted: rows and head do not fit together, because the log changed
// between two pages. Reading again helps.
var errShifted = errors.New("log changed while it was read")

// maxLogPages bounds one reading of the log, maxReadings how often it is
// begun anew.
const (
	maxLogPages = 10_000
	maxReadings = 16
)

// logReading is the outcome of one reading: rows without a gap up to the head.
type logReading struct {
	rows []logRow
	head Head
	etag store.ETag
}

// logRow is a decoded row with its stored size.
type logRow struct {
	record.Row
	size int
}

// readLog reads the rows from a number on, and the head, in one query where
// they fit a page. It reads again while they do not fit together. errTruncated
// says that the rows are gone, ErrNoShard that there is no head.
func (s *Shard) readLog(ctx context.Context, from uint64, last *Head) (logReading, error) {
	for range maxReadings {
		raw, head, err := s.readRows(ctx, from)
		if err != nil {
			return logReading{}, err
		}
		r, err := s.assemble(raw, head, from, last)
		if !errors.Is(err, errShifted) {
			return r, err
		}
	}
	return logReading{}, store.Corruptf("log of %s has a gap after row %d that stays", s.partition, from-1)
}

// readRows reads all rows from a number on, and the head behind them.
func (s *Shard) readRows(ctx context.Context, from uint64) ([]store.Row, store.Row, error) {
	q := store.RangeQuery{From: logKey(from)}
	var rows []store.Row
	for range maxLogPages {
		page, err := s.cfg.Table.Range(ctx, s.partition, q)
		if err != nil {
			return nil, store.Row{}, fmt.Errorf("read log of %s: %w", s.partition, err)
		}
		rows = append(rows, page.Rows...)
		if n := len(rows); n > 0 && rows[n-1].Key == headKey {
			return rows[:n-1], rows[n-1], nil
		}
		if !page.More || len(page.Rows) == 0 {
			return nil, store.Row{}, ErrNoShard
		}
		q.From = store.NextKey(rows[len(rows)-1].Key)
	}
	return nil, store.Row{}, store.Corruptf("log of %s does not end", s.partition)
}

// assemble decodes rows and head and checks that the rows run without a gap
// from the one asked for to the head's.
func (s *Shard) assemble(raw []store.Row, headRow store.Row, from uint64, last *Head) (logReading, error) {
	head, err := decodeHead(s.partition, headRow.Data, last)
	if err != nil {
		return logReading{}, err
	}
	if err := s.contiguous(raw, from, &head); err != nil {
		return logReading{}, err
	}
	r := logReading{head: head, etag: headRow.ETag, rows: make([]logRow, len(raw))}
	for i, row := range raw {
		decoded, err := record.DecodeRow(from+uint64(i), row.Data)
		if err != nil {
			return logReading{}, fmt.Errorf("%s: %w", s.partition, err)
		}
		r.rows[i] = logRow{Row: decoded, size: len(row.Data)}
	}
	return r, nil
}

// contiguous checks the numbers of rows against the head.
func (s *Shard) contiguous(raw []store.Row, from uint64, head *Head) error {
	if head.Seq+1 < from {
		return store.Corruptf("head of %s is at row %d, before row %d that was read earlier", s.partition, head.Seq, from-1)
	}
	next := from
	for _, row := range raw {
		seq, err := parseLogKey(s.partition, row.Key)
		if err != nil {
			return err
		}
		if seq != next {
			break
		}
		next++
	}
	switch {
	case next == head.Seq+1 && int(next-from) == len(raw):
		return nil
	case head.Truncated >= next:
		return errTruncated
	default:
		return errShifted
	}
}
