package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/shard"
)

// BulkLoad loads entries in any order into a tree that is empty: else it is
// ErrTreeNotEmpty. ErrOperationInProgress if another load of the tree is under
// way. A key that comes twice is an *OrderError with Previous equal to Key, whose
// Index is -1 where it is not known; that, like a *LimitError, an *ArgumentError
// or an error of the source, leaves the tree as it was.
//
// Memory is bounded by BulkLoadBufferBytes. What does not fit is staged as leaves
// that nothing refers to, and becomes part of the tree at the end, shard by
// shard. When BulkLoad returns nil all of it is durable and seen by every reader;
// after any other error the result says how much is.
func (t *Tree) BulkLoad(ctx context.Context, src BulkSource, o BulkOptions) (BulkResult, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return BulkResult{}, err
	}
	place, err := t.db.bulkPlace(ctx)
	if err != nil {
		return BulkResult{}, err
	}
	defer place()
	h, err := t.hold(ctx, m.ID, func(ctx context.Context) error { return t.vacant(ctx, m.ID) })
	if err != nil {
		return BulkResult{}, err
	}
	defer h.release()
	l := oneShot{t: t, m: m, hold: h, in: t.bulkReader(m, src, o), buf: bulk.NewBuffer(m.opts.BulkLoadBufferBytes)}
	b, err := l.load(h.ctx)
	if b == nil {
		return BulkResult{}, h.explain(t.duplicate(unlessMissing(err)))
	}
	res := BulkResult{Accepted: b.accepted(), OverLimit: l.in.over, FirstOverLimit: l.in.first}
	if err != nil {
		return res, h.explain(unlessMissing(err))
	}
	c, err := t.Count(ctx, Bounds{}, ReadOptions{})
	if err != nil {
		return res, fmt.Errorf("count after the load: %w", err)
	}
	res.TotalLiveKeys = c.Total
	return res, nil
}

const (
	// maxFanIn is how many overlapping runs of a shard are merged at most at once.
	maxFanIn = 16
	// parallelMerges bounds the shards whose runs are merged at once.
	parallelMerges = 4
	// readAhead is how many leaves a merge reads ahead, in all its runs together.
	readAhead = 8
	// agingShare is the share of BlobGracePeriod after which staged leaves are
	// written anew: the collector takes what nothing refers to.
	agingShare = 8
	// agingLook is how many entries are read between two looks at their age.
	agingLook = 1 << 10
)

// oneShot is a load of entries in any order.
type oneShot struct {
	t       *Tree
	m       *meta
	hold    *holding
	in      *bulkReader
	buf     *bulk.Buffer
	caps    *caps
	version clock.Version
	// bytes counts those of keys and values.
	bytes int64
	// staged is what did not fit into the buffer, by shard; their runs may
	// overlap.
	staged map[keyspace.ShardID]*bulkSlice
	// since is when the oldest of them was begun.
	since time.Duration
}

// load reads, sorts and writes everything. It returns the run once anything may
// have been applied.
func (l *oneShot) load(ctx context.Context) (b *bulkRun, err error) {
	defer func() {
		if b == nil {
			l.discard(ctx)
		}
	}()
	if l.caps, err = l.in.caps(ctx, l.t); err != nil {
		return nil, err
	}
	if l.version, err = l.t.bulkVersion(ctx, l.m.ID); err != nil {
		return nil, err
	}
	if err := l.readAll(ctx); err != nil {
		return nil, err
	}
	out := &bulkRun{t: l.t, treeID: l.m.ID, version: l.version}
	if out.slices, err = l.slices(ctx); err != nil {
		return nil, err
	}
	if err := l.hold.confirm(); err != nil {
		return nil, err
	}
	return out, out.apply(ctx)
}

