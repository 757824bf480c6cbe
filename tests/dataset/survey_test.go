package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// survey compares a tree with the rows that it must hold, and no others within
// bounds.
type survey struct {
	*node
	tree string
	// rows are in bytewise order.
	rows []Row
	rng  *rand.Rand
	// end bounds what is read, if the tree holds more than rows.
	end string
}

// line is a line of a stream, of a scan or of an export.
type line struct {
	Key, Text, Version string
	End                bool
	Count              int
}

// compare reads lines to their end and compares them with the rows, in order.
// It returns the end line's count, -1 if there is none.
func compare(r io.Reader, rows []Row, reverse bool) (int, error) {
	count, n := -1, 0
	at := func(n int) int {
		if reverse {
			return len(rows) - 1 - n
		}
		return n
	}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for ; s.Scan(); n++ {
		if n < len(rows) && count < 0 && isRow(s.Bytes(), &rows[at(n)]) {
			continue
		}
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return 0, fmt.Errorf("line %d: %w: %s", n+1, err, s.Bytes())
		}
		switch {
		case count >= 0:
			return 0, errors.New("something follows the end line")
		case l.End:
			count = l.Count
			n--
		case n >= len(rows):
			return 0, fmt.Errorf("more than the %d rows: %s", len(rows), pick(l.Key))
		case l.Key != rows[at(n)].Key || l.Text != rows[at(n)].Value || l.Version == "":
			return 0, fmt.Errorf("row %d is %s, want %s", n, s.Bytes(), rows[at(n)].line)
		}
	}
	if n != len(rows) {
		return 0, fmt.Errorf("%d rows, want %d", n, len(rows))
	}
	return count, s.Err()
}

// isRow reports whether a line says at once that it is the row. Another one may
// be written in another way and still be.
func isRow(text []byte, r *Row) bool {
	return r.line != "" && len(text) > len(r.line) && string(text[:len(r.line)]) == r.line && text[len(r.line)] != '"'
}

// streams reads everything over HTTP, in both directions.
func (v *survey) streams(t *testing.T) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		timed(t, fmt.Sprintf("stream, reverse %v", reverse), len(v.rows), func() {
			query := url.Values{"as": {"text"}, "reverse": {fmt.Sprint(reverse)}}
			if v.end != "" {
				query.Set("end", v.end)
			}
			resp, err := v.do(t.Context(), "GET", treePath(v.tree, "entries", query), "", "Accept", "application/x-ndjson")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if count, err := compare(resp.Body, v.rows, reverse); err != nil || count != len(v.rows) {
				t.Fatalf("stream, reverse %v: end line says %d, %v", reverse, count, err)
			}
		})
	}
}

// scans reads everything with the tool: scans in both directions, the keys
// alone, and a compressed export.
func (v *survey) scans(t *testing.T) {
	t.Helper()
	forward := v.lattice(t, "scan", v.tree, "--json")
	if _, err := compare(bytes.NewReader(forward), v.rows, false); err != nil {
		t.Errorf("lattice scan: %v", err)
	}
	reverse := v.lattice(t, "scan", v.tree, "--json", "--reverse")
	if _, err := compare(bytes.NewReader(reverse), v.rows, true); err != nil {
		t.Errorf("lattice scan --reverse: %v", err)
	}
	var keys strings.Builder
	for _, r := range v.rows {
		keys.WriteString(r.Key + "\n")
	}
	if got := v.lattice(t, "scan", v.tree, "--keys-only"); string(got) != keys.String() {
		t.Error("lattice scan --keys-only differs from the keys")
	}
	v.export(t)
}

func (v *survey) export(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "export.ndjson.gz")
	timed(t, "export", len(v.rows), func() {
		v.lattice(t, "export", v.tree, path, "--as=text", "--progress=none")
	})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compare(z, v.rows, false); err != nil {
		t.Errorf("export: %v", err)
	}
}

