package migration

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/engines"
	"github.com/latticekv/lattice/tests/migration/oracle"
)

// get returns the value of a key, or why there is none.
func (p *place) get(t *testing.T, tree, key string) ([]byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		p.service.URL+"/v1/trees/"+tree+"/keys/"+url.PathEscape(key), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := p.service.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %q: %s", key, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// limit is the largest value that a service takes unless told otherwise.
const limit = 64 << 20

// TestValuesUpToTheLimitAreCarriedAndLargerOnesRejected: with one value too
// large nothing is said to be complete.
func TestValuesUpToTheLimitAreCarriedAndLargerOnesRejected(t *testing.T) {
	server := engines.StartRedis(t)
	client := server.Client(t)
	sums := map[string][sha256.Size]byte{}
	rng := rand.NewChaCha8([32]byte{1})
	set := func(size int) string {
		value := make([]byte, size)
		_, _ = rng.Read(value)
		name := fmt.Sprintf("size:%09d", size)
		if err := client.Set(t.Context(), name, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		sums[name] = sha256.Sum256(value)
		return name
	}
	for _, size := range []int{0, 1, 2, 1000, 64 << 10, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, 5 << 20, limit - 1, limit} {
		set(size)
	}
	tooLarge := set(limit + 1)
	p, state := onBolt(t), t.TempDir()
	o := &origin{Dataset: oracle.Dataset{Kind: oracle.Redis}, address: server.URL, secret: server.Password, flags: []string{"--source-env", addressVariable}}

	r := p.tool(t, o.environment(), o.command("migrate", "sizes", state)...)
	if code, a := r.wait(), r.report(t); code != exitNo || a.Complete || a.Rejected != 1 || a.Loaded != 0 {
		t.Fatalf("a value is too large: exit code %d, %+v", code, a)
	}
	r = p.tool(t, o.environment(), o.command("migrate", "sizes", state, "--max-rejects=1", "--verify=all")...)
	if code, a := r.wait(), r.report(t); code != exitNo || !a.Complete || a.Rejected != 1 || a.Loaded != int64(len(sums)-1) {
		t.Fatalf("one is left out: exit code %d, %+v\n%s", code, a, r.Output())
	}
	rejects, err := os.ReadFile(r.report(t).Rejects)
	if err != nil || strings.Count(string(rejects), "\n") != 1 || !strings.Contains(string(rejects), tooLarge) {
		t.Errorf("rejected: %s, %v", rejects, err)
	}
	for name, want := range sums {
		value, err := p.get(t, "sizes", name)
		switch {
		case name == tooLarge && err == nil:
			t.Errorf("%s is there", name)
		case name != tooLarge && (err != nil || sha256.Sum256(value) != want):
			t.Errorf("%s has %d bytes that differ, %v", name, len(value), err)
		}
	}
}

// TestRunsOfOneSourceAgree: what cannot be migrated is counted, told with where
// it is and why, and the same each time; the exit code says so.
func TestRunsOfOneSourceAgree(t *testing.T) {
	var lines strings.Builder
	bad := map[int]string{}
	for i := range 2000 {
		line := fmt.Sprintf(`{"tenant":"t%d","id":%d,"v":"x"}`, i%7, i)
		switch {
		case i%200 == 50:
			line = fmt.Sprintf(`{"tenant":"a/b","id":%d}`, i)
		case i%200 == 51:
			line = fmt.Sprintf(`{"tenant":null,"id":%d}`, i)
		case i%200 == 52:
			line = fmt.Sprintf(`{"tenant":"","id":%d}`, i)
		case i%200 == 53:
			line = fmt.Sprintf(`{"tenant":"t","id":1234567%d}`, i)
		case i%200 == 54:
			line = fmt.Sprintf(`{"tenant":"%s","id":%d}`, strings.Repeat("k", 1024), i)
		case i%200 == 55:
			line = `{"tenant":"twice","id":1,"v":` + fmt.Sprint(i) + `}`
		case i%200 == 56:
			line = `{"tenant":`
		default:
			fmt.Fprintln(&lines, line)
			continue
		}
		bad[i+1] = line
		fmt.Fprintln(&lines, line)
	}
	// Of the rows that share a key the first is migrated.
	rejected := int64(len(bad) - 1)
	file := t.TempDir() + "/rows.ndjson"
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := onBolt(t)
	o := &origin{Dataset: oracle.Dataset{Kind: oracle.File}, after: []string{file}, flags: []string{"--key-template", "order/{tenant}/{id:6}"}}
	var first report
	var firstRejects []byte
	for n := range 3 {
		r := p.tool(t, nil, o.command("migrate", fmt.Sprintf("run-%d", n), t.TempDir(), "--max-rejects=-1")...)
		code, a := r.wait(), r.report(t)
		if code != exitNo || !a.Complete || a.Read != 2000 || a.Rejected != rejected || a.Loaded != 2000-rejected {
			t.Fatalf("run %d: exit code %d, %+v, want %d rejected\n%s", n+1, code, a, rejected, r.Output())
		}
		rejects, err := os.ReadFile(a.Rejects)
		if err != nil {
			t.Fatal(err)
		}
		a.Rejects = ""
		a.Verified = nil
		if n == 0 {
			first, firstRejects = a, rejects
			checkRejects(t, rejects, bad)
		}
		if fmt.Sprint(a) != fmt.Sprint(first) || !bytes.Equal(rejects, firstRejects) {
			t.Errorf("run %d: %+v, the first one: %+v", n+1, a, first)
		}
	}
}

// checkRejects wants each rejected line told once, with its number and a reason
// that does not hold its text.
func checkRejects(t *testing.T, rejects []byte, bad map[int]string) {
	t.Helper()
	told := map[string]bool{}
	for s := bufio.NewScanner(bytes.NewReader(rejects)); s.Scan(); {
		var r struct{ Origin, Reason string }
		if err := json.Unmarshal(s.Bytes(), &r); err != nil || r.Reason == "" || told[r.Origin] {
			t.Errorf("%s: %v", s.Bytes(), err)
		}
		told[r.Origin] = true
	}
	missing := 0
	for number := range bad {
		if !told[fmt.Sprintf("rows.ndjson:%d", number)] {
			missing++
		}
	}
	if missing != 1 {
		t.Errorf("%d bad lines are not told with their numbers, want the one that was migrated: %.300s", missing, rejects)
	}
}

// TestOddValuesSurvive has values at the ends of their types, and beyond what
// JSON can say.
func TestOddValuesSurvive(t *testing.T) {
	server := engines.StartPostgres(t)
	db := server.Open(t)
	for _, statement := range []string{
		`CREATE TABLE odd (id int PRIMARY KEY, f double precision, n numeric, d date, at timestamptz, i bigint, s text)`,
		`INSERT INTO odd VALUES
			(1, 'NaN', 'NaN', '0001-01-01', '9999-12-31 23:59:59.999999+00', 9223372036854775807, ''),
			(2, 'Infinity', 1e400, '4713-01-01 BC', 'infinity', -9223372036854775808, NULL),
			(3, '-Infinity', 0.10, '20000-02-29', '-infinity', 0, 'NULL'),
			(4, '-0', -0.000000000000000000001, 'infinity', '0044-03-15 12:00:00+00 BC', 1, E'\u0001"\\')`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"odd/0000000001": `{"id":1,"f":"NaN","n":"NaN","d":"0001-01-01","at":"9999-12-31T23:59:59.999999Z","i":9223372036854775807,"s":""}`,
		"odd/0000000002": `{"id":2,"f":"Infinity","n":1` + strings.Repeat("0", 400) + `,"d":"4713-01-01 BC","at":"infinity","i":-9223372036854775808,"s":null}`,
		"odd/0000000003": `{"id":3,"f":"-Infinity","n":0.10,"d":"20000-02-29","at":"-infinity","i":0,"s":"NULL"}`,
		"odd/0000000004": `{"id":4,"f":-0,"n":-0.000000000000000000001,"d":"infinity","at":"0044-03-15 12:00:00+00 BC","i":1,"s":"\u0001\"\\"}`,
	}
	p := onBolt(t)
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.Postgres}, address: server.DSN, secret: server.Password,
		flags: []string{"--source-env", addressVariable, "--table=odd", "--key-template=odd/{id:10}"},
	}
	r := p.tool(t, o.environment(), o.command("migrate", "odd", t.TempDir())...)
	if !r.isDone(t) {
		t.Fatal("the migration is not done")
	}
	for name, text := range want {
		if value, err := p.get(t, "odd", name); err != nil || string(value) != text {
			t.Errorf("%s is %s, %v, want %s", name, value, err, text)
		}
	}
	if lossy := r.report(t).Lossy; len(lossy) == 0 {
		t.Error("NaN became text, and no lossy conversion is counted")
	}
}
