package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
)

// scanner walks the entries of a tree in order, across views that expire and
// maps that move: it opens the merge anew after the last key it has passed.
type scanner struct {
	t        *Tree
	bounds   Bounds // of what is still to come
	reverse  bool
	keysOnly bool
	read     shard.ReadOptions

	merge *merge
	// passed says that the top of the merge was taken and is to be left.
	passed bool
	// failures counts reopenings since the last entry, opens all openings.
	failures, opens int
	// openedAt is the monotonic time of the last one.
	openedAt time.Duration
	// opened, unless nil, opens the merge in another way: on a snapshot.
	opened func(ctx context.Context, b Bounds) (*merge, error)
	// treeID is the tree that the scan began in; another one of the same name
	// does not continue it.
	treeID  string
	retries int
}

func (t *Tree) newScanner(q *ScanQuery) *scanner {
	return &scanner{
		t: t, bounds: q.Bounds, reverse: q.Reverse, keysOnly: q.KeysOnly, read: shard.ReadOptions(q.Read),
	}
}

// peek returns the next entry without passing it: nil at the end. Large values
// are not loaded.
func (s *scanner) peek(ctx context.Context) (*record.Entry, error) {
	for {
		e, err := s.tryPeek(ctx)
		if err == nil {
			return e, nil
		}
		if err := s.reopen(err); err != nil {
			return nil, err
		}
	}
}