// between returns the rows from one key on and before another.
func (v *survey) between(start, end string) []Row {
	at := func(key string) int {
		i, _ := slices.BinarySearchFunc(v.rows, key, func(r Row, k string) int { return strings.Compare(r.Key, k) })
		return i
	}
	to := len(v.rows)
	if end != "" {
		to = at(end)
	}
	return v.rows[at(start):max(at(start), to)]
}

// counts counts everything, by HTTP and by the tool, and in parts.
func (v *survey) counts(t *testing.T) {
	t.Helper()
	var all struct {
		Count  int
		Shards []struct{ Shard, Count int }
	}
	query := url.Values{"perShard": {"true"}}
	if v.end != "" {
		query.Set("end", v.end)
	}
	timed(t, "count", 0, func() { v.ask(t, "GET", treePath(v.tree, "count", query), "", &all) })
	sum := 0
	for _, s := range all.Shards {
		sum += s.Count
	}
	if all.Count != len(v.rows) || sum != len(v.rows) || len(all.Shards) < 2 {
		t.Errorf("count %d, by shards %d of %d, want %d", all.Count, sum, len(all.Shards), len(v.rows))
	}
	args := []string{"count", v.tree}
	if v.end != "" {
		args = append(args, "--end="+v.end)
	}
	if got := v.lattice(t, args...); string(got) != fmt.Sprintln(len(v.rows)) {
		t.Errorf("lattice count says %s, want %d", got, len(v.rows))
	}
}

// countIs compares the count of a part.
func (v *survey) countIs(t *testing.T, query url.Values, want int) {
	t.Helper()
	var part struct{ Count int }
	v.ask(t, "GET", treePath(v.tree, "count", query), "", &part)
	if part.Count != want {
		t.Errorf("count of %v: %d, want %d", query, part.Count, want)
	}
}

// prefixes reads all entries that begin alike.
func (v *survey) prefixes(t *testing.T, tries int) {
	t.Helper()
	prefixes := []string{"XX/", "DE", "DE/Z", "FR/Saint-", "日"}
	for range tries {
		key := []rune(v.rows[v.rng.IntN(len(v.rows))].Key)
		prefixes = append(prefixes, string(key[:2+v.rng.IntN(min(6, len(key)-1))]))
	}
	for _, prefix := range prefixes {
		want := []Row{}
		for _, r := range v.between(prefix, "") {
			if !strings.HasPrefix(r.Key, prefix) {
				break
			}
			want = append(want, r)
		}
		query := url.Values{"prefix": {prefix}}
		v.countIs(t, query, len(want))
		v.pages(t, query, want)
	}
	prefix := "NL/A"
	want := v.between(prefix, "NL/B")
	got := v.lattice(t, "scan", v.tree, "--prefix", prefix, "--json", "-r")
	if _, err := compare(bytes.NewReader(got), want, true); err != nil || len(want) == 0 {
		t.Errorf("lattice scan --prefix %s: %v", prefix, err)
	}
}

// ranges reads parts between keys that exist and keys that do not.
func (v *survey) ranges(t *testing.T, tries int) {
	t.Helper()
	for range tries {
		from := v.rng.IntN(len(v.rows) - 1)
		to := min(len(v.rows)-1, from+1+v.rng.IntN(3000))
		start, end := v.rows[from].Key, v.rows[to].Key
		if v.rng.IntN(2) == 0 {
			start, end = start+"\x00", end+"~"
		}
		query := url.Values{"start": {start}, "end": {end}}
		v.countIs(t, query, len(v.between(start, end)))
		v.pages(t, query, v.between(start, end))
	}
	start, end := v.rows[len(v.rows)/3].Key, v.rows[len(v.rows)/3+500].Key
	got := v.lattice(t, "scan", v.tree, "--start", start, "--end", end, "--json")
	if _, err := compare(bytes.NewReader(got), v.between(start, end), false); err != nil {
		t.Errorf("lattice scan --start --end: %v", err)
	}
	v.countIs(t, url.Values{"start": {end}, "end": {end}}, 0)
}

