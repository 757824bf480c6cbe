package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// CollectReport says what a Collect removed.
type CollectReport struct {
	// Rows and Blobs are the numbers deleted.
	Rows, Blobs int
}

const (
	// collectPages bounds the pages of rows and of blobs that one Collect looks
	// at; the next one goes on.
	collectPages = 20
)

// garbage is what one Collect found.
type garbage struct {
	// truncate is the row up to which all are checkpointed and past their grace.
	truncate uint64
	rows     []string
	blobs    []string
}

// Collect deletes log rows that a checkpoint covers and blobs that nothing
// refers to, both after their grace.
//
// Before it deletes anything it appends a fence. An instance that was frozen
// between storing a blob and logging a reference to it loses that race and
// judges again, and then sees how much time has passed. What is referred to is
// worked out once more after the fence.
func (s *Shard) Collect(ctx context.Context) (CollectReport, error) {
	var rep CollectReport
	if err := s.refresh(ctx); err != nil {
		return rep, err
	}
	if _, overdue := s.livePins(); overdue {
		if err := s.dropPins(ctx); err != nil {
			return rep, err
		}
	}
	g, err := s.findGarbage(ctx)
	if err != nil || len(g.rows)+len(g.blobs) == 0 {
		return rep, err
	}
	if err := s.fence(ctx, g); err != nil {
		if errors.Is(err, errLeaseHeld) {
			return rep, nil
		}
		return rep, err
	}
	if g.blobs, err = s.unreferenced(ctx, g.blobs); err != nil {
		return rep, err
	}
	if rep.Blobs, err = s.deleteBlobs(ctx, g.blobs); err != nil {
		return rep, err
	}
	rep.Rows, err = s.deleteRows(ctx, g.rows)
	return rep, err
}

func (s *Shard) findGarbage(ctx context.Context) (garbage, error) {
	var g garbage
	if err := s.findRows(ctx, &g); err != nil {
		return g, err
	}
	if err := s.findCounters(ctx, &g); err != nil {
		return g, err
	}
	old, err := s.oldBlobs(ctx)
	if err != nil || len(old) == 0 {
		return g, err
	}
	g.blobs, err = s.unreferenced(ctx, old)
	return g, err
}

