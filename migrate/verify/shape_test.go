package verify

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client"
)

// even is a tree of four shards with so many keys each.
func even(keys ...int64) *client.Diagnostics {
	d := &client.Diagnostics{}
	for i, n := range keys {
		d.Shards = append(d.Shards, client.ShardDiagnostics{Shard: i, Slots: 1024, LiveKeys: n})
		d.Totals.LiveKeys += n
	}
	return d
}

func TestShape(t *testing.T) {
	s := shapeOf(even(1000, 990, 1010, 1000))
	if len(s.Warnings) != 0 || s.Shards != 4 || s.Median != 0.25 || s.Least >= s.Most {
		t.Errorf("an even tree: %+v", s)
	}
	for name, c := range map[string]struct {
		d     *client.Diagnostics
		wants string
	}{
		"a full shard":  {even(1000, 1000, 1000, 2000), "Shard 3 holds 2000 keys"},
		"an empty one":  {even(1000, 1000, 0, 1000, 1000, 1000, 1000, 1000), "Shard 2 holds 0 keys"},
		"a graft":       {func() *client.Diagnostics { d := even(1, 1); d.Shards[1].BulkPending = true; return d }(), "half-way in: 1"},
		"an open load":  {func() *client.Diagnostics { d := even(1, 1); d.BulkPending = true; return d }(), "is open"},
		"tombstones":    {func() *client.Diagnostics { d := even(900, 900); d.Totals.Tombstones = 1001; return d }(), "1001 tombstones"},
		"a blind shard": {func() *client.Diagnostics { d := even(1, 1); d.Shards[0].Error = "timed out"; return d }(), "Shard 0 could not be looked at: timed out"},
	} {
		s := shapeOf(c.d)
		if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], c.wants) {
			t.Errorf("%s: %q", name, s.Warnings)
		}
	}
	if s := shapeOf(even(3, 0, 1, 9)); len(s.Warnings) != 0 {
		t.Errorf("too few keys to tell: %q", s.Warnings)
	}
	if s := shapeOf(&client.Diagnostics{}); s.Shards != 0 || s.Most != 0 {
		t.Errorf("%+v", s)
	}
	half := even(1000, 500)
	half.Shards[1].Slots = 512
	if s := shapeOf(half); len(s.Warnings) != 0 {
		t.Errorf("half the slots, half the keys: %q", s.Warnings)
	}
}

func TestShapeOfATree(t *testing.T) {
	w := newWorld(t)
	w.alike("a", "1")
	s, err := ShapeOf(t.Context(), w.tree)
	if err != nil || s.LiveKeys != 1 || s.Shards == 0 {
		t.Fatal(s, err)
	}
}

// Diagnostics may be old; the number of keys that is told is that of now.
func TestShapeCountsNow(t *testing.T) {
	w := newWorld(t)
	w.put("a", "1", 0)
	stale := httptest.NewRecorder()
	w.server.ServeHTTP(stale, httptest.NewRequest(http.MethodGet, "/v1/trees/t/diagnostics?deep=true", nil))
	w.put("b", "2", 0)
	w.server.Intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/diagnostics") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(stale.Body.Bytes())
		return true
	}
	s, err := ShapeOf(t.Context(), w.tree)
	if err != nil || s.LiveKeys != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
}
