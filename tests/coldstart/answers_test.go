package coldstart

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/tap"
)

// mostForGet is how many round trips to the storage a process makes at most until
// it has answered its first get: the tree's row, the end of the shard's log, the
// manifest of its checkpoint, one leaf.
const mostForGet = 4

func TestFirstGetOfAColdProcessTakesFourRoundTrips(t *testing.T) {
	a := fresh(t)
	keys := a.checkpointed(t)
	for i := range 6 {
		n := i * (keys - 1) / 5
		answer, asked := a.cold(t, "GET", "/v1/trees/t/keys/"+key(n), "", 200)
		if answer != value(n) {
			t.Errorf("%s is %q", key(n), answer)
		}
		if len(asked) > mostForGet {
			t.Errorf("the first get of %s takes %d round trips, more than %d", key(n), len(asked), mostForGet)
		}
		if want := []string{"table", "table", "blob", "blob"}; !slices.Equal(services(asked), want) {
			t.Errorf("asked %v, want %v", services(asked), want)
		}
	}
	if _, asked := a.cold(t, "GET", "/v1/trees/t/keys/absent", "", 404); len(asked) > mostForGet {
		t.Errorf("the first get of an absent key takes %d round trips", len(asked))
	}
	if _, asked := a.cold(t, "GET", "/v1/trees/none/keys/k", "", 404); len(asked) > 1 {
		t.Errorf("the first get of a tree that does not exist takes %d round trips", len(asked))
	}
}

func services(asked []tap.Exchange) []string {
	var names []string
	for _, e := range asked {
		names = append(names, e.Service)
	}
	return names
}

// TestOtherFirstRequestsOfAColdProcess holds what docs/operate.md says of them.
func TestOtherFirstRequestsOfAColdProcess(t *testing.T) {
	a := fresh(t)
	a.checkpointed(t)
	for _, c := range []struct {
		name, method, path, body string
		want, most               int
	}{
		{"health", "GET", "/healthz", "", 200, 0},
		{"readiness", "GET", "/readyz", "", 200, 2},
		// The get, and the append.
		{"put", "PUT", "/v1/trees/t/keys/" + key(7), value(7), 200, 5},
		// Log and manifest of each shard, and the one or two leaves with the page in them.
		{"page", "GET", "/v1/trees/t/entries?limit=10&start=" + key(100) + "&end=" + key(110), "", 200, 1 + 4*shards},
		// The row once more at the end, and only the leaves that others overlap.
		{"count", "GET", "/v1/trees/t/count", "", 200, 2 + 3*shards},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, asked := a.cold(t, c.method, c.path, c.body, c.want); len(asked) > c.most {
				t.Errorf("takes %d round trips, more than %d", len(asked), c.most)
			}
		})
	}
}

// TestStartAsksNothing: not even whether the storage is there.
func TestStartAsksNothing(t *testing.T) {
	a := fresh(t)
	h := a.start(t)
	h.do(t, "GET", "/healthz", "", 200)
	if asked := a.Take(); len(asked) != 0 {
		t.Errorf("the start made %v", asked)
	}
	var times []time.Duration
	for range 5 {
		times = append(times, a.start(t).listened)
	}
	slices.Sort(times)
	t.Logf("start to listening: %v", times)
	// Generous, for a machine that does much at once; the benchmark measures.
	if times[2] > time.Second {
		t.Errorf("half of the starts take longer than %v", times[2])
	}
}

func TestUnreachableStorageIsToldByReadinessAlone(t *testing.T) {
	a := fresh(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	h := a.start(t, "LATTICE_REQUEST_TIMEOUT=2s", "LATTICE_ROUTING_RETRY_BUDGET=1s")
	h.do(t, "GET", "/healthz", "", 200)
	if body := h.do(t, "GET", "/readyz", "", 503); !strings.Contains(body, `"unavailable"`) {
		t.Errorf("readiness: %s", body)
	}
	h.do(t, "GET", "/v1/trees/t/keys/k", "", 503)
	h.logs(t, "connection refused")
}