// pages reads a part page by page, in a random direction, and compares it.
func (v *survey) pages(t *testing.T, query url.Values, want []Row) {
	t.Helper()
	// Between one page and thirty.
	reverse, limit := v.rng.IntN(2) == 0, min(10_000, 1+len(want)/30+v.rng.IntN(1+len(want)))
	query = url.Values{
		"start": query["start"], "end": query["end"], "prefix": query["prefix"],
		"as": {"text"}, "reverse": {fmt.Sprint(reverse)}, "limit": {fmt.Sprint(limit)},
	}
	var got bytes.Buffer
	for more := true; more; {
		var page struct {
			Entries       []json.RawMessage
			NextPageToken string
		}
		v.ask(t, "GET", treePath(v.tree, "entries", query), "", &page)
		for _, e := range page.Entries {
			got.Write(append(e, '\n'))
		}
		more = page.NextPageToken != ""
		if len(page.Entries) > limit || more && len(page.Entries) == 0 {
			t.Fatalf("a page of %v has %d entries", query, len(page.Entries))
		}
		query.Set("pageToken", page.NextPageToken)
	}
	if _, err := compare(&got, want, reverse); err != nil {
		t.Errorf("pages of %v: %v", query, err)
	}
}

// gets reads single keys, some of them not there, and a batch.
func (v *survey) gets(t *testing.T, tries int) {
	t.Helper()
	for range tries {
		r := v.rows[v.rng.IntN(len(v.rows))]
		status, value := v.get(t, r.Key)
		if status != http.StatusOK || value != r.Value {
			t.Errorf("get %s: %d %s, want %s", pick(r.Key), status, value, r.Value)
		}
		if status, value := v.get(t, r.Key[:len(r.Key)-1]); status != http.StatusNotFound || !strings.Contains(value, "key_not_found") {
			t.Errorf("get of a key that is not there: %d %s", status, value)
		}
	}
	v.batch(t)
	r := v.rows[v.rng.IntN(len(v.rows))]
	if got := v.lattice(t, "get", v.tree, r.Key); string(got) != r.Value {
		t.Errorf("lattice get %s: %s, want %s", pick(r.Key), got, r.Value)
	}
}

func (v *survey) get(t *testing.T, key string) (status int, body string) {
	t.Helper()
	resp, err := v.do(t.Context(), "GET", treePath(v.tree, "keys/"+url.PathEscape(key), nil), "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// batch asks for some keys at once; the answer is in the order of the request.
func (v *survey) batch(t *testing.T) {
	t.Helper()
	var want []Row
	var keys []string
	for _, i := range v.rng.Perm(len(v.rows))[:500] {
		want = append(want, v.rows[i])
		keys = append(keys, v.rows[i].Key, v.rows[i].Key+"?")
	}
	body, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Entries []json.RawMessage }
	v.ask(t, "POST", treePath(v.tree, "batch-get", url.Values{"as": {"text"}}), string(body), &answer)
	var got bytes.Buffer
	for _, e := range answer.Entries {
		got.Write(append(e, '\n'))
	}
	if _, err := compare(&got, want, false); err != nil {
		t.Errorf("batch-get: %v", err)
	}
}

// brief is enough to see that nothing changed.
func (v *survey) brief(t *testing.T) {
	t.Helper()
	v.streams(t)
	v.counts(t)
	timed(t, "gets", 0, func() { v.gets(t, 50) })
}

// whole reads in every way there is.
func (v *survey) whole(t *testing.T) {
	t.Helper()
	v.brief(t)
	timed(t, "scans and export with the tool", 0, func() { v.scans(t) })
	timed(t, "prefixes", 0, func() { v.prefixes(t, 10) })
	timed(t, "ranges", 0, func() { v.ranges(t, 10) })
}
