package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/latticekv/lattice/client"
)

// Shape is how the entries of a tree lie in its shards. It covers the whole
// tree, whatever prefix was compared.
type Shape struct {
	Shards     int   `json:"shards"`
	LiveKeys   int64 `json:"liveKeys"`
	Tombstones int64 `json:"tombstones"`
	// Least, Median and Most are the shares of the live keys in one shard, 0 to 1.
	Least  float64 `json:"leastShare"`
	Median float64 `json:"medianShare"`
	Most   float64 `json:"mostShare"`
	// PendingGrafts is how many shards have a part of a bulk load half-way in.
	PendingGrafts int `json:"pendingGrafts"`
	// Warnings say what is out of the ordinary, a sentence each. None is an
	// error.
	Warnings  []string  `json:"warnings,omitempty"`
	SampledAt time.Time `json:"sampledAt"`
}

// ShapeOf asks the service for the shape of a tree; keys are counted now, which
// reads the whole tree.
func ShapeOf(ctx context.Context, t *client.Tree) (Shape, error) {
	d, err := t.Diagnostics(ctx, true)
	if err != nil {
		return Shape{}, fmt.Errorf("diagnose tree: %w", err)
	}
	s := shapeOf(&d)
	// Diagnostics may be some minutes old; the number of keys is that of now.
	n, err := t.Count(ctx, client.Range{}, client.CountOptions{})
	if err != nil {
		return Shape{}, fmt.Errorf("count the keys of the tree: %w", err)
	}
	s.LiveKeys = n.Total
	return s, nil
}

func shapeOf(d *client.Diagnostics) Shape {
	s := Shape{Shards: len(d.Shards), LiveKeys: d.Totals.LiveKeys, Tombstones: d.Totals.Tombstones, SampledAt: d.SampledAt}
	slots := 0
	for i := range d.Shards {
		slots += d.Shards[i].Slots
	}
	shares := make([]float64, 0, len(d.Shards))
	for i := range d.Shards {
		sh := &d.Shards[i]
		if sh.BulkPending {
			s.PendingGrafts++
		}
		if sh.Error != "" {
			s.warn("Shard %d could not be looked at: %s.", sh.Shard, sh.Error)
			continue
		}
		shares = append(shares, float64(sh.LiveKeys)/float64(max(s.LiveKeys, 1)))
		s.checkShare(sh, slots)
	}
	if slices.Sort(shares); len(shares) > 0 {
		s.Least, s.Median, s.Most = shares[0], shares[len(shares)/2], shares[len(shares)-1]
	}
	s.checkRest(d)
	return s
}

// checkShare compares a shard with what its slots would get of keys that are
// spread evenly. Six standard deviations and a quarter of it are allowed.
func (s *Shape) checkShare(sh *client.ShardDiagnostics, slots int) {
	want := float64(s.LiveKeys) * float64(sh.Slots) / float64(max(slots, 1))
	if off := math.Abs(float64(sh.LiveKeys) - want); want >= 100 && off > max(want/4, 6*math.Sqrt(want)) {
		s.warn("Shard %d holds %d keys; its %d slots would hold about %.0f if keys were spread evenly.", sh.Shard, sh.LiveKeys, sh.Slots, want)
	}
}

func (s *Shape) checkRest(d *client.Diagnostics) {
	if s.PendingGrafts > 0 {
		s.warn("Shards with a part of a bulk load half-way in: %d. The next request that opens such a shard finishes it.", s.PendingGrafts)
	}
	if d.BulkPending {
		s.warn("A bulk load of the tree is open; it is to be committed or aborted.")
	}
	if s.Tombstones > 1000 && s.Tombstones > s.LiveKeys/2 {
		s.warn("There are %d tombstones beside %d live keys; they go with merges, after TombstoneGracePeriod.", s.Tombstones, s.LiveKeys)
	}
}

// maxWarnings bounds the warnings of a tree with many shards.
const maxWarnings = 20

func (s *Shape) warn(format string, args ...any) {
	if len(s.Warnings) < maxWarnings {
		s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
	}
}
