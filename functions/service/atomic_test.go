package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/providers/memory"
)

// batchOf is an atomic batch over keys of several shards.
func batchOf(value, operation string, n int) string {
	var ops []string
	for i := range n {
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%02d","text":%q}`, i, value))
	}
	if operation != "" {
		operation = fmt.Sprintf(`,"operationId":%q`, operation)
	}
	return `{"operations":[` + strings.Join(ops, ",") + `],"atomic":true` + operation + `}`
}

// timed is an instance whose clock is told.
func timed(t *testing.T, m *memory.Store, c *manual) *instance {
	t.Helper()
	return newInstance(t, m.Table(), m.Blobs(), func(cfg *Config) {
		cfg.Clock = c
		cfg.Options.MaxClockSkew = 100 * time.Millisecond
		cfg.Options.SnapshotCursorTtl, cfg.Options.CursorIdleTtl = 10*time.Second, time.Minute
		cfg.Options.AtomicWriteRetention = time.Hour
	})
}

func newManual() *manual {
	s := clock.NewSystem()
	return &manual{s, s.Now()}
}

// pass lets time go by.
func (m *manual) pass(d time.Duration) {
	m.now.Wall += int64(d)
	m.now.Mono += d
}

func TestAtomicBatchOverTheRealTree(t *testing.T) {
	m, c := memory.New(memory.Options{}), newManual()
	i, other := timed(t, m, c), timed(t, m, c)
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":8}`)
	const batch = "/v1/trees/t/batch"
	first := i.want(200, "POST", batch, batchOf("one", "op", 16))
	c.pass(time.Second)
	other.want(200, "PUT", "/v1/trees/t/keys/k03", "two")
	if again := other.want(200, "POST", batch, batchOf("one", "op", 16)); again != first || strings.Count(first, `"existed":false`) != 16 {
		t.Errorf("first %s\nagain %s", first, again)
	}
	if got := i.want(200, "GET", "/v1/trees/t/keys/k03", ""); got != "two" {
		t.Errorf("a repetition wrote %q", got)
	}
	if got := other.want(409, "POST", batch, batchOf("one", "op", 15)); !strings.Contains(got, "operation_mismatch") {
		t.Errorf("other keys: %s", got)
	}
	_, h, _ := i.do("GET", "/v1/trees/t/keys/k03", nil)
	failing := strings.Replace(batchOf("three", "", 16), `"key":"k03"`, `"ifAbsent":true,"key":"k03"`, 1)
	status, failed, body := other.do("POST", batch, []byte(failing))
	if want := `"failed":[{"index":3,"key":"k03","version":` + h.Get("ETag") + `}],"failedCount":1`; status != 412 || failed.Get("ETag") != h.Get("ETag") || !strings.Contains(string(body), want) {
		t.Errorf("%d, ETag %s: %s", status, failed.Get("ETag"), body)
	}
	if got := i.want(200, "GET", "/v1/trees/t/keys/k07", ""); got != "one" {
		t.Errorf("a batch that failed wrote %q", got)
	}
	i.want(400, "POST", batch, strings.Replace(batchOf("x", "", 16), "k07", "k08", 1))
	i.want(400, "POST", batch, strings.Replace(batchOf("x", "op", 16), `"atomic":true`, `"atomic":false`, 1))
	text := other.want(200, "GET", "/metrics", "")
	for outcome, want := range map[string]float64{"committed": 1, "operation_mismatch": 1, "version_mismatch": 1} {
		if got := metricOf(t, text, fmt.Sprintf(`lattice_atomic_batches_total{outcome=%q}`, outcome)); got != want {
			t.Errorf("%v batches are %s", got, outcome)
		}
	}
}

