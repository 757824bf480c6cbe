package engines

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/tests/running"
)

// Redis is a running Redis that keeps its data in memory.
type Redis struct {
	*running.Process
	// Addr is host and port.
	Addr string
	// Password is that of the default user.
	Password string
	// URL names address, password and database 0: "redis://:secret@host:port/0".
	URL string
}

// StartRedis runs a Redis and returns when it answers. Lines of configuration
// are added to its own.
func StartRedis(t testing.TB, config ...string) Redis {
	t.Helper()
	program := filepath.Join(install(t, "install-engine.sh", "redis"), "redis-server")
	dir := owner{}.folder(t, "redis")
	r := Redis{Password: password()}
	file := filepath.Join(dir, "redis.conf")
	owner{}.file(t, file, "requirepass "+r.Password+"\n"+strings.Join(config, "\n")+"\n")
	r.Process, r.Addr = server{
		name: "redis",
		command: func(port int) *exec.Cmd {
			return exec.Command(program, file, "--bind", host, "--port", strconv.Itoa(port),
				"--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
		},
		ready: r.ping,
	}.start(t)
	r.URL = "redis://:" + r.Password + "@" + r.Addr + "/0"
	return r
}

func (r Redis) ping(ctx context.Context, addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr, Password: r.Password, MaxRetries: -1})
	defer c.Close()
	return c.Ping(ctx).Err()
}

// Client returns a client of database 0, closed when the test ends.
func (r Redis) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr, Password: r.Password})
	t.Cleanup(func() { c.Close() })
	return c
}