func (l *oneShot) readAll(ctx context.Context) error {
	var e record.Entry
	for {
		index, err := l.in.read(ctx, &e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.bytes += int64(len(e.Key) + len(e.Value))
		if err := l.caps.admit(index+1, l.bytes); err != nil {
			return err
		}
		if index%agingLook == 0 {
			if err := l.refresh(ctx); err != nil {
				return err
			}
		}
		if !l.buf.Fits(len(e.Key), len(e.Value)) {
			if err := l.spill(ctx); err != nil {
				return err
			}
		}
		l.buf.Add(&e, index)
	}
}

// slices returns everything that was read, sorted, by shard.
func (l *oneShot) slices(ctx context.Context) ([]*bulkSlice, error) {
	if len(l.staged) == 0 {
		return sorted(l.m, l.buf)
	}
	if err := l.spill(ctx); err != nil {
		return nil, err
	}
	l.buf = nil // the merge has the memory to itself
	if err := l.merge(ctx, func(*bulkSlice) bool { return true }); err != nil {
		return nil, err
	}
	var out []*bulkSlice
	for _, s := range l.staged {
		out = append(out, s)
	}
	return out, nil
}

// spill stages what is in the buffer, and empties it.
func (l *oneShot) spill(ctx context.Context) error {
	parts, err := sorted(l.m, l.buf)
	if err != nil {
		return err
	}
	if len(l.staged) == 0 {
		l.staged, l.since = map[keyspace.ShardID]*bulkSlice{}, l.now()
	}
	staged, errs := make([]*shard.Staged, len(parts)), make([]error, len(parts))
	inParallel(fanOut, len(parts), func(i int) {
		staged[i], errs[i] = stageAll(ctx, l.shard(parts[i]), l.version, parts[i].part.Iter(), nil)
	})
	for i, p := range parts {
		if staged[i] != nil {
			l.keep(p, staged[i])
		}
	}
	l.buf.Reset()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.merge(ctx, func(s *bulkSlice) bool { return len(s.runs) >= maxFanIn })
}

func (l *oneShot) keep(p *bulkSlice, staged *shard.Staged) {
	s := l.staged[p.owner]
	if s == nil {
		s = &bulkSlice{owner: p.owner}
		l.staged[p.owner] = s
	}
	s.slots.Union(&p.slots)
	s.count += p.count
	s.runs = append(s.runs, staged)
}

func (l *oneShot) shard(s *bulkSlice) shardLog { return l.t.shard(l.m, s.owner) }

func (l *oneShot) now() time.Duration { return l.t.db.clock.Now().Mono }

// refresh writes staged leaves anew that the collector might soon take.
func (l *oneShot) refresh(ctx context.Context) error {
	now := l.now()
	if len(l.staged) == 0 || now-l.since < l.m.opts.BlobGracePeriod/agingShare {
		return nil
	}
	return l.rewrite(ctx, now)
}

func (l *oneShot) rewrite(ctx context.Context, now time.Duration) error {
	err := l.eachStaged(func(s *bulkSlice) error {
		all, err := l.mergeRuns(ctx, s, s.runs)
		if err == nil {
			s.runs = []*shard.Staged{all}
		}
		return err
	})
	if err == nil {
		l.since = now
	}
	return err
}

// merge merges the overlapping runs of shards, of those that are due.
func (l *oneShot) merge(ctx context.Context, due func(*bulkSlice) bool) error {
	return l.eachStaged(func(s *bulkSlice) error {
		if !due(s) {
			return nil
		}
		return l.mergeOverlapping(ctx, s)
	})
}

// eachStaged calls f for every shard that has runs, several at once. It returns
// the first of the duplicates found, or another error.
func (l *oneShot) eachStaged(f func(*bulkSlice) error) error {
	all := make([]*bulkSlice, 0, len(l.staged))
	for _, s := range l.staged {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y *bulkSlice) int { return int(x.owner) - int(y.owner) })
	errs := make([]error, len(all))
	inParallel(parallelMerges, len(all), func(i int) { errs[i] = f(all[i]) })
	return firstDuplicate(errs)
}

func (l *oneShot) mergeOverlapping(ctx context.Context, s *bulkSlice) error {
	runs := slices.SortedFunc(slices.Values(s.runs), func(x, y *shard.Staged) int {
		return strings.Compare(x.First(), y.First())
	})
	s.runs = runs
	var out []*shard.Staged
	for start := 0; start < len(runs); {
		end, last := start+1, runs[start].Last()
		for end < len(runs) && runs[end].First() <= last {
			last = max(last, runs[end].Last())
			end++
		}
		merged := runs[start]
		if end > start+1 {
			var err error
			if merged, err = l.mergeRuns(ctx, s, runs[start:end]); err != nil {
				s.runs = append(out, runs[start:]...)
				return err
			}
		}
		out, start = append(out, merged), end
	}
	s.runs = out
	return nil
}

// mergeRuns makes one run of several of a shard.
func (l *oneShot) mergeRuns(ctx context.Context, s *bulkSlice, runs []*shard.Staged) (*shard.Staged, error) {
	inputs := make([]run.Iterator, len(runs))
	for i, r := range runs {
		var stop func()
		inputs[i], stop = r.ReadBack(ctx, max(1, readAhead/len(runs)))
		defer stop()
	}
	merged, err := stageAll(ctx, l.shard(s), l.version, bulk.Merge(inputs...), runs[0].Load)
	if err != nil {
		return nil, err
	}
	l.shard(s).Discard(ctx, runs...)
	return merged, nil
}

// discard deletes what was staged in vain: a courtesy to the collector.
func (l *oneShot) discard(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range l.staged {
		all.Go(func() { l.shard(s).Discard(ctx, s.runs...) })
	}
	all.Wait()
}
