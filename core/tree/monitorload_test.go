package tree_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// chunkOf is a chunk of a bulk load: n entries from a number on.
type chunkOf struct{ next, end int }

func (c *chunkOf) Next(_ context.Context, e *tree.BulkEntry) error {
	if c.next == c.end {
		return io.EOF
	}
	e.Key, e.Value = fmt.Sprintf("loaded-%06d", c.next), []byte("value")
	c.next++
	return nil
}

// loading begins a bulk load of a new tree.
func (s *stage) loading(name string) *tree.Tree {
	s.t.Helper()
	h, err := s.db.OpenOrCreate(s.t.Context(), name)
	s.ok(err)
	_, _, err = h.BeginBulkLoad(s.t.Context(), "load")
	s.ok(err)
	return h
}

// A bulk load heats the tree as nothing else does, one shard more than another.
// No split begins before it is over.
func TestNoSplitBeginsDuringABulkLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		h := s.loading("loaded")
		hot := owned(h, 800, 0)
		chunk := int64(0)
		heat := func(second int) { s.heat(h, hot, 60, second) }
		s.play(time.Minute, func(second int) {
			from := 100 * int(chunk)
			_, err := h.AppendBulkLoad(t.Context(), "load", chunk, &chunkOf{from, from + 100}, tree.BulkOptions{})
			s.ok(err)
			chunk++
			heat(second)
		})
		if n := len(s.splits(h)); n != 0 {
			t.Errorf("%d splits during the load", n)
		}
		if told := s.told("loaded"); len(told) != 1 || told[split.ReasonBulkPending] == 0 {
			t.Errorf("told %v, want %s alone", told, split.ReasonBulkPending)
		}
		if p := s.latest("loaded"); p.Suppressed != split.ReasonBulkPending {
			t.Errorf("suppressed by %q", p.Suppressed)
		}
		d, err := h.Diagnostics(t.Context(), false)
		s.ok(err)
		if !d.BulkPending || !d.Shards[0].BulkPending {
			t.Errorf("diagnostics know of no load: %+v", d)
		}
		_, err = h.CommitBulkLoad(t.Context(), "load")
		s.ok(err)
		s.play(time.Minute, heat)
		if n := len(s.splits(h)); n == 0 {
			t.Errorf("no split after the load: told %v", s.told("loaded"))
		}
	})
}

// A session that was left alone does not hold the monitor back for ever.
func TestAForgottenBulkLoadGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *options.Options) { o.BulkLoadIdleTtl = time.Minute })
		h := s.loading("forgotten")
		hot := owned(h, 800, 0)
		heat := func(second int) { s.heat(h, hot, 60, second) }
		s.play(50*time.Second, heat)
		if n := len(s.splits(h)); n != 0 {
			t.Errorf("%d splits while the session may still go on", n)
		}
		s.play(time.Minute, heat)
		if n := len(s.splits(h)); n == 0 {
			t.Errorf("no split after the session was given up: told %v", s.told("forgotten"))
		}
	})
}

// What was asked for is done, bulk load or not.
func TestAReshardIsNotHeldBackByABulkLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *options.Options) { o.DefaultShardCount = 2 })
		h := s.loading("growing")
		_, err := h.AppendBulkLoad(t.Context(), "load", 0, &chunkOf{0, 500}, tree.BulkOptions{})
		s.ok(err)
		s.reshard(h, 4)
		s.play(time.Minute, nil)
		if st := s.status(h); !st.Complete || st.Current != 4 {
			t.Errorf("reshard %+v", st)
		}
		_, err = h.AppendBulkLoad(t.Context(), "load", 1, &chunkOf{500, 900}, tree.BulkOptions{})
		s.ok(err)
		done, err := h.CommitBulkLoad(t.Context(), "load")
		s.ok(err)
		if done.TotalLiveKeys != 900 {
			t.Errorf("%d live keys", done.TotalLiveKeys)
		}
	})
}
