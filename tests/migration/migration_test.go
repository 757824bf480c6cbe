package migration

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// The full sizes.
const (
	fullCount   = 200_000
	cosmosCount = 20_000
)

// kills is how often each migration is interrupted.
const kills = 10

// into takes an origin through interrupted migrations into both stores.
func into(t *testing.T, o *origin, count int) {
	t.Helper()
	for _, store := range []struct {
		name string
		open func(*testing.T) *place
	}{{"bolt", onBolt}, {"azurite", onAzurite}} {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			for _, seed := range seeds(t) {
				interrupt(t, store.open(t), o, count, kills, seed)
			}
		})
	}
}

// interrupt kills and resumes the migration of so many records. So many chunks
// lie between two kills that all of them fit into one migration, or nearly.
func interrupt(t *testing.T, p *place, o *origin, count, kills int, seed uint64) {
	t.Helper()
	c := campaign{place: p, origin: o, chunk: count / (3 * kills), kills: kills, spread: 3, delay: 500 * time.Millisecond}
	c.run(t, seed)
}

// seeds is one, from the clock, and under LATTICE_SOAK several. LATTICE_SEED
// repeats one.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	if text := os.Getenv("LATTICE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	n := 1
	if os.Getenv("LATTICE_SOAK") != "" {
		n = 5
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(time.Now().UnixNano()) + uint64(i)
	}
	return out
}

func TestRedis(t *testing.T)    { into(t, redisOrigin(t, fullCount), fullCount) }
func TestPostgres(t *testing.T) { into(t, postgresOrigin(t, fullCount), fullCount) }
func TestMariaDB(t *testing.T)  { into(t, mariadbOrigin(t, fullCount), fullCount) }
func TestSQLite(t *testing.T)   { into(t, sqliteOrigin(t), fullCount) }
func TestCosmos(t *testing.T)   { into(t, cosmosOrigin(t, cosmosCount), cosmosCount) }

// TestFileAtTwentyMoments is a migration without a server at the other end.
func TestFileAtTwentyMoments(t *testing.T) {
	const count = 30_000
	o := fileOrigin(t, count)
	for _, seed := range seeds(t) {
		interrupt(t, onBolt(t), o, count, 2*kills, seed)
	}
}
