package linear

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/history"
)

// treeName is the tree that all work on.
const treeName = "t"

// skewed is a clock whose wall runs ahead of the machine's.
type skewed struct {
	clock.Source
	by time.Duration
}

// Now implements clock.Source.
func (s skewed) Now() clock.Instant {
	now := s.Source.Now()
	now.Wall += int64(s.by)
	return now
}

// instance is a process of the service: a DB over storage of its own faults.
type instance struct {
	*faulty.Instance
	db *tree.DB
}

// plan says what a schedule is made of.
type plan struct {
	instances, clients, each, keys, shards int
	// leases says which places take leases.
	leases func(place int) bool
	// storm is the share of storage calls that go wrong. Without one nobody
	// dies or loses patience either.
	storm float64
	// splits says that shards are split, and the tree resharded, meanwhile.
	splits bool
	// atomic says that clients send atomic batches.
	atomic bool
	// batches says that they send nothing else, and look at all keys at once.
	batches bool
	// honest says that the clocks of all instances agree.
	honest bool
}

// cluster is some instances over one store, each of which may die and be
// replaced.
type cluster struct {
	plan
	*history.Workload
	t   *testing.T
	src clock.Source
	mem *memory.Store

	mu     sync.Mutex
	places []*instance
	all    []*instance
	kills  int
	// completed are the splits that came to their end.
	completed int
	// wrap, if set, stands between the clients and the instances.
	wrap func(history.Store) history.Store
}

// errNever wraps what a cluster must not see.
var errNever = errors.New("an error that no fault explains")

func newCluster(t *testing.T, seed uint64, p plan) *cluster {
	src := clock.NewSystem()
	start := src.Now().Mono
	c := &cluster{
		plan: p, t: t, src: src, mem: memory.New(memory.Options{Clock: src}), places: make([]*instance, p.instances),
		Workload: history.NewWorkload(seed, func() int64 { return int64(src.Now().Mono - start) }),
	}
	for place := range c.places {
		c.start(place)
	}
	if _, _, err := c.places[0].db.Create(t.Context(), treeName, tree.CreateOptions{ShardCount: p.shards}); err != nil {
		t.Fatal(err)
	}
	for _, in := range c.places {
		c.disturb(in)
	}
	return c
}

// disturb lets calls of an instance go wrong from now on.
func (c *cluster) disturb(in *instance) {
	if c.storm > 0 {
		in.Add(faulty.Storm(c.storm, 20*time.Millisecond)...)
		// What has landed is often seen by others before its writer hears of it.
		in.Add(faulty.Rule{Name: "reply slow", When: faulty.Writes, Chance: 0.2, Do: faulty.Delay(0, 20*time.Millisecond)})
	}
}

func (c *cluster) options(place int) options.Options {
	o := options.Default()
	o.Leases = c.leases(place)
	o.LeaseDuration, o.LeaseContentionBackoff = 2*time.Second, time.Second
	o.WalGracePeriod, o.BlobGracePeriod = 300*time.Millisecond, 2*time.Second
	o.CheckpointTailRows = 4
	o.InlineValueBytes = 3 // values from v100 on get blobs
	o.RequestTimeout = 8 * time.Second
	o.TxTimeout, o.TxDecisionRetention = 2*time.Second, 10*time.Second
	return o
}

