package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// Operations are counted so that a monitor can tell hot shards. Writes and
// reads go into the head with the appends that are made anyway. Where there are
// only reads, each instance keeps a small row of its own beside the log, which a
// reader brings up to date now and then.
const (
	counterPrefix = "count-"
	// reportInterval is the least time between two such rows of an instance.
	reportInterval = 10 * time.Second
	// counterLife is how long the row of an instance outlives its last report.
	counterLife = 24 * time.Hour
)

// counterFormat holds the reads that an instance has reported, and the Unix
// millisecond of the report.
var counterFormat = frame.Format{Magic: "LTCN", Version: 1, MaxSize: 16}

// Hotness is what a monitor samples of a shard.
type Hotness struct {
	// Reads and Writes are operations since the shard was created. They fall
	// when counters of instances that are long gone are collected.
	Reads, Writes uint64
	// Live and Bytes estimate the live entries and their user data.
	Live, Bytes int64
	// TailRows is the number of log rows that no checkpoint holds yet.
	TailRows int64
	// Pins counts the states that are kept for snapshots; OldestPin is the Unix
	// millisecond of the oldest of them, 0 if there is none.
	Pins      int
	OldestPin int64
	// Outgoing and Incoming say that the shard takes part in a migration.
	Outgoing, Incoming bool
}

// Hotness samples the shard: one query, and nothing is changed.
func (s *Shard) Hotness(ctx context.Context) (Hotness, error) {
	rows, err := s.counters(ctx)
	if err != nil {
		return Hotness{}, err
	}
	last := len(rows) - 1
	if last < 0 || rows[last].Key != headKey {
		return Hotness{}, ErrNoShard
	}
	h, err := decodeHead(s.partition, rows[last].Data, nil)
	if err != nil {
		return Hotness{}, err
	}
	hot := Hotness{
		Reads: h.Reads, Writes: h.Writes, Live: h.Live, Bytes: h.Bytes,
		TailRows: int64(h.Seq - h.Meta().Checkpoint.Seq),
		Outgoing: h.Meta().Outgoing != nil, Incoming: len(h.Meta().Incoming) > 0,
	}
	hot.notePins(s, h.Meta().Pins)
	for _, row := range rows[:last] {
		reads, _, err := s.decodeCounter(row)
		if err != nil {
			return Hotness{}, err
		}
		hot.Reads += reads
	}
	return hot, nil
}

// notePins counts the pins that somebody may rely on.
func (hot *Hotness) notePins(s *Shard, pins []Pin) {
	now := s.cfg.Clock.Now()
	for i := range pins {
		if s.overdue(&pins[i], now) {
			continue
		}
		hot.Pins++
		if at := pins[i].Cut.Milli(); hot.OldestPin == 0 || at < hot.OldestPin {
			hot.OldestPin = at
		}
	}
}

// counters returns the rows of counters and, last, the head.
func (s *Shard) counters(ctx context.Context) ([]store.Row, error) {
	var rows []store.Row
	q := store.RangeQuery{From: counterPrefix, To: store.NextKey(headKey)}
	for range maxLogPages {
		var page store.Page
		err := s.retry(ctx, func() (err error) {
			page, err = s.cfg.Table.Range(ctx, s.partition, q)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", s.partition, err)
		}
		rows = append(rows, page.Rows...)
		if !page.More || len(page.Rows) == 0 {
			return rows, nil
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
	return nil, store.Corruptf("counters of %s do not end", s.partition)
}

func (s *Shard) decodeCounter(row store.Row) (reads uint64, at int64, err error) {
	where := fmt.Sprintf("row %s of %s", row.Key, s.partition)
	body, err := counterFormat.Open(where, row.Data)
	if err != nil {
		return 0, 0, err
	}
	if len(body) != 16 {
		return 0, 0, store.Corruptf("%s holds %d bytes", where, len(body))
	}
	return binary.BigEndian.Uint64(body), int64(binary.BigEndian.Uint64(body[8:])), nil
}

// counted counts one read.
func (s *Shard) counted() { s.reads.Add(1) }

// reportDue reports whether reads have been waiting for long, so that a reader
// should see to it.
func (s *Shard) reportDue(mono time.Duration) bool {
	return int64(mono) >= s.reportAt.Load() && s.reads.Load() > 0
}

// report writes the reads that no append has taken along to the row of this
// object. What fails is left to the next.
func (s *Shard) report(ctx context.Context) {
	now := s.cfg.Clock.Now()
	due := s.reportAt.Load()
	if int64(now.Mono) < due || !s.reportAt.CompareAndSwap(due, int64(now.Mono+reportInterval)) {
		return
	}
	s.counting.Lock()
	defer s.counting.Unlock()
	n := s.reads.Load()
	if due == 0 || n == 0 {
		return // the first interval has only begun
	}
	body := binary.BigEndian.AppendUint64(nil, s.reported+uint64(n))
	op := store.Insert(s.counterKey(), counterFormat.Seal(binary.BigEndian.AppendUint64(body, uint64(now.Milli()))))
	if s.counterTag != "" {
		op = store.Replace(op.Key, op.Data, s.counterTag)
	}
	etags, err := s.cfg.Table.Apply(ctx, s.partition, []store.Op{op})
	if err == nil {
		s.counterTag, s.reported = etags[0], s.reported+uint64(n)
		s.reads.Add(-n)
		return
	}
	if !store.Transient(err) {
		s.readCounter(ctx)
	}
}

// readCounter reads this object's row back after a report of unknown outcome.
func (s *Shard) readCounter(ctx context.Context) {
	row, err := s.cfg.Table.Get(ctx, s.partition, s.counterKey())
	if errors.Is(err, store.ErrNotFound) {
		s.counterTag, s.reported = "", 0
	}
	if err != nil {
		return
	}
	if reads, _, err := s.decodeCounter(row); err == nil {
		s.reads.Add(int64(s.reported) - int64(reads))
		s.counterTag, s.reported = row.ETag, reads
	}
}

func (s *Shard) counterKey() string { return fmt.Sprintf("%s%016x", counterPrefix, s.owner) }

// findCounters adds to the garbage the counters of instances that are gone.
func (s *Shard) findCounters(ctx context.Context, g *garbage) error {
	rows, err := s.counters(ctx)
	if err != nil {
		return err
	}
	limit := s.cfg.Clock.Now().Milli() - counterLife.Milliseconds()
	for _, row := range rows {
		if row.Key == headKey {
			continue
		}
		_, at, err := s.decodeCounter(row)
		if err != nil {
			return err
		}
		if at < limit {
			g.rows = append(g.rows, row.Key)
		}
	}
	return nil
}
