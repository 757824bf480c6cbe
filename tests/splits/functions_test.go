package splits

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/tests/hosts/funcshost"
	"github.com/latticekv/lattice/tests/running"
)

// threeApps are custom handlers behind three doubles of the Functions host, with
// requests going to one after the other. Timers are delivered by the test.
type threeApps struct {
	t     *testing.T
	hosts [3]*funcshost.Host
	turn  atomic.Uint64
	src   clock.Source

	mu  sync.Mutex
	rnd *rand.Rand
	// ticks counts deliveries, doubled those that came twice at once.
	ticks, doubled int
}

// ServeHTTP implements http.Handler: the next one serves.
func (a *threeApps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.hosts[a.turn.Add(1)%uint64(len(a.hosts))].ServeHTTP(w, r)
}

func newThreeApps(t *testing.T, w *world) *threeApps {
	seed := rand.Uint64()
	t.Logf("timers are delivered by seed %d", seed)
	a := &threeApps{t: t, src: clock.NewSystem(), rnd: rand.New(rand.NewPCG(seed, 1))}
	env := []string{
		"LATTICE_STORE=azure", "AZURE_STORAGE_CONNECTION_STRING=" + w.emulator.ConnectionString(), "LATTICE_TABLE_NAME=" + w.table,
		"LATTICE_CONTAINER_NAME=" + w.container, "LATTICE_INSECURE_NO_AUTH=true", "LATTICE_LOG_LEVEL=warn",
	}
	for name, value := range hotSettings {
		env = append(env, "LATTICE_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
	}
	for i := range a.hosts {
		a.hosts[i] = funcshost.Start(t, funcshost.Options{App: running.Root(t) + "/infra/azurefunc", Program: running.Build(t, "functions/azurefunc"), Env: env})
	}
	return a
}

// anyHost draws one, and whether a timer comes twice.
func (a *threeApps) anyHost() (h *funcshost.Host, twice bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ticks++
	if twice = a.rnd.IntN(5) == 0; twice {
		a.doubled++
	}
	return a.hosts[a.rnd.IntN(len(a.hosts))], twice
}

// every delivers a timer now and then, until ctx ends.
func (a *threeApps) every(ctx context.Context, timer string, interval time.Duration) {
	for a.src.Sleep(ctx, interval) == nil {
		h, twice := a.anyHost()
		var both sync.WaitGroup
		both.Go(func() { a.deliver(ctx, h, timer) })
		if twice {
			other, _ := a.anyHost()
			both.Go(func() { a.deliver(ctx, other, timer) })
		}
		both.Wait()
	}
}

func (a *threeApps) deliver(ctx context.Context, h *funcshost.Host, timer string) {
	done, err := h.Invoke(context.WithoutCancel(ctx), timer, funcshost.Payload(a.src.Now().Time(), false))
	if err != nil || !done.OK() {
		a.t.Errorf("timer %s: %v, %q", timer, err, done.Logs)
	}
}

// threeProcesses is the service as three custom handlers behind a proxy.
func threeProcesses(t *testing.T, w *world) system {
	a := newThreeApps(t, w)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	var timers sync.WaitGroup
	for _, timer := range schedule.Names() {
		interval := time.Second
		if timer == "migrations" {
			interval = 200 * time.Millisecond
		}
		timers.Go(func() { a.every(ctx, timer, interval) })
	}
	end := func() {
		cancel()
		timers.Wait()
	}
	t.Cleanup(end)
	return system{server.URL, func() (err error) {
		end()
		t.Logf("%d ticks, %d of them twice at once", a.ticks, a.doubled)
		for _, h := range a.hosts {
			if h.Starts() != 1 {
				t.Errorf("a handler was started %d times", h.Starts())
			}
			err = errors.Join(err, h.Stop())
		}
		return err
	}}
}

// The same on three stateless processes of the Functions host: none of them knows
// of the others, and timers come to whichever of them, now and then twice.
func TestHotTreeSpreadsOverThreeCustomHandlers(t *testing.T) {
	newHeat(t, threeProcesses).spreads()
}