// start puts a fresh instance into a place.
func (c *cluster) start(place int) *instance {
	storage := faulty.New(c.mem.Table(), c.mem.Blobs(), faulty.Options{Clock: c.src})
	storage.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
	ahead := time.Duration(c.Draw(400)) * time.Millisecond
	if c.honest {
		ahead = 0
	}
	db, err := tree.New(tree.Config{
		Table: storage.Table(), Blobs: storage.Blobs(), Options: c.options(place),
		Clock: skewed{c.src, ahead},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	in := &instance{Instance: storage, db: db}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[place] = in
	c.all = append(c.all, in)
	return in
}

func (c *cluster) at(place int) *instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[place]
}

func (c *cluster) store(in *instance) history.Store {
	s := treeStore{db: in.db, name: treeName, complain: func(err error) {
		if !in.Killed() || errors.Is(err, store.ErrCorrupt) {
			c.t.Errorf("%v: %v", errNever, err)
		}
	}}
	if c.wrap != nil {
		return c.wrap(s)
	}
	return s
}

func (c *cluster) names() []string {
	names := make([]string, c.keys)
	for i := range names {
		names[i] = fmt.Sprintf("k%d", i)
	}
	return names
}

// run lets all clients finish, among ticks, faults and deaths, and then reads
// everything through a healthy instance.
func (c *cluster) run() {
	stop, cancel := context.WithCancel(c.t.Context())
	var others sync.WaitGroup
	for place := range c.places {
		others.Go(func() { c.maintain(stop, place) })
	}
	if c.storm > 0 {
		others.Go(func() { c.reap(stop) })
	}
	if c.splits {
		others.Go(func() { c.divide(stop) })
	}
	var clients sync.WaitGroup
	for client := range c.clients {
		clients.Go(func() { c.client(client) })
	}
	clients.Wait()
	cancel()
	others.Wait()
	for _, in := range c.all {
		in.Clear()
		in.Wait()
	}
	last := c.start(0)
	c.Read(c.t.Context(), c.clients, c.store(last), c.names())
}

func (c *cluster) client(client int) {
	names := c.names()
	for range c.each {
		in := c.at(c.Draw(c.instances))
		alive, end := in.Context(context.Background())
		patience := 8 * time.Second
		if c.storm > 0 && c.Draw(8) == 0 {
			patience = time.Duration(5+c.Draw(100)) * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(alive, patience)
		if c.batches {
			c.StepBatches(ctx, client, c.store(in).(history.AtomicStore), names)
		} else if c.atomic {
			c.StepAtomic(ctx, client, c.store(in).(history.AtomicStore), names)
		} else {
			c.Step(ctx, client, c.store(in), names)
		}
		cancel()
		end()
		c.pause(context.Background(), 1+c.Draw(30))
	}
}

// pause sleeps for a random time below so many milliseconds.
func (c *cluster) pause(ctx context.Context, ms int) bool {
	return c.src.Sleep(ctx, time.Duration(c.Draw(ms))*time.Millisecond) == nil
}

// maintain runs the ticks of whoever is in a place; they may fail as they like,
// but not find damage.
func (c *cluster) maintain(stop context.Context, place int) {
	for c.pause(stop, 500) {
		in := c.at(place)
		ctx, end := in.Context(stop)
		check, cerr := in.db.Checkpoint(ctx, 2*time.Second)
		collect, gerr := in.db.Collect(ctx, 2*time.Second)
		migrate, merr := in.db.Migrations(ctx, 2*time.Second)
		batches, berr := in.db.Transactions(ctx, 2*time.Second)
		end()
		errs := []error{cerr, gerr, merr, berr}
		for _, f := range batches.Failures {
			errs = append(errs, f.Err)
		}
		for _, f := range migrate.Failures {
			errs = append(errs, f.Err)
		}
		c.mu.Lock()
		c.completed += migrate.Completed
		c.mu.Unlock()
		for _, f := range append(check.Failures, collect.Failures...) {
			errs = append(errs, f.Err)
		}
		for _, err := range errs {
			if errors.Is(err, store.ErrCorrupt) {
				c.t.Errorf("tick: %v", err)
			}
		}
	}
}

// reap kills instances, half of them in the middle of a call, and replaces them.
func (c *cluster) reap(stop context.Context) {
	for c.pause(stop, 4000) {
		place := c.Draw(c.instances)
		in := c.at(place)
		if point := c.Draw(3); point > 0 {
			in.KillAt(in.Calls()+uint64(1+c.Draw(8)), faulty.Points[point-1])
			c.pause(stop, 500)
		}
		in.Kill()
		c.pause(stop, 800)
		c.disturb(c.start(place))
		c.mu.Lock()
		c.kills++
		c.mu.Unlock()
	}
}
