package tree

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// position is a shard in the order of a walk: by name of tree, then by index.
type position struct {
	Tree  string           `json:"tree"`
	Shard keyspace.ShardID `json:"shard"`
}

func (p position) before(o position) bool {
	return p.Tree < o.Tree || p.Tree == o.Tree && p.Shard < o.Shard
}

var positionFormat = frame.Format{Magic: "LTWP", Version: 1, MaxSize: 4 << 10}

const (
	// walkPage is how many trees a walk lists at a time.
	walkPage = 100
	// saveInterval is how often a walk notes where it is.
	saveInterval = time.Second
)

// walker visits trees and shards in turn, beginning where the last walk ended,
// once around or until its time is up. The place is kept in a row, noted before
// a shard is visited: so a shard that brings its visitor down does not keep the
// others from being visited. Walks may overlap; then some shards are visited
// twice.
type walker struct {
	db *DB
	// row is the key of the row that holds the place.
	row    string
	budget time.Duration
	// tree looks at a tree and says whether its shards are to be visited.
	tree func(ctx context.Context, s stored) (bool, error)
	// shard visits one shard, with the time that is left.
	shard  func(ctx context.Context, l shardLog, left time.Duration) error
	report *Report

	deadline  time.Duration
	etag      store.ETag
	lastSaved time.Duration
	saves     bool
	visited   bool
}

// errTimeUp ends a walk that has used its time.
var errTimeUp = errors.New("time is up")

func (w *walker) run(ctx context.Context) error {
	now := w.db.clock.Now().Mono
	w.deadline, w.lastSaved, w.saves = now+w.budget, now-saveInterval, true
	start, err := w.load(ctx)
	if err != nil {
		return err
	}
	if err = w.leg(ctx, start, nil); err == nil && start != (position{}) {
		err = w.leg(ctx, position{}, &start)
	}
	switch {
	case errors.Is(err, errTimeUp):
		return nil
	case err != nil:
		return err
	}
	w.report.Complete = true
	return nil
}

// leg walks from a position to the end, or to another position.
func (w *walker) leg(ctx context.Context, from position, to *position) error {
	key := ""
	if from.Tree != "" {
		key = rowKey(from.Tree)
	}
	for {
		rows, more, err := w.db.reg.list(ctx, key, walkPage)
		if err != nil {
			return err
		}
		for _, s := range rows {
			if to != nil && !(position{Tree: s.Name}).before(*to) {
				return nil
			}
			if err := w.visit(ctx, s, from, to); err != nil {
				return err
			}
		}
		if !more || len(rows) == 0 {
			return nil
		}
		key = store.NextKey(rowKey(rows[len(rows)-1].Name))
	}
}

// visit looks at one tree and its shards. Faults of one do not stop the walk.
func (w *walker) visit(ctx context.Context, s stored, from position, to *position) error {
	if w.visited && w.db.clock.Now().Mono >= w.deadline {
		return w.stop(ctx, position{Tree: s.Name})
	}
	w.report.Trees++
	w.db.noticed(s)
	into, err := w.tree(ctx, s)
	if err != nil {
		w.report.fail(s.Name, 0, err)
	}
	if err != nil || !into {
		w.visited = true // there is nothing more to this tree
		return context.Cause(ctx)
	}
	first := keyspace.ShardID(0)
	if from.Tree == s.Name {
		first = from.Shard
	}
	for id := first; id < keyspace.ShardID(s.NextShard); id++ {
		at := position{Tree: s.Name, Shard: id}
		if to != nil && !at.before(*to) {
			return nil
		}
		if err := w.visitShard(ctx, &s, at); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) visitShard(ctx context.Context, s *stored, at position) error {
	left := w.deadline - w.db.clock.Now().Mono
	if w.visited && left <= 0 {
		return w.stop(ctx, at)
	}
	w.visited = true
	if now := w.db.clock.Now().Mono; now-w.lastSaved >= saveInterval {
		w.save(ctx, position{Tree: at.Tree, Shard: at.Shard + 1})
		w.lastSaved = now
	}
	w.report.Shards++
	err := w.shard(ctx, w.db.shard(s.partition(at.Shard), w.db.tuning(&s.row)), max(left, 0))
	if err != nil && !turnedAway(err) {
		w.report.fail(s.Name, at.Shard, err)
	}
	return context.Cause(ctx)
}

func (w *walker) stop(ctx context.Context, at position) error {
	w.save(ctx, at)
	return errTimeUp
}

// load reads where the last walk ended.
func (w *walker) load(ctx context.Context) (position, error) {
	var (
		r store.Row
		p position
	)
	err := w.db.reg.retry(ctx, func() (err error) {
		r, err = w.db.table.Get(ctx, partitionRegistry, w.row)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("read registry row %s: %w", w.row, err)
	}
	w.etag = r.ETag
	return decodePosition(w.row, r.Data)
}

func decodePosition(row string, data []byte) (position, error) {
	var p position
	body, err := positionFormat.Open("registry row "+row, data)
	if err != nil {
		return p, err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, store.Corruptf("registry row %s: %v", row, err)
	}
	if p.Tree != "" && !validName(p.Tree) {
		return p, store.Corruptf("registry row %s names no tree", row)
	}
	return p, nil
}

// save notes where to go on. Whoever finds that another walk has noted its own
// place leaves it at that; a place that is lost costs a repetition.
func (w *walker) save(ctx context.Context, at position) {
	body, err := json.Marshal(at)
	if err != nil || !w.saves {
		return
	}
	op := store.Insert(w.row, positionFormat.Seal(body))
	if w.etag != "" {
		op = store.Replace(w.row, op.Data, w.etag)
	}
	etags, err := w.db.table.Apply(ctx, partitionRegistry, []store.Op{op})
	if err != nil {
		w.saves = store.Transient(err)
		return
	}
	w.etag = etags[0]
}
