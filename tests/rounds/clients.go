package rounds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
)

// value is that of all keys of a round. Every third is large.
func value(n int64) []byte {
	pad := ""
	if n%3 == 2 {
		pad = strings.Repeat("x", 60)
	}
	return fmt.Appendf(nil, "%08d%s", n, pad)
}

// half reports whether a round leaves only the first half of the keys.
func half(v []byte) bool {
	var n int64
	_, err := fmt.Sscanf(string(v), "%08d", &n)
	return err == nil && n%2 == 1
}

// ops are those of round n, in any order.
func (r *Rounds) ops(n int64) []tree.BatchOp {
	ops := make([]tree.BatchOp, size)
	for i, key := range r.keys {
		ops[i] = tree.BatchOp{Key: key, Value: value(n)}
		if n%2 == 1 && i >= size/2 {
			ops[i] = tree.BatchOp{Key: key, Delete: true}
		}
	}
	first := r.draw(size)
	return append(slices.Clone(ops[first:]), ops[:first]...)
}

// client calls f again and again through whichever instance, until time is up.
func (r *Rounds) client(end time.Duration, ms int, f func(ctx context.Context, t *tree.Tree)) {
	for r.cfg.Clock.Now().Mono < end && !r.tb.Failed() {
		m := r.member()
		alive, stop := m.faults.Context(context.Background())
		ctx, cancel := context.WithTimeout(alive, requestTimeout)
		t, err := m.db.Open(ctx, treeName)
		if err == nil {
			f(ctx, t)
		} else {
			r.tolerates("open", err)
		}
		cancel()
		stop()
		r.pause(ms)
	}
}

func (r *Rounds) writer(end time.Duration) {
	r.client(end, 20, func(ctx context.Context, t *tree.Tree) { r.round(ctx, t, r.next.Add(1)) })
}

// write writes a round through some instance.
func (r *Rounds) write(ctx context.Context, n int64) {
	t, err := r.member().db.Open(ctx, treeName)
	if err != nil {
		r.tolerates("open", err)
		return
	}
	r.round(ctx, t, n)
}

// round writes one round. One in three has a name, and is repeated when its
// outcome is not known.
func (r *Rounds) round(ctx context.Context, t *tree.Tree, n int64) {
	name := ""
	if n%3 == 1 {
		name = fmt.Sprint("round ", n)
	}
	ops := r.ops(n)
	results, err := t.AtomicBatch(ctx, ops, name)
	if name != "" && (errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, tree.ErrOperationInProgress)) {
		results, err = t.AtomicBatch(ctx, ops, name)
	}
	if err != nil {
		r.failed.Add(1)
		r.tolerates("batch", err)
		return
	}
	r.written.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, res := range results {
		if !ops[i].Delete && res.Version.Compare(r.acked) > 0 {
			r.acked = res.Version
		}
	}
}

// reader looks in one way after another; floor is the latest round it has seen.
func (r *Rounds) reader(end time.Duration) {
	var floor clock.Version
	r.client(end, 10, func(ctx context.Context, t *tree.Tree) { looks[r.draw(len(looks))](r, ctx, t, &floor) })
}

// looks are the ways to look.
var looks = []func(r *Rounds, ctx context.Context, t *tree.Tree, floor *clock.Version){
	(*Rounds).getAll, (*Rounds).getSome, (*Rounds).getSingly, (*Rounds).scan, (*Rounds).pages, (*Rounds).stream, (*Rounds).count,
	(*Rounds).snapshot,
}

// check holds what was seen at once against one round: of the keys asked for those
// that it leaves, all of one version, which is no older than what the reader has
// seen, nor than what was acknowledged before it asked.
func (r *Rounds) check(what string, asked []string, items []tree.Item, floor *clock.Version, acked clock.Version) {
	r.seen.Add(1)
	var want []string
	for _, key := range asked {
		if len(items) == 0 || !half(items[0].Value) || slices.Index(r.keys, key) < size/2 {
			want = append(want, key)
		}
	}
	if len(items) == 0 && !slices.ContainsFunc(asked, func(key string) bool { return slices.Index(r.keys, key) < size/2 }) {
		return // an odd round, which one cannot be said
	}
	if len(items) != len(want) {
		r.tb.Errorf("%s: %d entries of %d: %s", what, len(items), len(want), describe(items))
		return
	}
	for i, it := range items {
		if it.Key != want[i] || it.Version != items[0].Version || string(it.Value) != string(items[0].Value) {
			r.tb.Errorf("%s is of several rounds: %s", what, describe(items))
			return
		}
	}
	r.advance(what, items[0].Version, floor, acked)
}

