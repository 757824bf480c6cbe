package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// capabilities are what the server can, and lets this user do.
type capabilities struct {
	// version is empty where INFO is not allowed.
	version string
	info    map[string]string
	// transactions: MULTI and WATCH work.
	transactions bool
	// expireTime: PEXPIRETIME works, and expiry needs no clock.
	expireTime bool
	// clock: TIME works.
	clock bool
	// memory: MEMORY USAGE works.
	memory bool
}

// connect opens the server of the URL and learns what it can.
func (s *Source) connect(ctx context.Context) error {
	if s.client != nil {
		return nil
	}
	s.begins(true)
	s.client = goredis.NewClient(s.dial)
	err := s.learn(ctx)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func (s *Source) learn(ctx context.Context) error {
	if err := s.retry(ctx, func() error { return s.client.Ping(ctx).Err() }); err != nil && !refused(err) {
		return s.explain(err)
	}
	if err := s.readInfo(ctx); err != nil {
		return s.explain(err)
	}
	if s.caps.info["redis_mode"] == "sentinel" {
		return errors.New("this is a Sentinel, which holds no data: ask it with SENTINEL GET-MASTER-ADDR-BY-NAME and give the address it names")
	}
	if err := s.probe(ctx); err != nil {
		return s.explain(err)
	}
	if err := s.findNodes(ctx); err != nil {
		return err
	}
	s.at = -1
	return s.use(ctx, 0)
}

// readInfo reads INFO, as far as the user may.
func (s *Source) readInfo(ctx context.Context) error {
	var text string
	err := s.retry(ctx, func() (err error) {
		text, err = s.client.Info(ctx).Result()
		return err
	})
	if err != nil && !refused(err) {
		return err
	}
	s.caps.info = parseInfo(text)
	s.caps.version = s.caps.info["redis_version"]
	if v := s.caps.info["valkey_version"]; v != "" {
		s.caps.version = "Valkey " + v
	}
	return nil
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// probe tries the commands that old servers, proxies or a user's rights lack.
func (s *Source) probe(ctx context.Context) error {
	const absent = "lattice:probe"
	tries := []struct {
		can *bool
		run func() error
	}{
		{&s.caps.transactions, func() error {
			_, err := s.client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
				p.Exists(ctx, absent)
				return nil
			})
			if forbiddenKey(err) {
				return nil
			}
			return err
		}},
		{&s.caps.expireTime, func() error { return s.client.Do(ctx, "PEXPIRETIME", absent).Err() }},
		{&s.caps.clock, func() error { return s.client.Time(ctx).Err() }},
		{&s.caps.memory, func() error { return s.client.Do(ctx, "MEMORY", "USAGE", absent, "SAMPLES", 1).Err() }},
	}
	for _, t := range tries {
		err := s.retry(ctx, t.run)
		*t.can = err == nil || errors.Is(err, goredis.Nil) || forbiddenKey(err)
		if _, said := reply(err); !*t.can && !said {
			return err
		}
	}
	return nil
}

// sameServer is the hook of a new connection: a cursor of SCAN means nothing to
// another process, even at the same address.
func (s *Source) sameServer(ctx context.Context, conn *goredis.Conn) error {
	text, err := conn.Info(ctx, "server").Result()
	if err != nil && !refused(err) {
		return err
	}
	id := parseInfo(text)["run_id"]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learning {
		return nil // no cursor is in use yet
	}
	if id == "" && s.run == namelessRun {
		return fmt.Errorf("connect: %w", restart("the connection was lost, and without INFO nobody can tell if the server is the same"))
	}
	if id == "" {
		id = namelessRun
	}
	if s.run != "" && id != s.run {
		// The library takes off the outermost layer.
		return fmt.Errorf("connect: %w", restart("the server was restarted, or another one has taken its place"))
	}
	s.run = id
	return nil
}

// namelessRun stands for a process that does not tell its id.
const namelessRun = "?"

// runID is the id of the process, empty if it tells none.
func (s *Source) runID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == namelessRun {
		return ""
	}
	return s.run
}

// begins prepares for a connection to whichever server is there; while learning
// about it, connections may come and go.
func (s *Source) begins(learning bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.learning = "", learning
}

// use makes node i the one that commands go to.
func (s *Source) use(ctx context.Context, i int) error {
	if s.at == i {
		return nil
	}
	if s.client != nil {
		if err := s.client.Close(); err != nil {
			return fmt.Errorf("close the connection: %w", err)
		}
	}
	s.begins(false)
	s.client, s.at = goredis.NewClient(s.nodes[i].options(s.dial)), i
	err := s.retry(ctx, func() error { return s.client.Ping(ctx).Err() })
	if err != nil && !refused(err) {
		return s.explain(err)
	}
	return nil
}

// notes are remarks on the server.
func (s *Source) notes() []string {
	var notes []string
	info := s.caps.info
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" && info["maxmemory"] != "0" {
		notes = append(notes, fmt.Sprintf("The server evicts keys when memory is short (%s); evicted ones are missing afterwards.", p))
	}
	if info["role"] == "slave" {
		note := "This is a replica; it may lag behind its master"
		if info["master_link_status"] != "up" {
			note += ", to which it has no connection now"
		}
		notes = append(notes, note+".")
	}
	if len(s.nodes) > 1 {
		notes = append(notes, fmt.Sprintf("A cluster of %d masters, read one after the other; slots must stay where they are meanwhile.", len(s.nodes)))
	}
	if s.runID() == "" {
		notes = append(notes, "The user may not run INFO, so nobody can tell if the server was restarted: after an interruption, or a lost connection, the enumeration begins anew.")
	}
	if !s.caps.clock && !s.caps.expireTime {
		notes = append(notes, "The user may not run TIME: expiry goes by the clock of this machine.")
	}
	return append(notes, "SCAN lists the keys that exist all the while; one written meanwhile may be missing until a later pass.")
}

// losses are the conversions that lose something.
func (s *Source) losses() []string {
	var lossy []string
	if s.wants(kindStream) {
		lossy = append(lossy, "Consumer groups of streams are not carried.")
	}
	if s.wants(kindHash) && s.fieldExpiry() {
		lossy = append(lossy, "Expiry of single fields of a hash is not carried.")
	}
	if !s.caps.transactions {
		lossy = append(lossy, "The user may not run MULTI: a collection that changes while it is read may be carried as a mixture.")
	}
	return lossy
}

// fieldExpiry reports whether fields of a hash can have an expiry.
func (s *Source) fieldExpiry() bool {
	return atLeast(s.caps.info["redis_version"], 7, 4) || atLeast(s.caps.info["valkey_version"], 9, 0)
}

// atLeast compares the first two numbers of a version.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	b, _ := strconv.Atoi(second) // none is 0
	return a > major || a == major && b >= minor
}

func (s *Source) wants(kind string) bool { return s.types == nil || s.types[kind] }