func TestTransactionsTickOverTheRealTree(t *testing.T) {
	m, c := memory.New(memory.Options{}), newManual()
	i := timed(t, m, c)
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":8}`)
	i.want(200, "POST", "/v1/trees/t/batch", batchOf("one", "op", 16))
	for _, step := range []struct {
		after                        time.Duration
		rows, aborted, told, removed float64
	}{{0, 1, 0, 0, 0}, {time.Minute, 1, 0, 1, 0}, {time.Minute, 1, 0, 0, 0}, {time.Hour, 1, 0, 0, 1}, {0, 0, 0, 0, 0}} {
		c.pass(step.after)
		res := i.tick("transactions")
		if res["rows"] != step.rows || res["aborted"] != step.aborted || res["told"] != step.told || res["removed"] != step.removed || res["complete"] != true {
			t.Errorf("after another %s the tick did %v, want %+v", step.after, res, step)
		}
	}
	text := i.want(200, "GET", "/metrics", "")
	for action, want := range map[string]float64{"aborted": 0, "told": 1, "removed": 1} {
		if got := metricOf(t, text, fmt.Sprintf(`lattice_transactions_finished_total{action=%q}`, action)); got != want {
			t.Errorf("%s: %v", action, got)
		}
	}
	i.want(401, "POST", "/internal/timers/transactions", "")
}

func openedCursor(t *testing.T, i *instance, body string) string {
	t.Helper()
	var open struct{ CursorID string }
	if err := json.Unmarshal([]byte(i.want(201, "POST", "/v1/trees/t/cursors", body)), &open); err != nil {
		t.Fatal(err)
	}
	return "/v1/trees/t/cursors/" + open.CursorID
}

func TestCursorsExpire(t *testing.T) {
	m, c := memory.New(memory.Options{}), newManual()
	i, other := timed(t, m, c), timed(t, m, c)
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":4}`)
	i.want(200, "POST", "/v1/trees/t/batch", batchOf("one", "", 16))
	snapshot, live := openedCursor(t, i, `{"kind":"entries","snapshot":true}`), openedCursor(t, i, `{"kind":"entries"}`)
	other.want(200, "POST", "/v1/trees/t/batch", batchOf("two", "", 16))
	for page := 1; page <= 3; page++ {
		c.pass(8 * time.Second)
		if got := other.want(200, "POST", snapshot+"/next?as=text", `{"limit":4}`); strings.Count(got, `"text":"one"`) != 4 {
			t.Errorf("page %d of the snapshot: %s", page, got)
		}
		if got := i.want(200, "POST", live+"/next?as=text", `{"limit":4}`); strings.Count(got, `"text":"two"`) != 4 {
			t.Errorf("page %d of the live tree: %s", page, got)
		}
	}
	c.pass(11 * time.Second)
	for _, instance := range []*instance{i, other} {
		if got := instance.want(410, "POST", snapshot+"/next", ""); !strings.Contains(got, "snapshot_expired") {
			t.Errorf("after its life: %s", got)
		}
	}
	i.tick("collect")
	i.want(410, "POST", snapshot+"/next", "")
	i.want(200, "POST", live+"/next", "")
	c.pass(2 * time.Minute)
	if got := other.want(404, "POST", live+"/next", ""); !strings.Contains(got, "cursor_not_found") {
		t.Errorf("after its life: %s", got)
	}
	i.want(204, "DELETE", openedCursor(t, i, `{"kind":"keys","snapshot":true}`), "")
}

func TestSnapshotsOfATreeAreBounded(t *testing.T) {
	i := onMemory(t)
	i.want(201, "PUT", "/v1/trees/t/keys/a", "1")
	const limit = 64
	var first string
	for range limit {
		if at := openedCursor(t, i, `{"kind":"keys","snapshot":true}`); first == "" {
			first = at
		}
	}
	if got := i.want(429, "POST", "/v1/trees/t/cursors", `{"kind":"keys","snapshot":true}`); !strings.Contains(got, "quota_exceeded") {
		t.Errorf("one more: %s", got)
	}
	openedCursor(t, i, `{"kind":"keys"}`)
	i.want(204, "DELETE", first, "")
	openedCursor(t, i, `{"kind":"keys","snapshot":true}`)
}