func (r *Rounds) advance(what string, seen clock.Version, floor *clock.Version, acked clock.Version) {
	if seen.Compare(*floor) < 0 {
		r.tb.Errorf("%s: the round of version %s after one of %s", what, seen, *floor)
	}
	if seen.Compare(acked) < 0 {
		r.tb.Errorf("%s: the round of version %s, one of %s was acknowledged", what, seen, acked)
	}
	*floor = seen
}

func describe(items []tree.Item) string {
	var b strings.Builder
	for _, it := range items {
		fmt.Fprintf(&b, "%s=%.8s@%s ", it.Key, it.Value, it.Version)
	}
	return b.String()
}

func (r *Rounds) getKeys(ctx context.Context, t *tree.Tree, keys []string, what string, floor *clock.Version) {
	acked := r.floor()
	items, err := t.GetMany(ctx, keys, tree.ReadOptions{})
	if err != nil {
		r.tolerates(what, err)
		return
	}
	r.check(what, keys, items, floor, acked)
}

func (r *Rounds) getAll(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	r.getKeys(ctx, t, r.keys, "a batch read", floor)
}

func (r *Rounds) getSome(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	first := r.draw(size - 4)
	r.getKeys(ctx, t, r.keys[first:first+2+r.draw(3)], "a batch read of some", floor)
}

// getSingly reads some keys one after the other: none may be of an older round
// than the one before.
func (r *Rounds) getSingly(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	for range 4 {
		acked := r.floor()
		it, ok, err := t.Get(ctx, r.keys[r.draw(size/2)], tree.ReadOptions{})
		if err != nil {
			r.tolerates("get", err)
			return
		}
		if !ok {
			r.tb.Error("get: a key that every round leaves is gone")
			return
		}
		r.seen.Add(1)
		r.advance("get", it.Version, floor, acked)
	}
}

func (r *Rounds) inOrder(reverse bool) []string {
	keys := slices.Sorted(slices.Values(r.keys))
	if reverse {
		slices.Reverse(keys)
	}
	return keys
}

func (r *Rounds) scan(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	acked, reverse := r.floor(), r.draw(2) == 0
	p, err := t.Scan(ctx, tree.ScanQuery{Limit: 100, Reverse: reverse})
	if err != nil {
		r.tolerates("scan", err)
		return
	}
	r.check("a page", r.inOrder(reverse), p.Items, floor, acked)
}

// pages reads page after page: each is of one round, and none of an older one.
func (r *Rounds) pages(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	q := tree.ScanQuery{Limit: 5}
	for {
		acked := r.floor()
		p, err := t.Scan(ctx, q)
		if err != nil {
			r.tolerates("page", err)
			return
		}
		r.seen.Add(1)
		for i, it := range p.Items {
			if it.Version != p.Items[0].Version {
				r.tb.Errorf("a page is of several rounds: %s", describe(p.Items))
				return
			}
			if i == 0 {
				r.advance("page", it.Version, floor, acked)
			}
		}
		if q.Token = p.NextToken; q.Token == "" {
			return
		}
	}
}

func (r *Rounds) stream(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	acked, reverse := r.floor(), r.draw(2) == 0
	var items []tree.Item
	_, err := t.Stream(ctx, tree.ScanQuery{Reverse: reverse}, func(it *tree.Item) error {
		items = append(items, *it)
		return nil
	})
	if err != nil {
		r.tolerates("stream", err)
		return
	}
	r.check("a stream", r.inOrder(reverse), items, floor, acked)
}

// snapshot reads a snapshot page by page, while rounds go on: all pages are of the
// one round that it was opened in.
func (r *Rounds) snapshot(ctx context.Context, t *tree.Tree, floor *clock.Version) {
	acked, reverse := r.floor(), r.draw(2) == 0
	c, err := t.OpenCursor(ctx, tree.CursorQuery{Kind: tree.CursorEntries, Reverse: reverse, Snapshot: true})
	if err != nil {
		r.tolerates("open a snapshot", err)
		return
	}
	var items []tree.Item
	for more := true; more; {
		p, err := t.NextPage(ctx, c.ID, tree.PageQuery{Limit: 5})
		if err != nil {
			r.tolerates("a page of a snapshot", err)
			return
		}
		items, more = append(items, p.Items...), p.HasMore
	}
	r.check("a snapshot", r.inOrder(reverse), items, floor, acked)
	if err := t.CloseCursor(ctx, c.ID); err != nil {
		r.tolerates("close a snapshot", err)
	}
}

func (r *Rounds) count(ctx context.Context, t *tree.Tree, _ *clock.Version) {
	c, err := t.Count(ctx, tree.Bounds{}, tree.ReadOptions{})
	if err != nil {
		r.tolerates("count", err)
		return
	}
	r.seen.Add(1)
	if c.Total != size && c.Total != size/2 {
		r.tb.Errorf("a count of %d", c.Total)
	}
}
