package splits

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/keyspace"
)

// hottest is the share of what was asked that the hottest shard has.
func hottest(m *keyspace.Map, asks map[string]int) float64 {
	byShard, all, most := map[keyspace.ShardID]int{}, 0, 0
	for key, n := range asks {
		byShard[m.OwnerOf(key)] += n
		all += n
	}
	for _, n := range byShard {
		most = max(most, n)
	}
	return float64(most) / float64(max(all, 1))
}

// timeline tells what happened when.
func (h *heat) timeline(began time.Time, splits []client.Split) string {
	var b strings.Builder
	for _, s := range slices.Backward(splits) {
		target := -1
		if s.Target != nil {
			target = *s.Target
		}
		fmt.Fprintf(&b, "%6.1fs  shard %d gives %d slots to %d, asked for by the %s, %d entries carried over: %v ms\n",
			s.Started.Sub(began).Seconds(), s.Source, s.MovedSlots, target, s.Cause, s.EntriesForwarded, s.DurationsMs)
	}
	fmt.Fprintf(&b, "requests in each second: %v\n", h.rates)
	return b.String()
}

// A shard that is hot is divided by the monitor of a running service, again and
// again, and nobody sees anything of it but that the heat is spread.
func TestHotTreeSpreadsByItself(t *testing.T) {
	newHeat(t, oneProcess).spreads()
}

// spreads runs the load and asserts that the heat was spread, and that all
// answers were exact meanwhile and afterwards.
func (h *heat) spreads() {
	t := h.t
	before := h.shardMap()
	began := h.src.Now().Time()
	asks := h.run()
	s, err := h.tree.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("timeline\n%s", h.timeline(began, slices.Concat(s.InFlight, s.Recent)))
	first, last := hottest(before, asks), hottest(h.shardMap(), asks)
	t.Logf("the hottest shard has %.0f %% of the requests instead of %.0f %%; %d counts, %d scans and %d backward were exact; %d answers of 503",
		100*last, 100*first, h.polls[0].Load(), h.polls[1].Load(), h.polls[2].Load(), h.again.Load())
	if len(s.Recent) < 2 {
		t.Errorf("%d splits are over", len(s.Recent))
	}
	for _, x := range s.Recent {
		if x.Cause != "monitor" {
			t.Errorf("a split was asked for by the %s", x.Cause)
		}
	}
	if last > first*0.75 {
		t.Error("the heat is where it was")
	}
	for kind := range h.polls {
		if h.polls[kind].Load() == 0 {
			t.Errorf("no poll of kind %d", kind)
		}
	}
	h.settled()
	if err := h.service.stop(); err != nil {
		t.Error(err)
	}
}

// settled counts and scans once more, when nothing else goes on: every key that
// was acknowledged is there, and nothing else but what its writer was not told
// the end of.
func (h *heat) settled() {
	ctx := h.t.Context()
	n, err := h.tree.Count(ctx, client.Range{Prefix: "key-"}, client.CountOptions{})
	if err != nil || n.Total != int64(len(h.all)) {
		h.t.Errorf("at the end the count is %d of %d, %v", n.Total, len(h.all), err)
	}
	h.scan(ctx, client.Query{Range: client.Range{Prefix: "key-"}, KeysOnly: true})
	for e, err := range h.tree.Scan(ctx, client.Query{Range: client.Range{Prefix: "key-"}}) {
		if err != nil {
			h.t.Fatal(err)
		}
		if value := string(e.Value); value != "first" && value != "again" && value != "together" {
			h.t.Errorf("%s = %q, which nobody wrote", e.Key, value)
		}
		if last, wrote := h.last[e.Key]; wrote && e.Version < last {
			h.t.Errorf("%s has version %s; %s was acknowledged", e.Key, e.Version, last)
		}
	}
}
