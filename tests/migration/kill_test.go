package migration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// campaign has one migration after the other killed and resumed, until there
// were enough kills.
type campaign struct {
	*place
	*origin
	// chunk is how many entries the tool puts into a chunk.
	chunk int
	// kills is how many are wanted, spread the most chunks between two of them.
	kills, spread int
	// delay is the longest time between the start of the tool and a kill that
	// does not wait for a chunk.
	delay time.Duration
	rng   *rand.Rand
	// killed is how many there were.
	killed int
}

// victim is what a kill ends.
type victim string

const (
	theTool    victim = "the tool"
	theService victim = "the service"
	both       victim = "both"
)

// plan is a kill to come.
type plan struct {
	victim victim
	// at and nth say which chunk it waits for; if at is empty it waits for a
	// time.
	at  moment
	nth int
	in  time.Duration
}

// String implements fmt.Stringer.
func (p plan) String() string {
	if p.at == "" {
		return fmt.Sprintf("%s after %s", p.victim, p.in)
	}
	return fmt.Sprintf("%s %s, number %d from here", p.victim, p.at, p.nth)
}

func (c *campaign) draw() plan {
	p := plan{victim: []victim{theTool, theTool, theService, both}[c.rng.IntN(4)], nth: 1 + c.rng.IntN(c.spread)}
	p.at = []moment{"", beforeChunk, duringChunk, afterChunk, afterChunk}[c.rng.IntN(5)]
	p.in = time.Duration(c.rng.Int64N(int64(c.delay)))
	return p
}

// run carries the campaign out, from a seed that it prints.
func (c *campaign) run(t *testing.T, seed uint64) {
	t.Helper()
	t.Logf("seed %d", seed)
	c.rng = rand.New(rand.NewPCG(seed, 1))
	for n := 0; c.killed < c.kills; n++ {
		if n > c.kills {
			t.Fatalf("%d migrations, and only %d kills", n, c.killed)
		}
		tree := fmt.Sprintf("tree-%d", n)
		before := c.killed
		c.migrate(t, tree)
		c.check(t, c.place, tree)
		t.Logf("tree %s is equal after %d kills", tree, c.killed-before)
	}
	operations, chunks, err := c.chunks()
	if err != nil {
		t.Error(err)
	}
	again := 0
	for i, repeated := range c.repeated() {
		again += len(repeated)
		if len(repeated) > 1 {
			t.Errorf("after kill %d more than one chunk was sent again: %v", i+1, repeated)
		}
	}
	t.Logf("%d kills, %d loads, %d chunks, of which %d were sent again", c.killed, operations, chunks, again)
}

// migrate runs the tool until it says that it is done.
func (c *campaign) migrate(t *testing.T, tree string) {
	t.Helper()
	state := t.TempDir()
	args := c.command("migrate", tree, state, fmt.Sprintf("--chunk-entries=%d", c.chunk))
	const most = 200 // starts of the tool, however it ends
	var r *run
	for starts := 0; starts < most; {
		if r == nil {
			r = c.tool(t, c.environment(), args...)
			starts++
		}
		p, sprung := plan{}, (<-chan struct{})(nil)
		var after <-chan time.Time
		if c.killed < c.kills {
			p = c.draw()
			if p.at == "" {
				after = time.After(p.in)
			} else {
				sprung = c.set(p.nth, p.at, func() { c.strike(r, p) })
			}
		}
		select {
		case <-sprung:
		case <-after:
			c.strike(r, p)
		case <-r.Exited():
			if sprung == nil || c.disarm() {
				c.keepsSecret(t, r, state)
				if r.ended(t) {
					return
				}
				r = nil
				continue
			}
			// The trap has sprung, and this is its effect.
			<-sprung
		}
		c.killed++
		t.Logf("%s: kill %d: %s", time.Now().Format("15:04:05.000"), c.killed, p)
		if p.victim != theTool {
			c.start(t)
		}
		if p.victim != theService {
			r = nil
		}
	}
	t.Fatalf("the tool was started %d times and is not done", most)
}

func (c *campaign) strike(r *run, p plan) {
	if p.at == duringChunk {
		// Work on a chunk takes some milliseconds.
		<-time.After(p.in % (20 * time.Millisecond))
	}
	c.mark()
	if p.victim != theService {
		r.Kill()
	}
	if p.victim != theTool {
		c.service.Kill()
	}
}

// ended looks at the end of a run that nobody killed, and reports whether it is
// done. One that says it failed may do so if the service was away. What it says
// of itself must agree.
func (r *run) ended(t *testing.T) bool {
	t.Helper()
	code := r.ExitCode()
	if code == exitFailed {
		t.Logf("the tool gave up:\n%s%s", r.out.String(), r.Output())
		return false
	}
	if code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, r.out.String(), r.Output())
	}
	a := r.report(t)
	if !a.Complete || a.Phase != "done" || a.Verified == nil || !*a.Verified || a.Rejected != 0 ||
		a.Read != a.Loaded+a.Duplicates+a.Expired || a.LiveKeys > a.Loaded || a.LiveKeys < a.Loaded-a.Expiring {
		t.Errorf("done, but the account is %+v", a)
	}
	return true
}

// isDone waits for a run that nobody interrupts.
func (r *run) isDone(t *testing.T) bool {
	t.Helper()
	r.wait()
	return r.ended(t)
}

// The exit codes of the tool.
const (
	exitOK     = 0
	exitNo     = 1
	exitFailed = 3
)
