package dataset

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/latticekv/lattice/tests/azurite"
)

func newSeed(t *testing.T) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}

// throughEverything imports, surveys, stops, starts and crashes a service.
func throughEverything(t *testing.T, n *node, src source) {
	t.Helper()
	seed := newSeed(t)
	v := &survey{node: n, tree: "cities", rows: Sorted(src.rows), rng: rand.New(rand.NewPCG(seed, 0))}
	n.start(t)
	n.load(t, v.tree, src)
	v.whole(t)
	n.stop(t)
	n.start(t)
	v.brief(t)
	withCrashes(t, n, src, v.rows, seed)
	v.brief(t)
}

func TestCitiesOnBolt(t *testing.T) {
	throughEverything(t, onBolt(t), ndjsonFile(t, Cities(t)))
}

func TestCitiesOnAzurite(t *testing.T) {
	e := azurite.Start(t)
	n := onAzurite(t, e, e.TableName(t), e.ContainerName(t))
	// What a killed process held stays taken for so long.
	n.args = append(n.args, "--lease-duration=2s", "--max-clock-skew=100ms", "--lease-contention-backoff=1s")
	throughEverything(t, n, csvFile(t, Cities(t)))
}

func TestTwoServicesImportHalfOfTheCitiesEach(t *testing.T) {
	e := azurite.Start(t)
	table, container := e.TableName(t), e.ContainerName(t)
	nodes := [2]*node{onAzurite(t, e, table, container), onAzurite(t, e, table, container)}
	var halves [2][]Row
	for i, r := range Cities(t) {
		halves[i%2] = append(halves[i%2], r)
	}
	sources := [2]source{ndjsonFile(t, halves[0]), csvFile(t, halves[1])}
	for _, n := range nodes {
		n.start(t)
	}
	var both sync.WaitGroup
	for i, n := range nodes {
		both.Go(func() { n.load(t, "cities", sources[i]) })
	}
	both.Wait()
	if t.Failed() {
		return
	}
	rng := rand.New(rand.NewPCG(newSeed(t), 0))
	for _, n := range nodes {
		v := &survey{node: n, tree: "cities", rows: Sorted(Cities(t)), rng: rng}
		v.brief(t)
	}
}
