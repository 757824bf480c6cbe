// Package heartbeat keeps a row for each scheduled function that says when it
// last ran and how that ended, whichever instance ran it. A schedule that has
// stopped shows in the age of the last success.
//
// A heartbeat is a note, not a lock: ticks do not wait for each other because
// of it, and one that could not be written is no reason for a tick to fail.
package heartbeat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

const (
	// partition is the one that the cluster's own rows share.
	partition = "cluster"
	// prefix stands before the timer's name in a row key, end is past all of
	// them.
	prefix = "timer-"
	end    = "timer."
	// maxTimers bounds the rows that are read.
	maxTimers = 100
	// Interval is how often an instance writes the row of a timer whose ticks
	// end as they did before.
	Interval = 10 * time.Second
	// maxAhead is how far in the future a time may lie that another instance
	// wrote. What lies further is a clock that was wrong, and would hide for as
	// long that nothing ticks.
	maxAhead = time.Minute
)

var format = frame.Format{Magic: "LTHB", Version: 1, MaxSize: 8 << 10}

// Run is a tick that is over.
type Run struct {
	// Timer is its name: lower case letters.
	Timer string
	// Started is when it began, by the clock of this instance.
	Started clock.Instant
	// Failed counts the shards and trees that it could not look after.
	Failed int
	// Err is why the tick as a whole failed, or the first fault if Failed is not
	// 0, or nil.
	Err error
	// Success says that the tick as a whole did not fail.
	Success bool
}

// outcome is what two ticks may have in common.
type outcome uint8

const (
	wentWell outcome = iota + 1
	inPart
	wentWrong
)

func outcomeOf(success bool, failed int) outcome {
	switch {
	case !success:
		return wentWrong
	case failed > 0:
		return inPart
	}
	return wentWell
}

func (r *Run) outcome() outcome { return outcomeOf(r.Success, r.Failed) }

// Beat is what is known of a timer, from all instances together.
type Beat struct {
	// Timer is its name.
	Timer string
	// Started, Took, Failed, Error and Instance tell of the latest tick that was
	// recorded. Error is empty if nothing went wrong.
	Started  time.Time
	Took     time.Duration
	Failed   int
	Error    string
	Instance string
	// Finished is when that tick ended, Succeeded when the latest one ended that
	// succeeded; zero if none has yet.
	Finished, Succeeded time.Time
}

// row is a Beat as it is stored; times are Unix milliseconds.
type row struct {
	Started   int64  `json:"started"`
	Finished  int64  `json:"finished"`
	Succeeded int64  `json:"succeeded,omitempty"`
	Success   bool   `json:"success,omitempty"`
	Failed    int    `json:"failed,omitempty"`
	Error     string `json:"error,omitempty"`
	Instance  string `json:"instance"`
	TookMs    int64  `json:"tookMs"`
	etag      store.ETag
}

// outcome is that of the tick that the row tells of.
func (r *row) outcome() outcome { return outcomeOf(r.Success, r.Failed) }

// ahead reports whether the row was written by a clock that was wrong.
func (r *row) ahead(now clock.Instant) bool {
	return max(r.Started, r.Finished, r.Succeeded) > now.Milli()+maxAhead.Milliseconds()
}

// Book records and reads heartbeats. It is safe for concurrent use.
type Book struct {
	table    store.Table
	clock    clock.Source
	instance string

	mu sync.Mutex
	// noted is what this instance last found or left in each row.
	noted map[string]note
}

type note struct {
	at      clock.Instant
	outcome outcome
}

// New returns a Book. instance names this process among all.
func New(table store.Table, c clock.Source, instance uint64) *Book {
	return &Book{table: table, clock: c, instance: fmt.Sprintf("%016x", instance), noted: map[string]note{}}
}

// Record notes a tick that has just ended. It costs nothing when the row is
// younger than Interval and ticks end as before, otherwise one read and at most
// one write. Who loses a race against another instance leaves it at that: what
// that one wrote is as new. Times in a row never go back, unless they were far
// in the future.
//
// The row is durable when Record returns nil and wrote it; an error says that
// it may not have been written, and the next tick tries again.
func (b *Book) Record(ctx context.Context, r Run) error {
	now := b.clock.Now()
	if b.recent(r.Timer, r.outcome(), now) {
		return nil
	}
	stored, err := b.load(ctx, r.Timer)
	if err != nil {
		return fmt.Errorf("record a tick of %s: %w", r.Timer, err)
	}
	next := stored.after(&r, now, b.instance)
	if stored.fresh(next, now) {
		b.note(r.Timer, r.outcome(), now)
		return nil
	}
	switch err := b.save(ctx, r.Timer, next); {
	case store.LostRace(err):
		return nil
	case err != nil:
		return fmt.Errorf("record a tick of %s: %w", r.Timer, err)
	}
	b.note(r.Timer, r.outcome(), now)
	return nil
}

