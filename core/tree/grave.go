package tree

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

const (
	gravePrefix = "~grave-"
	// graveAge is how long the closed heads of a purged tree are kept: longer
	// than anybody who was about to create or write a shard stays frozen.
	graveAge = 7 * 24 * time.Hour
	// gravesPerTick bounds the graves that one collection looks at.
	gravesPerTick = 100
)

var graveFormat = frame.Format{Magic: "LTGR", Version: 1, MaxSize: 4 << 10}

// grave is what is left of a purged tree in the registry.
type grave struct {
	ID        string `json:"id"`
	NextShard uint32 `json:"nextShard"`
	// Purged is a Unix millisecond.
	Purged int64 `json:"purged"`
}

// key is the grave's row key: graves stand in the order of their age.
func (v *grave) key() string { return fmt.Sprintf("%s%012x-%s", gravePrefix, v.Purged, v.ID) }

// row returns as much of the tree's former row as its shards depend on.
func (v *grave) row() row {
	return row{Name: "purged " + v.ID, ID: v.ID, NextShard: v.NextShard}
}

// bury replaces the row of a purged tree by a grave. A row that is gone already,
// or belongs to a new tree of the name, is fine.
func (g *registry) bury(ctx context.Context, s stored, now clock.Instant) error {
	v := grave{ID: s.ID, NextShard: s.NextShard, Purged: now.Milli()}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode grave of tree %q: %w", s.Name, err)
	}
	insert := store.Insert(v.key(), graveFormat.Seal(body))
	for attempt := 0; ; attempt++ {
		_, err := g.table.Apply(ctx, partitionRegistry, []store.Op{store.Delete(rowKey(s.Name), s.etag), insert})
		if err == nil {
			return nil
		}
		if !uncertain(err) || attempt == registryAttempts {
			return fmt.Errorf("bury %s: %w", rowWhere(s.Name), err)
		}
		now, rerr := g.read(ctx, s.Name)
		if errors.Is(rerr, ErrTreeNotFound) || rerr == nil && now.ID != s.ID {
			return nil
		}
		if rerr != nil {
			return rerr
		}
		s = now
		if g.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return fmt.Errorf("bury %s: %w", rowWhere(s.Name), err)
		}
	}
}

// clearGraves destroys what is left of trees that were purged long ago.
func (db *DB) clearGraves(ctx context.Context, rep *Report) error {
	var page store.Page
	err := db.reg.retry(ctx, func() (err error) {
		page, err = db.table.Range(ctx, partitionRegistry, store.RangeQuery{From: gravePrefix, To: gravePrefix + "~", Limit: gravesPerTick})
		return err
	})
	if err != nil {
		return fmt.Errorf("list graves: %w", err)
	}
	for _, r := range page.Rows {
		v, err := decodeGrave(r.Key, r.Data)
		if err != nil {
			return err
		}
		if db.clock.Now().Milli()-v.Purged < graveAge.Milliseconds() {
			return nil // and so are all that follow
		}
		if err := db.clearGrave(ctx, &v, r); err != nil {
			rep.fail(v.row().Name, 0, err)
		}
	}
	return nil
}

func (db *DB) clearGrave(ctx context.Context, v *grave, r store.Row) error {
	old := v.row()
	if err := db.eachShard(ctx, &old, func(ctx context.Context, l shardLog) error { return l.Destroy(ctx) }); err != nil {
		return err
	}
	if err := errors.Join(db.splits.Forget(ctx, v.ID), db.loads(v.ID).forget(ctx), db.txns.Forget(ctx, v.ID), db.cursors(v.ID).forget(ctx)); err != nil {
		return err
	}
	_, err := db.table.Apply(ctx, partitionRegistry, []store.Op{store.Delete(r.Key, r.ETag)})
	if err != nil && !store.LostRace(err) {
		return fmt.Errorf("remove registry row %s: %w", r.Key, err)
	}
	return nil
}

func decodeGrave(key string, data []byte) (grave, error) {
	var v grave
	body, err := graveFormat.Open("registry row "+key, data)
	if err != nil {
		return v, err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return v, store.Corruptf("registry row %s: %v", key, err)
	}
	if v.key() != key || v.NextShard == 0 || v.NextShard > maxShards {
		return v, store.Corruptf("registry row %s does not describe a purged tree", key)
	}
	return v, nil
}
