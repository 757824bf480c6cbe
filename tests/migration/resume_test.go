package migration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestReadingGoesOnWhereItStood kills the tool behind the first checkpoint of
// the reading, which must not begin anew then.
func TestReadingGoesOnWhereItStood(t *testing.T) {
	// So slow that the reading takes longer than a checkpoint is away.
	const count, rate = 20_000, "--rate=1200"
	for name, open := range map[string]func(*testing.T, int) *origin{"redis": redisOrigin, "postgres": postgresOrigin, "mariadb": mariadbOrigin} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, p, state := open(t, count), onBolt(t), t.TempDir()
			r := p.tool(t, o.environment(), o.command("migrate", "tree", state, rate)...)
			awaitCheckpoint(t, r, state)
			r.Kill()
			if code := r.wait(); code != -1 {
				t.Fatalf("it ended with %d before it was killed\n%s%s", code, r.out.String(), r.Output())
			}
			r = p.tool(t, o.environment(), o.command("migrate", "tree", state)...)
			if !r.isDone(t) {
				t.Fatal("the migration is not done")
			}
			told := regexp.MustCompile(`(\d+) records read, 0 entries loaded`).FindStringSubmatch(r.out.String())
			if told == nil {
				t.Fatalf("it does not say where it goes on:\n%s", r.out.String())
			}
			if n, err := strconv.Atoi(told[1]); err != nil || n == 0 {
				t.Errorf("it goes on after %d records, %v", n, err)
			}
			// SCAN may list a key twice.
			if a := r.report(t); name != "redis" && (a.Read != count || a.Duplicates != 0) {
				t.Errorf("%d records were read, %d of them again", a.Read, a.Duplicates)
			}
			o.check(t, p, "tree")
		})
	}
}

// awaitCheckpoint returns when the state tells of entries.
func awaitCheckpoint(t *testing.T, r *run, state string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(state, "state.json"))
		var file struct{ State struct{ Generation int64 } }
		if err == nil && json.Unmarshal(text, &file) == nil && file.State.Generation > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-r.Exited():
			t.Fatalf("it ended before a checkpoint: exit code %d\n%s%s", r.ExitCode(), r.out.String(), r.Output())
		}
	}
}
