package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// errTruncated: rows that a reader needs are gone; a checkpoint holds them.
var errTruncated = errors.New("log truncated")

// errShifted: rows and head do not fit together, because the log changed while
// it was read. Reading again helps.
var errShifted = errors.New("log changed while it was read")

// maxLogPages bounds one reading of the log, maxReadings how often it is
// begun anew.
const (
	maxLogPages = 10_000
	maxReadings = 16
)

// logReading is the outcome of one reading: rows without a gap up to the head,
// oldest first.
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

// readLog reads the head and the rows from a number on, or from the head's
// checkpoint on if the number is 0: in one query where they fit a page. It reads
// again while they do not fit together. errTruncated says that the rows are
// gone, ErrNoShard that there is no head.
func (s *Shard) readLog(ctx context.Context, from uint64, last *Head) (logReading, error) {
	for try := 1; ; try++ {
		r, err := s.readOnce(ctx, from, last)
		shifted := errors.Is(err, errShifted)
		switch {
		case shifted && try < maxReadings:
			continue
		case (shifted || from == 0 && errors.Is(err, errTruncated)) && r.head.Meta().Closed:
			// A shard that is being destroyed has gaps. One that is only closed may have
			// lost the rows of a reader who remembers an old place, and is read anew.
			return r, ErrClosed
		case shifted:
			return logReading{}, store.Corruptf("log of %s has a gap that stays", s.partition)
		}
		return r, err
	}
}

// readOnce reads the head and then the rows from the newest down. A later head
// cannot do harm: its rows lie behind the reader.
func (s *Shard) readOnce(ctx context.Context, from uint64, last *Head) (logReading, error) {
	limit := 0
	if from == 0 {
		limit = min(store.MaxPageRows, s.tuning.Load().CheckpointTailRows+coldMargin)
	}
	page, err := s.cfg.Table.Range(ctx, s.partition, sinceQuery(from, limit))
	if err != nil {
		return logReading{}, fmt.Errorf("read log of %s: %w", s.partition, err)
	}
	if len(page.Rows) == 0 || page.Rows[0].Key != headKey {
		return logReading{}, ErrNoShard
	}
	r := logReading{etag: page.Rows[0].ETag}
	if r.head, err = decodeHead(s.partition, page.Rows[0].Data, last); err != nil {
		return logReading{}, err
	}
	if from == 0 {
		from = r.head.Meta().Checkpoint.Seq + 1
	}
	if r.head.Seq+1 < from {
		return logReading{}, store.Corruptf("head of %s is at row %d, before row %d that was read earlier", s.partition, r.head.Seq, from-1)
	}
	raw, err := s.readRows(ctx, page, from, int(r.head.Seq+1-from))
	if err != nil {
		return r, err
	}
	err = s.decodeRows(&r, raw, from)
	return r, err
}

// coldMargin is how many rows beyond a checkpoint's threshold a cold instance
// asks for at once.
const coldMargin = 100

// readRows returns the n rows from a number on, newest first, beginning with
// what the first page holds after the head.
func (s *Shard) readRows(ctx context.Context, page store.Page, from uint64, n int) ([]store.Row, error) {
	rows := page.Rows[1:]
	for pages := 1; len(rows) < n && page.More; pages++ {
		if pages == maxLogPages {
			return nil, store.Corruptf("log of %s does not end", s.partition)
		}
		q := sinceQuery(from, 0)
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
		var err error
		if page, err = s.cfg.Table.Range(ctx, s.partition, q); err != nil {
			return nil, fmt.Errorf("read log of %s: %w", s.partition, err)
		}
		rows = append(rows, page.Rows...)
		if len(page.Rows) == 0 {
			break
		}
	}
	return rows[:min(n, len(rows))], nil
}

// decodeRows checks that the rows run without a gap from the head's down to the
// one asked for, and decodes them.
func (s *Shard) decodeRows(r *logReading, raw []store.Row, from uint64) error {
	want := r.head.Seq
	for _, row := range raw {
		seq, err := parseLogKey(s.partition, row.Key)
		if err != nil {
			return err
		}
		if seq != want {
			break
		}
		decoded, err := record.DecodeRow(seq, row.Data)
		if err != nil {
			return fmt.Errorf("%s: %w", rowName(s.partition, seq), err)
		}
		r.rows = append(r.rows, logRow{Row: decoded, size: len(row.Data)})
		want--
	}
	switch {
	case want+1 == from:
		slices.Reverse(r.rows)
		return nil
	case r.head.Truncated >= want:
		return errTruncated
	default:
		return errShifted
	}
}

// readBetween reads the rows from one number to another, both included, oldest
// first. They must be there: errTruncated if they are not.
func (s *Shard) readBetween(ctx context.Context, first, last uint64) ([]record.Row, error) {
	q := store.RangeQuery{From: logKey(last), To: store.NextKey(logKey(first))}
	var out []record.Row
	want := last
	for want >= first {
		var page store.Page
		err := s.retry(ctx, func() (err error) {
			page, err = s.cfg.Table.Range(ctx, s.partition, q)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			if row.Key != logKey(want) {
				return nil, errTruncated
			}
			decoded, err := record.DecodeRow(want, row.Data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rowName(s.partition, want), err)
			}
			out = append(out, decoded)
			want--
		}
		if len(page.Rows) == 0 {
			return nil, errTruncated
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
	slices.Reverse(out)
	return out, nil
}
