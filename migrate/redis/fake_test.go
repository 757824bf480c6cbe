package redis

import (
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/latticekv/lattice/migrate/source"
)

// fake is a server in this process. It differs from a real one where that
// matters here: SCAN lists everything in one reply and knows no other cursor,
// and INFO says nothing of the server; both are answered by the test.
type fake struct {
	*miniredis.Miniredis
	mu sync.Mutex
	// run is the id of the process, info further lines of INFO.
	run, info string
	// before is called with each command; it answers itself if it returns true.
	before func(c *server.Peer, cmd string, args []string) bool
}

func startFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{Miniredis: miniredis.RunT(t), run: "run-1"}
	f.hook()
	return f
}

func (f *fake) hook() {
	f.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		f.mu.Lock()
		run, info, before := f.run, f.info, f.before
		f.mu.Unlock()
		if before != nil && before(c, cmd, args) {
			return true
		}
		if cmd == "INFO" {
			c.WriteBulk("redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:" + run + "\r\n" + info)
			return true
		}
		return false
	})
}

// on sets what happens before each command.
func (f *fake) on(before func(c *server.Peer, cmd string, args []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

// once runs do before the first command of that name.
func (f *fake) once(cmd string, do func()) {
	var first sync.Once
	f.on(func(_ *server.Peer, c string, _ []string) bool {
		if c == cmd {
			first.Do(do)
		}
		return false
	})
}

// refuse answers commands of these names as a server that lacks them.
func (f *fake) refuse(names ...string) {
	f.on(func(c *server.Peer, cmd string, _ []string) bool {
		for _, n := range names {
			if n == cmd {
				c.WriteError("ERR unknown command '" + cmd + "'")
				return true
			}
		}
		return false
	})
}

func (f *fake) open(t *testing.T, o Options) *Source {
	t.Helper()
	o.URL, o.DB = "redis://"+f.Addr(), -1
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func collect(t *testing.T, s *Source, from source.Position) (all source.Page, pages []source.Page) {
	t.Helper()
	for p, err := range s.Read(t.Context(), from) {
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p)
		all.Records = append(all.Records, p.Records...)
		all.Faults = append(all.Faults, p.Faults...)
		all.Expired += p.Expired
	}
	return all, pages
}
