package migration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// verification is what a comparison tells.
type verification struct {
	Equal bool
	Total struct {
		Source, Target, Missing, Extra int64
		Value                          int64 `json:"valueDiffers"`
		Expiry                         int64 `json:"expiryDiffers"`
		Expired, Changed               int64
		Compared                       int64 `json:"valuesCompared"`
		SourceEntries, TargetEntries   string
	}
	First      []struct{ Class, Key string }
	Ranges     []struct{ First, Last, SourceEntries string }
	RangeCount int64
}

// verification reads the outcome off the end of the output.
func (r *run) verification(t *testing.T) verification {
	t.Helper()
	var last string
	for line := range strings.Lines(r.out.String()) {
		last = line
	}
	var out struct {
		Equal        bool
		Verification *verification
	}
	if err := json.Unmarshal([]byte(last), &out); err != nil || out.Verification == nil {
		t.Fatalf("no verification at the end: %v\n%s%s", err, r.out.String(), r.Output())
	}
	out.Verification.Equal = out.Equal
	return *out.Verification
}

// request sends something to the service itself.
func (p *place) request(t *testing.T, method, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.service.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.service.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
}

// TestComparisonAfterTheFact compares long after the migration, from a folder of
// its own, finds what somebody has changed, and is killed without consequence.
func TestComparisonAfterTheFact(t *testing.T) {
	const count = 60_000
	o := postgresOrigin(t, count)
	p, state := onBolt(t), t.TempDir()
	r := p.tool(t, o.environment(), o.command("migrate", "orders", state, "--verify=off")...)
	if code := r.wait(); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, r.out.String(), r.Output())
	}
	compare := func(state string) *run {
		return p.tool(t, o.environment(), o.command("verify", "orders", state, "--values=all", "--range-keys=5000")...)
	}
	r = compare(t.TempDir())
	if code, v := r.wait(), r.verification(t); code != exitOK || !v.Equal || v.Total.Compared != count || v.RangeCount < 5 ||
		v.Total.SourceEntries == "" || v.Total.SourceEntries != v.Total.TargetEntries {
		t.Fatalf("exit code %d, %+v", code, v)
	}
	p.request(t, http.MethodPut, "/v1/trees/orders/keys/order%2Facme%2Fextra", "more")
	keys := p.someKeys(t, "orders", "order/Zebra/")
	p.request(t, http.MethodDelete, "/v1/trees/orders/keys/"+keys[0], "")
	p.request(t, http.MethodPut, "/v1/trees/orders/keys/"+keys[1], "other")
	r = compare(t.TempDir())
	code, whole := r.wait(), r.verification(t)
	if code != exitNo || whole.Equal || whole.Total.Missing != 1 || whole.Total.Extra != 1 || whole.Total.Value != 1 || len(whole.First) != 3 {
		t.Fatalf("exit code %d, %+v", code, whole.Total)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng, folder := rand.New(rand.NewPCG(seed, 1)), t.TempDir()
	for range 5 {
		r = compare(folder)
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(time.Second)))):
			r.Kill()
		case <-r.Exited():
		}
	}
	r = compare(folder)
	code, resumed := r.wait(), r.verification(t)
	if code != exitNo || fmt.Sprint(resumed) != fmt.Sprint(whole) {
		t.Errorf("after kills: exit code %d\n%+v, want\n%+v", code, resumed, whole)
	}
	text, err := os.ReadFile(findFile(t, folder, "verify.ndjson"))
	if err != nil || strings.Count(string(text), "\n") != 3 {
		t.Errorf("listed differences: %s, %v", text, err)
	}
}

// someKeys returns the first keys with a prefix, escaped for a path.
func (p *place) someKeys(t *testing.T, tree, prefix string) []string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		p.service.URL+"/v1/trees/"+tree+"/entries?keysOnly=true&limit=10&prefix="+strings.ReplaceAll(prefix, "/", "%2F"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.service.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct{ Entries []struct{ Key string } }
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil || len(page.Entries) < 2 {
		t.Fatalf("%d keys, %v", len(page.Entries), err)
	}
	var keys []string
	for _, e := range page.Entries {
		keys = append(keys, strings.ReplaceAll(e.Key, "/", "%2F"))
	}
	return slices.Clip(keys)
}

// findFile returns the one file of a name below a folder.
func findFile(t *testing.T, dir, name string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no %s below %s: %v", name, dir, err)
	}
	return found
}
