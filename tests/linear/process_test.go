package linear

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/history"
	"github.com/latticekv/lattice/tests/running"
)

const (
	// clientsEach is the number of clients of each process.
	clientsEach = 64
	// keysEach is the number of keys for each process; all clients work on all
	// of them. The more clients a key has at once, the longer the search for an
	// order takes.
	keysEach = 3
	// epoch is the time after which all go on to fresh keys: so no key's
	// history grows too long to be explained.
	epoch = 1200 * time.Millisecond
)

// fleet is some processes of the service on one storage, and their clients.
type fleet struct {
	*history.Workload
	t      *testing.T
	src    clock.Source
	env    []string
	args   []string
	leases func(place int) bool
	places []atomic.Pointer[process]
}

// process is a running service as its clients see it.
type process struct {
	*running.Service
	store httpStore
}

func newFleet(t *testing.T, seed uint64, size int, leases func(int) bool) *fleet {
	emulator := azurite.Shared(t)
	src := clock.NewSystem()
	start := src.Now().Mono
	f := &fleet{
		Workload: history.NewWorkload(seed, func() int64 { return int64(src.Now().Mono - start) }),
		t:        t, src: src, leases: leases, places: make([]atomic.Pointer[process], size),
		env: []string{"AZURE_STORAGE_CONNECTION_STRING=" + emulator.ConnectionString()},
		args: []string{
			"--store=azure", "--table-name=" + emulator.TableName(t), "--container-name=" + emulator.ContainerName(t),
			"--log-level=error", "--data-dir=" + t.TempDir(),
			"--lease-duration=2s", "--max-clock-skew=100ms", "--lease-contention-backoff=1s",
			"--checkpoint-tail-rows=40", "--checkpoint-interval=300ms", "--collect-interval=500ms",
			"--wal-grace-period=1s", "--blob-grace-period=3s", "--request-timeout=15s",
		},
	}
	for place := range f.places {
		f.start(place)
	}
	if t.Failed() {
		t.FailNow()
	}
	if err := f.places[0].Load().store.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// start puts a fresh process into a place.
func (f *fleet) start(place int) {
	args := append(f.args[:len(f.args):len(f.args)], fmt.Sprintf("--leases=%v", f.leases(place)))
	s, err := running.Launch(f.t, f.env, args...)
	if err != nil {
		f.t.Errorf("start process %d: %v", place, err)
		return
	}
	p := &process{Service: s}
	if p.store, err = newHTTPStore(s.URL, func(err error) { f.t.Errorf("process %d answers: %v", place, err) }); err != nil {
		f.t.Error(err)
		return
	}
	f.places[place].Store(p)
}

// keysOf returns the names of an epoch's keys.
func (f *fleet) keysOf(epoch int64) []string {
	keys := make([]string, keysEach*len(f.places))
	for i := range keys {
		keys[i] = fmt.Sprintf("e%03d/k%02d", epoch, i)
	}
	return keys
}

func (f *fleet) now() int64 { return f.Now() / int64(epoch) }

// run drives the fleet for a time, in the middle of which a process is killed
// and, a moment later, replaced.
func (f *fleet) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(f.t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for client := range len(f.places) * clientsEach {
		all.Go(func() { f.client(ctx, client) })
	}
	all.Go(func() {
		if f.src.Sleep(ctx, length/2) == nil {
			f.places[1].Load().Kill()
		}
		if f.src.Sleep(ctx, 500*time.Millisecond) == nil {
			f.start(1)
		}
	})
	all.Wait()
	for place := range f.places {
		p := f.places[place].Load()
		for e := range f.now() + 1 {
			f.Read(f.t.Context(), -1-place, p.store, f.keysOf(e))
		}
		if err := p.Stop(); err != nil {
			f.t.Errorf("process %d: %v", place, err)
		}
	}
}

func (f *fleet) client(ctx context.Context, client int) {
	for ctx.Err() == nil {
		p := f.places[client%len(f.places)].Load()
		// A request is not cut off when the time is up: its answer counts.
		f.Step(context.WithoutCancel(ctx), client, p.store, f.keysOf(f.now()))
		select {
		case <-p.Exited():
			// Not worth a busy loop.
			_ = f.src.Sleep(ctx, 100*time.Millisecond)
		default:
		}
	}
}

// byEpoch splits a history into those of the epochs, which share no key.
func byEpoch(ops []history.Op, surveys []history.Survey) (map[string][]history.Op, map[string][]history.Survey) {
	name := func(key string) string { return key[:4] }
	opsOf, surveysOf := map[string][]history.Op{}, map[string][]history.Survey{}
	for _, op := range ops {
		opsOf[name(op.Key)] = append(opsOf[name(op.Key)], op)
	}
	for _, s := range surveys {
		surveysOf[name(s.Keys[0])] = append(surveysOf[name(s.Keys[0])], s)
	}
	return opsOf, surveysOf
}

// processTime is how long a fleet runs: each for long in a soak.
func processTime(size int, mode string) time.Duration {
	if os.Getenv("LATTICE_SOAK") != "" || size == 4 && mode == "mixed" {
		return 30 * time.Second
	}
	return 8 * time.Second
}

func TestProcessesOnOneAzuriteAreLinearizable(t *testing.T) {
	for i, size := range []int{2, 4} {
		for j, mode := range modes {
			t.Run(fmt.Sprintf("%d processes %s", size, mode.name), func(t *testing.T) {
				seed := uint64(10*i + j)
				f := newFleet(t, seed, size, mode.leases)
				f.run(processTime(size, mode.name))
				known, failed := f.Outcomes()
				t.Logf("seed %d: %d operations with a known outcome, %d without", seed, known, failed)
				if idle := f.Idle(); len(idle) > 0 || known < 5*failed {
					t.Errorf("too little came of it: nothing of %v", idle)
				}
				ops, surveys := byEpoch(f.Ops(), f.Surveys())
				for name := range ops {
					verify(t, fmt.Sprintf("%d-%s-%s", size, mode.name, name), ops[name], surveys[name])
				}
			})
		}
	}
}
