package redissource

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/redis"
)

// Expiry is carried to the millisecond, whichever unit it was given in and
// whichever way the server tells it; keys without one have none; those that have
// ceased to exist are no records.
func TestExpiryIsCarriedToTheMillisecond(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	for name, config := range map[string][]string{
		"as a moment":                  nil,
		"as time left":                 {`rename-command PEXPIRETIME ""`},
		"without transactions":         {`rename-command MULTI ""`},
		"as time left, no transaction": {`rename-command PEXPIRETIME ""`, `rename-command MULTI ""`},
		"without the server's clock":   {`rename-command PEXPIRETIME ""`, `rename-command TIME ""`},
	} {
		t.Run(name, func(t *testing.T) { checkExpiry(t, config, slack(config)) })
	}
}

// slack is how far a moment computed from the time left may be off: TIME and
// PTTL are asked a moment apart, unless in one transaction.
func slack(config []string) time.Duration {
	switch len(config) {
	case 0:
		return 0
	case 1:
		return 2 * time.Millisecond
	}
	return 10 * time.Second // a slow machine; a wrong unit is off by far more
}

func checkExpiry(t *testing.T, config []string, slack time.Duration) {
	server, c, ctx := start(t, config...)
	if len(config) == 1 && config[0] == `rename-command MULTI ""` {
		slack = 0
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	now := time.Now()
	want := map[string]time.Time{}
	_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i := range 400 {
			key := fmt.Sprintf("k%d", i)
			// Between a minute and 120 years, evenly over the magnitudes.
			after := time.Minute << rng.IntN(27)
			at := now.Add(after + time.Duration(rng.IntN(1000))*time.Millisecond).Truncate(time.Millisecond)
			switch i % 4 {
			case 0:
				p.Do(ctx, "SET", key, i, "PXAT", at.UnixMilli())
			case 1:
				at = at.Truncate(time.Second)
				p.Do(ctx, "SET", key, i, "EXAT", at.Unix())
			case 2:
				p.RPush(ctx, key, i)
				p.Do(ctx, "PEXPIREAT", key, at.UnixMilli())
			case 3:
				at = time.Time{}
				p.HSet(ctx, key, "f", i)
			}
			want[key] = at
		}
		// Already expired.
		p.Do(ctx, "SET", "gone", 1)
		p.Do(ctx, "PEXPIREAT", "gone", now.Add(-time.Hour).UnixMilli())
		return nil
	})
	must(t, err)
	d := readAll(t, open(t, redis.Options{URL: server.URL, DB: -1}), nil)
	if len(d.records) != len(want) || len(d.faults) != 0 {
		t.Fatalf("%d records, want %d; faults %v", len(d.records), len(want), d.faults)
	}
	for key, at := range want {
		got := d.get(t, key).Expiry
		if got.IsZero() != at.IsZero() || got.Sub(at).Abs() > slack {
			t.Errorf("%s: expires %v, want %v", key, got, at)
		}
	}
}