// findRows lists the rows that the checkpoint covers and whose grace is over, by
// the time they carry, newest first. Once a row is old enough all older ones
// are.
func (s *Shard) findRows(ctx context.Context, g *garbage) error {
	s.mu.RLock()
	covered := s.st.head.Meta().Checkpoint.Seq
	if out := s.st.head.Meta().Outgoing; out != nil {
		covered = min(covered, out.Since)
	}
	s.mu.RUnlock()
	pins, _ := s.livePins()
	for i := range pins {
		covered = min(covered, pins[i].Seq)
	}
	limit := s.cfg.Clock.Now().Milli() - s.cfg.WalGracePeriod.Milliseconds()
	q := throughQuery(covered)
	for range collectPages {
		page, err := s.cfg.Table.Range(ctx, s.partition, q)
		if err != nil {
			return fmt.Errorf("list old rows of %s: %w", s.partition, err)
		}
		for _, r := range page.Rows {
			if err := s.findRow(g, r, limit); err != nil {
				return err
			}
		}
		if !page.More || len(page.Rows) == 0 {
			return nil
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
	return nil
}

// findRow adds a row to the garbage if it was appended up to the limit, a Unix
// millisecond.
func (s *Shard) findRow(g *garbage, r store.Row, limit int64) error {
	seq, err := parseLogKey(s.partition, r.Key)
	if err != nil {
		return err
	}
	if len(g.rows) == 0 {
		row, err := record.DecodeRow(seq, r.Data)
		if err != nil {
			return fmt.Errorf("%s: %w", rowName(s.partition, seq), err)
		}
		if row.Base.Milli() > limit {
			return nil
		}
		g.truncate = seq
	}
	g.rows = append(g.rows, r.Key)
	return nil
}

// oldBlobs lists the shard's blobs whose grace is over.
func (s *Shard) oldBlobs(ctx context.Context) ([]string, error) {
	limit := s.cfg.Clock.Now().Time().Add(-s.cfg.BlobGracePeriod)
	var names []string
	err := s.eachBlob(ctx, func(b store.BlobInfo) {
		if b.Modified.Before(limit) {
			names = append(names, b.Name)
		}
	})
	return names, err
}

// eachBlob lists the shard's blobs.
func (s *Shard) eachBlob(ctx context.Context, visit func(store.BlobInfo)) error {
	marker := ""
	for range maxLogPages {
		page, err := s.cfg.Blobs.List(ctx, s.partition+"/", marker)
		if err != nil {
			return fmt.Errorf("list blobs of %s: %w", s.partition, err)
		}
		for _, b := range page.Blobs {
			visit(b)
		}
		if page.Next == "" {
			return nil
		}
		marker = page.Next
	}
	return store.Corruptf("listing of the blobs of %s does not end", s.partition)
}

// unreferenced keeps of names those that neither the checkpoint, nor one that
// was replaced within the grace period, nor the log above it, nor a pinned state
// refers to.
func (s *Shard) unreferenced(ctx context.Context, names []string) ([]string, error) {
	used := make(map[string]struct{})
	s.mu.Lock()
	base, meta := s.st.base, s.st.head.Meta()
	present := s.st.view(s, s.cfg.Clock.Now())
	s.mu.Unlock()
	if base.Name() != meta.Checkpoint.Manifest {
		return nil, fmt.Errorf("collect %s: the checkpoint moved: %w", s.partition, store.ErrUnavailable)
	}
	present.blobs(used)
	pins, _ := s.livePins()
	if err := s.pinnedBlobs(ctx, pins, used); err != nil {
		return nil, err
	}
	now := s.cfg.Clock.Now().Milli()
	for _, d := range base.Dropped() {
		if now-d.At < s.cfg.BlobGracePeriod.Milliseconds() {
			used[d.Blob] = struct{}{}
		}
	}
	var free []string
	for _, name := range names {
		if _, ok := used[name]; !ok {
			free = append(free, name)
		}
	}
	return free, nil
}

// fence appends the truncation point, and with it ends every append that was
// planned on an older head.
func (s *Shard) fence(ctx context.Context, g garbage) error {
	return s.submit(ctx, &pending{control: &control{note: "collect", hasty: true, apply: func(h *Head, _ clock.Instant) error {
		h.Truncated = max(h.Truncated, g.truncate)
		return nil
	}}})
}

// deleteBlobs removes blobs; one that is gone was removed by another collector.
func (s *Shard) deleteBlobs(ctx context.Context, names []string) (int, error) {
	for i, name := range names {
		err := s.retry(ctx, func() error { return s.cfg.Blobs.Delete(ctx, name) })
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return i, fmt.Errorf("delete blob of %s: %w", s.partition, err)
		}
	}
	return len(names), nil
}

// deleteRows removes rows, in any order: the head says up to where they may be
// gone. When one is gone already, another collector is at work, and the rest is
// left to it.
func (s *Shard) deleteRows(ctx context.Context, keys []string) (int, error) {
	for done := 0; done < len(keys); {
		end := min(done+store.MaxTransactionOps, len(keys))
		ops := make([]store.Op, 0, end-done)
		for _, key := range keys[done:end] {
			ops = append(ops, store.Delete(key, ""))
		}
		_, err := s.cfg.Table.Apply(ctx, s.partition, ops)
		if errors.Is(err, store.ErrNotFound) {
			return done, nil
		}
		if err != nil {
			return done, fmt.Errorf("delete old rows of %s: %w", s.partition, err)
		}
		done = end
	}
	return len(keys), nil
}

// Clear removes all that a closed shard consists of, except its head: that
// stays, closed, so that whoever was frozen in the middle of creating or writing
// the shard finds it closed, not missing. Calling it again continues one that
// failed half-way. ErrNoShard says that there is no head.
func (s *Shard) Clear(ctx context.Context) error {
	h, err := s.readHead(ctx)
	if err != nil {
		return err
	}
	if !h.Meta().Closed {
		return fmt.Errorf("clear %s: the shard is not closed: %w", s.partition, store.ErrInvalid)
	}
	if err := s.clearBlobs(ctx); err != nil {
		return err
	}
	return s.clearRows(ctx)
}

// Destroy removes all that a closed shard consists of, the head last. Calling
// it again continues a destruction that failed half-way. ErrNoShard says that
// nothing is left.
//
// It is for a shard that nobody can be about to create or write any more: one
// that is created again under the same name is not the same shard, and memory
// of the old one is not good for it. Until that is sure, Clear.
func (s *Shard) Destroy(ctx context.Context) error {
	if err := s.Clear(ctx); err != nil {
		return err
	}
	if _, err := s.deleteRows(ctx, []string{headKey}); err != nil {
		return err
	}
	s.pool.Forget(s.partition)
	return nil
}

// readHead reads the head alone.
func (s *Shard) readHead(ctx context.Context) (h Head, err error) {
	err = s.retry(ctx, func() error {
		row, err := s.cfg.Table.Get(ctx, s.partition, headKey)
		if errors.Is(err, store.ErrNotFound) {
			return ErrNoShard
		}
		if err == nil {
			h, err = decodeHead(s.partition, row.Data, nil)
		}
		return err
	})
	return h, err
}

func (s *Shard) clearBlobs(ctx context.Context) error {
	var names []string
	if err := s.eachBlob(ctx, func(b store.BlobInfo) { names = append(names, b.Name) }); err != nil {
		return err
	}
	_, err := s.deleteBlobs(ctx, names)
	return err
}

// clearRows deletes the log, page after page. Somebody else may be at it too.
func (s *Shard) clearRows(ctx context.Context) error {
	for _, q := range []store.RangeQuery{{From: counterPrefix, To: headKey}, {From: logPrefix}} {
		if err := s.clearRange(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// clearRange deletes a range of rows, a page at a time.
func (s *Shard) clearRange(ctx context.Context, q store.RangeQuery) error {
	q.Limit = store.MaxTransactionOps
	for range maxLogPages {
		page, err := s.cfg.Table.Range(ctx, s.partition, q)
		if err != nil {
			return fmt.Errorf("list rows of %s: %w", s.partition, err)
		}
		if len(page.Rows) == 0 {
			return nil
		}
		keys := make([]string, len(page.Rows))
		for i, r := range page.Rows {
			keys[i] = r.Key
		}
		if _, err := s.deleteRows(ctx, keys); err != nil {
			return err
		}
	}
	return store.Corruptf("partition %s does not empty", s.partition)
}