func (s *scanner) tryPeek(ctx context.Context) (*record.Entry, error) {
	if s.bounds.empty() {
		return nil, nil
	}
	if s.merge == nil {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	if s.passed {
		s.passed = false
		if err := s.merge.step(ctx); err != nil {
			return nil, err
		}
	}
	e, _ := s.merge.top()
	return e, nil
}

func (s *scanner) open(ctx context.Context) (err error) {
	if s.opened != nil {
		s.passed = false
		s.merge, err = s.opened(ctx, s.bounds)
		return err
	}
	return s.t.routed(ctx, func(m *meta) (err error) {
		if s.treeID != "" && s.treeID != m.ID {
			return fmt.Errorf("tree %q was replaced during a scan: %w", s.t.name, ErrTopologyUnstable)
		}
		s.treeID, s.retries = m.ID, m.opts.MaxScanRetries
		s.passed = false
		s.opens, s.openedAt = s.opens+1, s.t.db.clock.Now().Mono
		s.merge, err = s.t.openMerge(ctx, m, s.bounds, s.reverse, s.read)
		return err
	})
}

// reopen drops the views when they have expired, so that the next peek takes
// new ones; every other error is returned, and so is one too many in a row.
func (s *scanner) reopen(err error) error {
	if !errors.Is(err, shard.ErrViewExpired) {
		return err
	}
	if s.failures++; s.failures > s.retries {
		return fmt.Errorf("%w: %w", ErrTopologyUnstable, err)
	}
	s.renew()
	return nil
}

// renew makes the next peek prove its views anew.
func (s *scanner) renew() { s.merge, s.passed, s.read.MaxAge = nil, false, 0 }

// next returns the next entry, with its value, and passes it; false at the end.
func (s *scanner) next(ctx context.Context) (Item, bool, error) {
	for {
		e, err := s.peek(ctx)
		if err != nil || e == nil {
			return Item{}, false, err
		}
		it, err := s.complete(ctx)
		if err == nil {
			s.pass(it.Key)
			return it, true, nil
		}
		if err := s.reopen(err); err != nil {
			return Item{}, false, err
		}
	}
}

// complete makes an Item of the entry that peek returned.
func (s *scanner) complete(ctx context.Context) (Item, error) {
	e, v := s.merge.top()
	it := itemOf(e)
	if s.keysOnly {
		it.Value = nil
		return it, nil
	}
	var err error
	it.Value, err = v.Load(ctx, e)
	return it, err
}

func (s *scanner) pass(key string) {
	s.bounds = s.bounds.after(key, s.reverse)
	s.passed, s.failures = true, 0
}

// size is what an entry adds to a page.
func (s *scanner) size(e *record.Entry) int64 {
	if s.keysOnly {
		return int64(len(e.Key))
	}
	return e.Size()
}

// Scan returns one page of the entries in a range, in bytewise order of keys.
// Each entry is as it was at some moment during the call; MaxAge allows an
// older one. A token that is damaged, of another tree or of another query is an
// *ArgumentError. An empty or inverted range has no entries.
func (t *Tree) Scan(ctx context.Context, q ScanQuery) (ScanPage, error) {
	if q.Limit < 1 || q.Limit > t.db.opts.MaxPageEntries {
		return ScanPage{}, &ArgumentError{Field: "limit", Reason: fmt.Sprintf("must be 1 to %d", t.db.opts.MaxPageEntries)}
	}
	if q.MaxBytes < 0 {
		return ScanPage{}, &ArgumentError{Field: "maxBytes", Reason: "must not be negative"}
	}
	if q.MaxBytes == 0 || q.MaxBytes > t.db.opts.MaxPageBytes {
		q.MaxBytes = t.db.opts.MaxPageBytes
	}
	s := t.newScanner(&q)
	if q.Token != "" {
		if err := t.resume(ctx, s, &q); err != nil {
			return ScanPage{}, err
		}
	}
	if s.bounds.empty() {
		_, err := t.meta(ctx)
		return ScanPage{}, err
	}
	return s.page(ctx, &q)
}

// resume sets the scanner behind the page that a token ends.
func (t *Tree) resume(ctx context.Context, s *scanner, q *ScanQuery) error {
	m, err := t.meta(ctx)
	if err != nil {
		return err
	}
	last, err := t.openToken(ctx, m.ID, q)
	if err != nil {
		return err
	}
	s.treeID, s.bounds = m.ID, q.Bounds.after(last, q.Reverse)
	return nil
}

// page fills a page, and looks one entry ahead: only if there is one has the
// page a token. Should its views expire, the page begins anew: it is to show
// atomic batches whole or not at all.
func (s *scanner) page(ctx context.Context, q *ScanQuery) (ScanPage, error) {
	start := s.bounds
	for try := 0; ; try++ {
		page, whole, err := s.tryPage(ctx, q)
		if err != nil || whole {
			return page, err
		}
		if try == retryReads {
			return ScanPage{}, fmt.Errorf("a page was overtaken again and again: %w", ErrTopologyUnstable)
		}
		s.bounds = start
		s.renew()
	}
}

// tryPage is page; whole is false if its entries came from views of more than one
// moment.
func (s *scanner) tryPage(ctx context.Context, q *ScanQuery) (page ScanPage, whole bool, err error) {
	var bytes int64
	opens := 0
	for {
		e, err := s.peek(ctx)
		if len(page.Items) == 0 {
			opens = s.opens
		} else if s.opens != opens {
			return ScanPage{}, false, nil
		}
		if err != nil || e == nil {
			return page, true, err
		}
		n := len(page.Items)
		bytes += s.size(e)
		if n == q.Limit || n > 0 && bytes > q.MaxBytes {
			page.NextToken, err = s.t.sealToken(ctx, s.treeID, q, page.Items[n-1].Key)
			return page, true, err
		}
		it, ok, err := s.next(ctx)
		if err != nil || !ok {
			return page, true, err
		}
		page.Items = append(page.Items, it)
	}
}

// Stream calls fn with every entry of the range in order and returns how many.
// Limit, MaxBytes and Token of q are ignored. The entries are those of one moment,
// as long as the stream takes no longer than half of BlobGracePeriod: then newer
// views are taken, and a snapshot cursor is the better way. Memory does not depend
// on the range. An error of fn ends
// the stream and is returned. The Item is valid during the call of fn.
func (t *Tree) Stream(ctx context.Context, q ScanQuery, fn func(*Item) error) (int64, error) {
	if q.Bounds.empty() {
		_, err := t.meta(ctx)
		return 0, err
	}
	s := t.newScanner(&q)
	var n int64
	for {
		it, ok, err := s.next(ctx)
		if err != nil || !ok {
			return n, err
		}
		if err := fn(&it); err != nil {
			return n, err
		}
		if n++; t.db.clock.Now().Mono-s.openedAt > t.db.opts.BlobGracePeriod/2 {
			s.renew()
		}
	}
}

// deleteChunk is how many keys a range delete removes at a time.
const deleteChunk = 1000

// DeleteRange removes every key of the range and returns how many it removed,
// exactly. A key that is written while it runs may be removed or not. After an
// error some keys are removed, durably; repeating it removes the rest.
func (t *Tree) DeleteRange(ctx context.Context, b Bounds) (int64, error) {
	s := t.newScanner(&ScanQuery{Bounds: b, KeysOnly: true})
	var deleted int64
	for {
		writes := make([]shard.Write, 0, deleteChunk)
		for len(writes) < deleteChunk {
			it, ok, err := s.next(ctx)
			if err != nil {
				return deleted, err
			}
			if !ok {
				break
			}
			writes = append(writes, shard.Write{Op: shard.OpDelete, Key: it.Key})
		}
		results, err := t.writeAll(ctx, writes)
		for _, r := range results {
			if r.Status == shard.StatusApplied && r.Existed {
				deleted++
			}
		}
		if err != nil || len(writes) < deleteChunk {
			return deleted, err
		}
	}
}
