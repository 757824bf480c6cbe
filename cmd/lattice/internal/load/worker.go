package load

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// idleFlush is how long a batch waits for more rows when none come.
const idleFlush = 500 * time.Millisecond

// worker sends the rows of its share of the keys, one request at a time.
type worker struct {
	l     *loader
	in    chan *item
	batch []*item
	// at finds a key in the batch.
	at map[string]int
	// rows and bytes count what the batch stands for, replaced rows included.
	rows, bytes int
}

// run sends until the input is closed; a batch that no rows join for a while
// is sent as it is.
func (w *worker) run() {
	tick := time.NewTicker(idleFlush)
	defer tick.Stop()
	busy := false
	for {
		select {
		case it, ok := <-w.in:
			if !ok {
				w.flush()
				return
			}
			busy = true
			w.add(it)
		case <-tick.C:
			if !busy {
				w.flush()
			}
			busy = false
		}
	}
}

// alone reports whether a row needs a request of its own: a batch has no
// content types and no room for a very large value.
func (w *worker) alone(it *item) bool {
	return it.row.ContentType != "" || it.size > w.l.BatchBytes*3/4
}

func (w *worker) add(it *item) {
	if w.alone(it) {
		if _, ok := w.at[it.row.Op.Key]; ok {
			w.flush()
		}
		w.sendAlone(it)
		return
	}
	if w.rows > 0 && w.bytes+it.size > w.l.BatchBytes {
		w.flush()
	}
	w.put(it)
	w.rows++
	w.bytes += it.size
	if w.rows == w.l.BatchOps {
		w.flush()
	}
}

// put adds an item to the batch, in the place of an earlier one of its key.
func (w *worker) put(it *item) {
	if i, ok := w.at[it.row.Op.Key]; ok {
		it.replaced = w.batch[i]
		w.batch[i] = it
		return
	}
	w.at[it.row.Op.Key] = len(w.batch)
	w.batch = append(w.batch, it)
}

func (w *worker) flush() {
	if len(w.batch) == 0 {
		return
	}
	w.send(w.batch)
	w.batch, w.rows, w.bytes = nil, 0, 0
	clear(w.at)
}

// live leaves out what has expired by now.
func (w *worker) live(items []*item) []*item {
	now := time.Now()
	kept := make([]*item, 0, len(items))
	for _, it := range items {
		for it != nil && expired(it, now) {
			w.l.Stats.Expired.Add(1)
			w.l.settle(it)
			it = it.replaced
		}
		if it != nil {
			kept = append(kept, it)
		}
	}
	return kept
}

func expired(it *item, now time.Time) bool {
	at := it.row.ExpiresAt
	return !at.IsZero() && !at.After(now)
}

// op is what an item says now: an expiry becomes the time left.
func (w *worker) op(it *item) client.Op {
	op := it.row.Op
	switch {
	case !it.row.ExpiresAt.IsZero():
		op.TTL = max(time.Until(it.row.ExpiresAt), time.Millisecond)
	case op.TTL == 0:
		op.TTL = w.l.TTL
	}
	return op
}

// send writes items in one request, or in several if the service refuses the
// whole because of some.
func (w *worker) send(items []*item) {
	items = w.attempts(items, func(items []*item) ([]*item, error) {
		b := client.Batch{Ops: make([]client.Op, len(items))}
		for i, it := range items {
			b.Ops[i] = w.op(it)
		}
		results, err := w.l.target.Batch(w.l.requests, b)
		if err != nil {
			return items, err
		}
		return w.account(items, results)
	}, w.split)
	w.abandon(items)
}

// sendAlone writes one item in a request of its own.
func (w *worker) sendAlone(it *item) {
	items := w.attempts([]*item{it}, func(items []*item) ([]*item, error) {
		op := w.op(it)
		value, contentType := op.Value, it.row.ContentType
		if op.JSON != nil {
			value = op.JSON
		}
		if contentType == "" {
			contentType = contentTypeOf(op)
		}
		_, err := w.l.target.Set(w.l.requests, op.Key, value, client.SetOptions{ContentType: contentType, TTL: op.TTL})
		if err != nil {
			return items, err
		}
		w.written(it)
		return nil, nil
	}, w.split)
	w.abandon(items)
}

