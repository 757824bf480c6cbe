package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/split"
)

// diagnosed are diagnostics with the tree that they are of: a name may stand for
// another one by the time they are asked for.
type diagnosed struct {
	Diagnostics
	treeID string
}

// Diagnostics describes the tree and its shards. Shallow diagnostics estimate
// from heads and manifests: one query for each shard that is open, a few reads
// for one that is not. Deep ones count exactly what stood under one version of
// the shard map, and read the leaves that a Count would read; when the map moves
// more often than MaxScanRetries they are ErrTopologyUnstable.
//
// A shard that cannot be sampled makes shallow diagnostics incomplete; deep ones
// fail with its error. The answer is up to DiagnosticsCacheTtl old, is shared
// with concurrent callers, and must not be modified.
func (t *Tree) Diagnostics(ctx context.Context, deep bool) (Diagnostics, error) {
	m, err := t.meta(ctx)
	if err != nil {
		return Diagnostics{}, err
	}
	cache, compute := &t.entry.shallow, t.diagnose
	if deep {
		cache, compute = &t.entry.deep, t.diagnoseDeeply
	}
	d, err := cache.get(ctx, request[diagnosed]{
		clock: t.db.clock, ttl: m.opts.DiagnosticsCacheTtl,
		fits:    func(d *diagnosed) bool { return d.treeID == m.ID },
		compute: func(ctx context.Context, _ *diagnosed) (*diagnosed, error) { return compute(ctx) },
	})
	if err != nil {
		return Diagnostics{}, fmt.Errorf("diagnose tree %q: %w", t.name, err)
	}
	return d.Diagnostics, nil
}

// dropDiagnostics forgets what diagnostics and admission caps know of the tree,
// so that what they say next was sampled after the call.
func (t *Tree) dropDiagnostics() {
	t.entry.shallow.drop()
	t.entry.deep.drop()
	t.entry.usage.drop()
}

// sampleTimeout bounds how long one shard is asked for its figures: the others
// should still be told of when it does not answer.
const sampleTimeout = 5 * time.Second

// diagnosis is the work on one set of diagnostics.
type diagnosis struct {
	t      *Tree
	m      *meta
	survey split.Survey
	slots  map[keyspace.ShardID]int
	out    *diagnosed
	errs   []error // by place in out.Shards
}

// diagnose makes shallow diagnostics, or the shallow part of deep ones.
func (t *Tree) diagnose(ctx context.Context) (*diagnosed, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return nil, err
	}
	d, err := t.sampleShards(ctx, m)
	if err != nil {
		return nil, err
	}
	for i, err := range d.errs {
		if err != nil {
			d.out.Shards[i].Error, d.out.Incomplete = err.Error(), true
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err // nothing is wrong with the shards
	}
	d.out.sum()
	return d.out, nil
}

// diagnoseDeeply makes deep diagnostics.
func (t *Tree) diagnoseDeeply(ctx context.Context) (*diagnosed, error) {
	for try := 0; ; try++ {
		out, m, err := t.censusOnce(ctx)
		if err == nil || !errors.Is(err, errMapMoved) && !errors.Is(err, shard.ErrViewExpired) {
			return out, err
		}
		if try >= m.opts.MaxScanRetries {
			return nil, fmt.Errorf("%w: %w", ErrTopologyUnstable, err)
		}
	}
}

// censusOnce counts under the shard map of now, or fails with errMapMoved.
func (t *Tree) censusOnce(ctx context.Context) (out *diagnosed, used *meta, err error) {
	if _, err := t.refresh(ctx); err != nil {
		return nil, nil, err
	}
	err = t.routed(ctx, func(m *meta) error {
		used = m
		d, err := t.sampleShards(ctx, m)
		if err == nil {
			err = errors.Join(d.errs...)
		}
		if err == nil {
			err = d.census(ctx)
		}
		if err == nil {
			out = d.out
		}
		return err
	})
	if err != nil {
		return nil, used, err
	}
	now, err := t.refresh(ctx)
	if err == nil && (now.ID != used.ID || now.MapVersion != used.MapVersion) {
		err = errMapMoved
	}
	if err != nil {
		return nil, used, err
	}
	out.Deep = true
	out.sum()
	return out, used, nil
}

// sampleShards asks every shard that owns slots for its figures, and what is
// recorded about the tree as a whole.
func (t *Tree) sampleShards(ctx context.Context, m *meta) (*diagnosis, error) {
	d := &diagnosis{t: t, m: m, slots: split.SlotCounts(m.shardMap), errs: make([]error, len(m.owners))}
	d.out = &diagnosed{treeID: m.ID, Diagnostics: Diagnostics{
		Tree: t.name, MapVersion: m.MapVersion, Instance: t.db.instance,
		SampledAt: t.db.clock.Now().Time(), Shards: make([]ShardDiagnostics, len(m.owners)),
	}}
	var err error
	if d.survey, err = t.db.splits.Survey(ctx, m.ID); err != nil {
		return nil, err
	}
	if d.out.BulkPending, err = t.db.bulkPending(ctx, m.ID); err != nil {
		return nil, err
	}
	inParallel(parallelSamples, len(m.owners), func(i int) {
		d.out.Shards[i] = d.describe(m.owners[i])
		d.errs[i] = d.sample(ctx, &d.out.Shards[i])
	})
	return d, nil
}

// describe says of a shard what can be said without asking it.
func (d *diagnosis) describe(id keyspace.ShardID) ShardDiagnostics {
	s := ShardDiagnostics{Shard: id, Slots: d.slots[id], BulkPending: d.out.BulkPending}
	s.Rate, s.RateKnown = d.rate(id)
	for _, x := range d.survey.Active {
		switch {
		case x.Source == id:
			s.Splitting = &ShardSplitting{Peer: x.Target, PeerKnown: x.HasTarget, Phase: x.Phase.String()}
		case x.HasTarget && x.Target == id:
			s.Splitting = &ShardSplitting{Target: true, Peer: x.Source, PeerKnown: true, Phase: x.Phase.String()}
		}
	}
	return s
}

// rate is what the monitor last saw, unless it has not looked for long.
func (d *diagnosis) rate(id keyspace.ShardID) (float64, bool) {
	seen := d.survey.Monitor
	if seen == nil {
		return 0, false
	}
	old := d.t.db.clock.Now().Milli() - seen.At
	if old > (footprintIntervals * d.t.db.opts.HotShardSampleInterval).Milliseconds() {
		return 0, false
	}
	rate, ok := seen.Rates[id]
	return rate, ok
}

// sample asks a shard.
func (d *diagnosis) sample(ctx context.Context, s *ShardDiagnostics) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	l := d.t.shard(d.m, s.Shard)
	st, err := l.Stats(ctx)
	now := d.t.db.clock.Now()
	s.SampledAt = now.Time()
	if err != nil {
		return fmt.Errorf("sample shard %d: %w", s.Shard, err)
	}
	s.LiveKeys, s.Bytes = max(st.Live, 0), max(st.Bytes, 0)
	s.Tombstones = st.Tombstones + st.TailTombstones
	s.Depth, s.Leaves, s.StoredBytes = st.Runs, st.Leaves, st.LeafBytes
	s.TailRows, s.TailBytes = st.TailRows, st.TailBytes
	s.Lease = leaseOf(st, now.Milli())
	if s.Slots == 1 && s.RateKnown && s.Rate >= float64(d.m.opts.HotShardOpsPerSecondThreshold) {
		for _, k := range l.HotKeys() {
			s.HotKeys = append(s.HotKeys, HotKey(k))
		}
	}
	return nil
}

func leaseOf(st shard.Stats, nowMilli int64) ShardLease {
	l := ShardLease{Owner: st.LeaseOwner, Held: st.LeaseOwner != 0 && nowMilli < st.LeaseExpiry}
	if st.LeaseExpiry != 0 {
		l.Expiry = time.UnixMilli(st.LeaseExpiry).UTC()
	}
	return l
}

// census replaces estimates by counts.
func (d *diagnosis) census(ctx context.Context) error {
	shards := d.out.Shards
	inParallel(fanOut, len(shards), func(i int) { d.errs[i] = d.count(ctx, &shards[i]) })
	return errors.Join(d.errs...)
}

func (d *diagnosis) count(ctx context.Context, s *ShardDiagnostics) error {
	v, err := d.t.viewUnder(ctx, d.m, s.Shard, shard.ReadOptions{})
	if err != nil {
		return err
	}
	s.SampledAt = d.t.db.clock.Now().Time()
	c, err := v.Tally(ctx, shard.Bounds{}, func(slot uint16) bool { return d.m.shardMap.Owner(slot) == s.Shard })
	if err != nil {
		return fmt.Errorf("count shard %d: %w", s.Shard, err)
	}
	s.LiveKeys, s.Tombstones, s.Expired = c.Live, c.Tombstones, c.Expired
	return nil
}

// sum adds up the shards.
func (d *Diagnostics) sum() {
	for i := range d.Shards {
		s := &d.Shards[i]
		d.LiveKeys += s.LiveKeys
		d.Tombstones += s.Tombstones
		d.Expired += s.Expired
		d.Bytes += s.Bytes
	}
}
