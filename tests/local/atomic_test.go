package local

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// cursorAt opens a cursor and returns its path.
func cursorAt(t *testing.T, s *running.Service, body string) string {
	t.Helper()
	status, answer := send(t, s, "POST", "/v1/trees/t/cursors", body)
	var open struct{ CursorID string }
	if err := json.Unmarshal([]byte(answer), &open); err != nil || status != 201 {
		t.Fatalf("open a cursor: %d %s", status, answer)
	}
	return "/v1/trees/t/cursors/" + open.CursorID
}

// TestBatchesAndCursorsOutliveTheProcess kills the service in the middle of what
// its callers do: the next process goes on.
func TestBatchesAndCursorsOutliveTheProcess(t *testing.T) {
	args := []string{"--data-dir=" + filepath.Join(t.TempDir(), "data"), "--transactions-interval=100ms", "--log-level=debug", "--log-format=json"}
	first := running.Start(t, nil, args...)
	if status, body := send(t, first, "PUT", "/v1/trees/t", `{"shardCount":8}`); status != 201 {
		t.Fatalf("create: %d %s", status, body)
	}
	var ops []string
	for i := range 16 {
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%02d","text":"one","ifAbsent":true}`, i))
	}
	batch := `{"operations":[` + strings.Join(ops, ",") + `],"atomic":true,"operationId":"once"}`
	status, outcome := send(t, first, "POST", "/v1/trees/t/batch", batch)
	if status != 200 {
		t.Fatalf("batch: %d %s", status, outcome)
	}
	live, snapshot := cursorAt(t, first, `{"kind":"keys"}`), cursorAt(t, first, `{"kind":"entries","snapshot":true}`)
	_, pageOne := send(t, first, "POST", live+"/next", `{"limit":6,"page":1}`)
	put(t, first, "k03", "two")
	first.Kill()

	second := running.Start(t, nil, args...)
	if status, again := send(t, second, "POST", "/v1/trees/t/batch", batch); status != 200 || again != outcome {
		t.Errorf("the batch again: %d %s, first %s", status, again, outcome)
	}
	wantValue(t, second, "k03", "two")
	entriesOf := func(page string) string {
		_, rest, _ := strings.Cut(page, `"entries":`)
		keys, _, _ := strings.Cut(rest, `,"hasMore"`)
		return keys
	}
	_, again := send(t, second, "POST", live+"/next", `{"page":1}`)
	if strings.Count(again, `"key"`) != 6 || withoutVersions(entriesOf(again)) != withoutVersions(entriesOf(pageOne)) {
		t.Errorf("page 1 again: %s, first %s", again, pageOne)
	}
	if _, two := send(t, second, "POST", live+"/next", `{"page":2}`); !strings.Contains(two, `"key":"k06"`) || !strings.Contains(two, `"key":"k15"`) || strings.Contains(two, `"key":"k05"`) {
		t.Errorf("page 2: %s", two)
	}
	if status, all := send(t, second, "POST", snapshot+"/next?as=text", ""); status != 200 || strings.Count(all, `"text":"one"`) != 16 {
		t.Errorf("the snapshot: %d %s", status, all)
	}
	if status, body := send(t, second, "DELETE", snapshot, ""); status != 204 {
		t.Errorf("close: %d %s", status, body)
	}
	eventually(t, second, func() bool { return ran(second.Output(), "transactions") })
}

// withoutVersions leaves the versions of a page out: a live one shows the entries
// as they are.
func withoutVersions(entries string) string {
	var es []struct{ Key string }
	if err := json.Unmarshal([]byte(entries), &es); err != nil {
		return err.Error() + ": " + entries
	}
	return fmt.Sprint(es)
}