// recent reports whether this instance knows that the row says the same, and is
// young. Either clock makes it old: one stops in a freeze, the other may jump.
func (b *Book) recent(timer string, o outcome, now clock.Instant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.noted[timer]
	wall := time.Duration(now.Wall - n.at.Wall)
	return ok && n.outcome == o && now.Mono-n.at.Mono < Interval && wall >= 0 && wall < Interval
}

func (b *Book) note(timer string, o outcome, now clock.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noted[timer] = note{now, o}
}

// after returns the row that follows when a tick ended now: the latest of both.
func (r *row) after(x *Run, now clock.Instant, instance string) *row {
	next := *r
	if r.ahead(now) {
		next = row{etag: r.etag}
	}
	if x.Success {
		next.Succeeded = max(next.Succeeded, now.Milli())
	}
	if started := x.Started.Milli(); started >= next.Started {
		next.Started, next.Finished = started, now.Milli()
		next.Success, next.Failed, next.Error, next.Instance = x.Success, x.Failed, clean(x.Err), instance
		next.TookMs = (now.Mono - x.Started.Mono).Milliseconds()
	}
	return &next
}

// fresh reports whether the stored row says what the next one would, and is
// young enough to be left.
func (r *row) fresh(next *row, now clock.Instant) bool {
	if r.etag == "" || r.ahead(now) || r.outcome() != next.outcome() {
		return false
	}
	gap := now.Milli() - r.Finished
	return next.Finished <= r.Finished && next.Succeeded <= r.Succeeded || gap >= 0 && gap < Interval.Milliseconds()
}

// load reads the row of a timer; one that does not exist is empty.
func (b *Book) load(ctx context.Context, timer string) (*row, error) {
	stored, err := b.table.Get(ctx, partition, prefix+timer)
	if errors.Is(err, store.ErrNotFound) {
		return &row{}, nil
	}
	if err != nil {
		return nil, err
	}
	return decode(stored)
}

func decode(stored store.Row) (*row, error) {
	where := fmt.Sprintf("row %s of %s", stored.Key, partition)
	body, err := format.Open(where, stored.Data)
	if err != nil {
		return nil, err
	}
	r := &row{etag: stored.ETag}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, store.Corruptf("%s: %v", where, err)
	}
	if r.Started < 0 || r.Finished < 0 || r.Succeeded < 0 || r.Failed < 0 {
		return nil, store.Corruptf("%s: a time or count is negative", where)
	}
	return r, nil
}

func (b *Book) save(ctx context.Context, timer string, r *row) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	op := store.Insert(prefix+timer, format.Seal(body))
	if r.etag != "" {
		op = store.Replace(op.Key, op.Data, r.etag)
	}
	_, err = b.table.Apply(ctx, partition, []store.Op{op})
	return err
}

// Read returns what is known of every timer that has ticked, by name: one read.
func (b *Book) Read(ctx context.Context) ([]Beat, error) {
	page, err := b.table.Range(ctx, partition, store.RangeQuery{From: prefix, To: end, Limit: maxTimers})
	if err != nil {
		return nil, fmt.Errorf("read the heartbeats: %w", err)
	}
	beats := make([]Beat, 0, len(page.Rows))
	for _, stored := range page.Rows {
		r, err := decode(stored)
		if err != nil {
			return nil, err
		}
		beats = append(beats, Beat{
			Timer: stored.Key[len(prefix):], Started: timeOf(r.Started), Took: time.Duration(r.TookMs) * time.Millisecond,
			Failed: r.Failed, Error: r.Error, Instance: r.Instance, Finished: timeOf(r.Finished), Succeeded: timeOf(r.Succeeded),
		})
	}
	return beats, nil
}

func timeOf(milli int64) time.Time {
	if milli == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milli).UTC()
}

// Age is the time since the timer last succeeded, never below 0: clocks differ.
func (b *Beat) Age(now time.Time) time.Duration { return max(now.Sub(b.Succeeded), 0) }