// contentTypeOf is what the service stores for an operation of a batch.
func contentTypeOf(op client.Op) string {
	switch {
	case op.JSON != nil:
		return "application/json"
	case op.Text:
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// attempts calls try until no items are left, and returns those that had to be
// given up because the run fails. try returns what is left after an attempt.
func (w *worker) attempts(items []*item, try func([]*item) ([]*item, error), split func([]*item, error)) []*item {
	start := time.Now()
	for n := 1; ; n++ {
		if items = w.live(items); len(items) == 0 {
			return nil
		}
		if w.l.stop.Err() != nil || !w.l.gate.wait(w.l.stop) {
			return items
		}
		left, err := try(items)
		if answered(err) {
			w.l.reached.Store(true)
		}
		if items = left; err == nil {
			return items
		}
		switch {
		case refusesContent(err):
			split(items, err)
			return nil
		case w.l.requests.Err() != nil:
			w.l.fail(fmt.Errorf("write rows: %w", err))
			return items
		case !client.Retryable(err):
			w.l.fail(fmt.Errorf("write rows: %w", err))
			return items
		}
		if !w.pause(n, start, err) {
			return items
		}
	}
}

// pause waits for the service, and makes all workers wait.
func (w *worker) pause(n int, start time.Time, err error) bool {
	wait := client.Pause(n, 100*time.Millisecond, 10*time.Second, err)
	if time.Since(start)+wait > w.l.patience() {
		w.l.fail(fmt.Errorf("%w: %w", ErrPatience, err))
		return false
	}
	if w.l.OnWait != nil {
		w.l.OnWait(wait, err)
	}
	w.l.Stats.Waiting.Add(1)
	defer w.l.Stats.Waiting.Add(-1)
	w.l.gate.close(wait)
	return w.l.gate.wait(w.l.stop)
}

// answered reports whether the service was there, whatever it said.
func answered(err error) bool {
	var e *client.Error
	return err == nil || errors.As(err, &e)
}

// patience is how long one batch is tried by now.
func (l *loader) patience() time.Duration {
	if l.reached.Load() {
		return l.RetryFor
	}
	return min(l.RetryFor, l.FirstContact)
}

// account settles what the service answered for each item. What it could not
// do just now is left.
func (w *worker) account(items []*item, results []client.OpResult) (left []*item, busy error) {
	for i, it := range items {
		err := results[i].Err()
		switch {
		case err == nil:
			w.written(it)
		case passing(err):
			left, busy = append(left, it), &client.Error{Status: http.StatusServiceUnavailable, Code: client.Code(results[i].Status), Detail: results[i].Detail}
		default:
			w.reject(it, err)
		}
	}
	return left, busy
}

// passing reports whether one key's refusal is a passing trouble.
func passing(err error) bool {
	for _, c := range []client.Code{client.ErrStorageThrottled, client.ErrRoutingUnstable, client.ErrTopologyUnstable, client.ErrUnavailable, client.ErrQuotaExceeded} {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

func (w *worker) written(it *item) {
	for ; it != nil; it = it.replaced {
		w.l.Stats.Written.Add(1)
		w.l.settle(it)
	}
}

// reject refuses an item, and writes the one that it had replaced.
func (w *worker) reject(it *item, err error) {
	w.l.reject(&rows.Fault{Line: it.row.Line, Key: it.row.Op.Key, Reason: reason(err), Raw: it.row.Raw})
	w.l.settle(it)
	if it.replaced != nil {
		w.send([]*item{it.replaced})
	}
}

// reason is a refusal in one line.
func reason(err error) string {
	var e *client.Error
	if errors.As(err, &e) && e.Code != "" {
		if e.Detail == "" {
			return string(e.Code)
		}
		return string(e.Code) + ": " + e.Detail
	}
	return err.Error()
}

// refusesContent reports whether a request was refused for what is in it.
func refusesContent(err error) bool {
	if errors.Is(err, client.ErrInvalidKey) || errors.Is(err, client.ErrInvalidRequest) {
		return true
	}
	var e *client.Error
	if !errors.As(err, &e) || e.Code == client.ErrDigestMismatch {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// split finds the rows because of which a request was refused: the one that
// the answer names, or by halves.
func (w *worker) split(items []*item, err error) {
	if len(items) == 1 {
		w.reject(items[0], err)
		return
	}
	var e *client.Error
	if errors.As(err, &e) && e.Key != "" {
		for i, it := range items {
			if it.row.Op.Key == e.Key {
				w.reject(it, err)
				w.send(append(items[:i:i], items[i+1:]...))
				return
			}
		}
	}
	half := len(items) / 2
	w.send(items[:half:half])
	w.send(items[half:])
}

// abandon gives up items whose end stays open: their memory is freed, and the
// tracker keeps them.
func (w *worker) abandon(items []*item) {
	for _, it := range items {
		for ; it != nil; it = it.replaced {
			w.l.memory.Release(it.weight)
		}
	}
}
