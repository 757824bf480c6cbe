package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
)

// entriesOf is a source over entries in memory; fail, if set, comes after them.
type entriesOf struct {
	entries []BulkEntry
	fail    error
	// before is called ahead of each entry with its index.
	before func(i int)
	next   int
}

func (s *entriesOf) Next(_ context.Context, e *BulkEntry) error {
	if s.next == len(s.entries) {
		if s.fail != nil {
			return s.fail
		}
		return io.EOF
	}
	if s.before != nil {
		s.before(s.next)
	}
	*e = s.entries[s.next]
	s.next++
	return nil
}

func from(entries []BulkEntry) *entriesOf { return &entriesOf{entries: entries} }

// numbered returns entries of ascending keys, from one number up to another.
func numbered(lo, hi, size int) []BulkEntry {
	out := make([]BulkEntry, 0, hi-lo)
	for i := lo; i < hi; i++ {
		value := make([]byte, size)
		copy(value, fmt.Sprintf("value %d", i))
		out = append(out, BulkEntry{Key: fmt.Sprintf("key-%08d", i), Value: value})
	}
	return out
}

// noise returns entries as numbered does, whose values do not compress.
func noise(lo, hi, size int) []BulkEntry {
	r := rand.New(rand.NewPCG(uint64(lo), uint64(hi)))
	out := numbered(lo, hi, size)
	for _, e := range out {
		for i := range e.Value {
			e.Value[i] = byte(r.Uint32())
		}
	}
	return out
}

func shuffled(entries []BulkEntry, seed uint64) []BulkEntry {
	out := append([]BulkEntry(nil), entries...)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// holds checks that a tree has exactly these entries, in order.
func holds(t testing.TB, h *Tree, want []BulkEntry) {
	t.Helper()
	at := 0
	q := ScanQuery{Limit: 10000}
	for {
		page, err := h.Scan(t.Context(), q)
		must(t, err)
		for _, it := range page.Items {
			if at == len(want) || it.Key != want[at].Key {
				t.Fatalf("entry %d is %q, of %d wanted", at, it.Key, len(want))
			}
			if string(it.Value) != string(want[at].Value) {
				t.Fatalf("value of %q is %.20q, want %.20q", it.Key, it.Value, want[at].Value)
			}
			at++
		}
		if page.NextToken == "" {
			break
		}
		q.Token = page.NextToken
	}
	if at != len(want) {
		t.Fatalf("%d entries, want %d", at, len(want))
	}
	if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != int64(len(want)) {
		t.Fatalf("counted %d (%v), want %d", c.Total, err, len(want))
	}
}

// smallBulk makes small loads take the ways of large ones.
func smallBulk(o *options.Options) {
	o.BulkLoadBufferBytes, o.BulkGraftBytes, o.LeafTargetBytes = 64<<10, 4<<10, 8<<10
}

func (l hookedLog) Graft(ctx context.Context, staged ...*shard.Staged) error {
	if err := l.h.call("graft", l.partition); err != nil {
		return err
	}
	return l.shardLog.Graft(ctx, staged...)
}

func (l hookedLog) Stage(ctx context.Context, v clock.Version) *shard.Stage {
	_ = l.h.call("stage", l.partition)
	return l.shardLog.Stage(ctx, v)
}

func (l hookedLog) Empty(ctx context.Context) (bool, error) {
	if err := l.h.call("empty", l.partition); err != nil {
		return false, err
	}
	return l.shardLog.Empty(ctx)
}

func begin(t testing.TB, h *Tree, id string) {
	t.Helper()
	if _, created, err := h.BeginBulkLoad(t.Context(), id); err != nil || !created {
		t.Fatalf("begin %s: created %v, %v", id, created, err)
	}
}

func wantOrder(t testing.TB, err error, key, previous string, chunk, index int64) {
	t.Helper()
	var o *OrderError
	if !errors.As(err, &o) || o.Key != key || o.Previous != previous || o.Chunk != chunk || o.Index != index || o.Tree == "" {
		t.Fatalf("error %v (%+v), want %q after %q in chunk %d at %d", err, o, key, previous, chunk, index)
	}
}

func wantSequence(t testing.TB, err error, index, expected int64) {
	t.Helper()
	var s *SequenceError
	if !errors.As(err, &s) || s.Index != index || s.Expected != expected {
		t.Fatalf("error %v, want chunk %d refused where %d is expected", err, index, expected)
	}
}

func wantLimit(t testing.TB, err error, what string, size, limit int64) {
	t.Helper()
	var l *LimitError
	if !errors.As(err, &l) || l.What != what || l.Size != size || l.Limit != limit {
		t.Fatalf("error %v, want %s of %d over %d", err, what, size, limit)
	}
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }
