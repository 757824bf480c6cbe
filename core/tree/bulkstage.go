package tree

import (
	"context"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/shard"
)

// restage reads what was staged and stages it on the shards that own it now.
func (b *bulkRun) restage(ctx context.Context, m *meta, s *bulkSlice) ([]*bulkSlice, error) {
	d := &division{b: b, m: m, stages: map[keyspace.ShardID]*shard.Stage{}, parts: map[keyspace.ShardID]*bulkSlice{}}
	for _, r := range s.runs {
		if err := d.add(ctx, r); err != nil {
			d.abandon()
			return nil, err
		}
	}
	return d.finish()
}

// division divides what was staged on one shard by a newer map.
type division struct {
	b      *bulkRun
	m      *meta
	stages map[keyspace.ShardID]*shard.Stage
	parts  map[keyspace.ShardID]*bulkSlice
}

// add takes the entries of a run, which follow those of the runs before.
func (d *division) add(ctx context.Context, r *shard.Staged) error {
	it, stop := r.ReadBack(ctx, 1)
	defer stop()
	for it.Next(ctx) {
		slot := keyspace.Slot(it.Entry().Key)
		id := d.m.shardMap.Owner(slot)
		if d.stages[id] == nil {
			d.stages[id] = d.b.t.shard(d.m, id).Stage(ctx, d.b.version)
			d.parts[id] = &bulkSlice{owner: id}
		}
		d.parts[id].slots.Add(slot)
		d.parts[id].count++
		if err := addLoaded(ctx, d.stages[id], it.Entry(), r.Load); err != nil {
			return err
		}
	}
	return it.Err()
}

func (d *division) abandon() {
	for _, g := range d.stages {
		g.Abandon()
	}
}

func (d *division) finish() ([]*bulkSlice, error) {
	var out []*bulkSlice
	for id, g := range d.stages {
		staged, err := g.Finish()
		delete(d.stages, id)
		if err != nil {
			d.abandon()
			return nil, err
		}
		d.parts[id].runs = []*shard.Staged{staged}
		out = append(out, d.parts[id])
	}
	return out, nil
}

// loader reads the value of an entry from its blob.
type loader func(ctx context.Context, e *record.Entry) ([]byte, error)

// addLoaded stages an entry, complete with its value: a blob of the value
// belongs to the stage that wrote it.
func addLoaded(ctx context.Context, g *shard.Stage, e *record.Entry, load loader) error {
	if e.Ref == nil {
		return g.Add(e)
	}
	c := *e
	var err error
	if c.Value, err = load(ctx, e); err != nil {
		return err
	}
	c.Ref = nil
	return g.Add(&c)
}

// stageAll stages entries, in ascending order of keys.
func stageAll(ctx context.Context, l shardLog, v clock.Version, it run.Iterator, load loader) (*shard.Staged, error) {
	g := l.Stage(ctx, v)
	for it.Next(ctx) {
		if err := addLoaded(ctx, g, it.Entry(), load); err != nil {
			g.Abandon()
			return nil, err
		}
	}
	staged, err := g.Finish()
	if ierr := it.Err(); ierr != nil {
		if err == nil && staged != nil {
			l.Discard(ctx, staged)
		}
		return nil, ierr
	}
	return staged, err
}

// records writes entries as records of the log, portion by portion. Writing them
// twice changes nothing.
func (b *bulkRun) records(ctx context.Context, m *meta, l shardLog, it run.Iterator, load loader) error {
	p := portion{version: b.version, bytes: int(m.opts.GroupCommitMaxBytes), entries: m.opts.GroupCommitMaxRecords}
	for it.Next(ctx) {
		e := *it.Entry()
		if e.Ref != nil {
			value, err := load(ctx, &e)
			if err != nil {
				return err
			}
			e.Value, e.Ref = value, nil
		}
		if !p.fits(&e) {
			if err := p.write(ctx, l); err != nil {
				return err
			}
		}
		p.add(&e)
	}
	if err := it.Err(); err != nil {
		return err
	}
	return p.write(ctx, l)
}

// portion gathers the records of one append. The log keeps keys and values, so
// they are copied, each entry into one piece.
type portion struct {
	version        clock.Version
	bytes, entries int
	size           int
	writes         []shard.Write
}

// recordOverhead bounds what a record takes beside key and value.
const recordOverhead = 128

func (p *portion) fits(e *record.Entry) bool {
	return len(p.writes) == 0 || len(p.writes) < p.entries && p.size+len(e.Key)+len(e.Value)+len(e.Type)+recordOverhead <= p.bytes
}

func (p *portion) add(e *record.Entry) {
	p.size += len(e.Key) + len(e.Value) + len(e.Type) + recordOverhead
	kept := make([]byte, 0, len(e.Key)+len(e.Value))
	kept = append(append(kept, e.Key...), e.Value...)
	p.writes = append(p.writes, shard.Write{
		Op: shard.OpMerge, Key: frame.Text(kept[:len(e.Key)]), Value: kept[len(e.Key):],
		Type: e.Type, Expiry: e.Expiry, Version: p.version,
	})
}

func (p *portion) write(ctx context.Context, l shardLog) error {
	if len(p.writes) == 0 {
		return nil
	}
	results, err := l.Write(ctx, p.writes)
	if err != nil {
		return err
	}
	for i := range results {
		if results[i].Status != shard.StatusApplied {
			return shard.ErrStaleRouting
		}
	}
	p.writes, p.size = nil, 0
	return nil
}
