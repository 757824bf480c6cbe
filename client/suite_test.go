package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
)

// TestAgainstFake runs the suite over a real listener.
func TestAgainstFake(t *testing.T) {
	suite(t, func(t *testing.T) string {
		srv := httptest.NewServer(clienttest.New())
		t.Cleanup(srv.Close)
		return srv.URL
	})
}

// suite is what every service must give every client, without what a host
// between them cannot do.
func suite(t *testing.T, serve func(*testing.T) string, without ...string) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *client.Client)
	}{
		{"single keys", testSingle},
		{"awkward keys", testAwkwardKeys},
		{"values", testValues},
		{"conditions", testConditions},
		{"get or set", testGetOrSet},
		{"time to live", testTTL},
		{"get many", testGetMany},
		{"batch", testBatch},
		{"atomic", testAtomic},
		{"atomic refusals", testAtomicRefusals},
		{"scan", testScan},
		{"cursor", testCursor},
		{"snapshot cursor", testSnapshotCursor},
		{"delete-range cursor", testDeleteCursor},
		{"cursor refusals", testCursorRefusals},
		{"pages", testPages},
		{"delete range and count", testRanges},
		{"trees", testTrees},
		{"splits", testSplits},
		{"bulk load", testBulkLoad},
		{"bulk load refusals", testBulkLoadRefusals},
		{"bulk stream", testBulkStream},
		{"bulk expiry", testBulkTTL},
		{"bulk session", testBulkSession},
		{"bulk abort", testBulkAbort},
		{"diagnostics", testDiagnostics},
	} {
		if slices.Contains(without, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cl, err := client.New(serve(t), client.Options{})
			must(t, err)
			t.Cleanup(cl.CloseIdle)
			c.run(t, cl)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want %v", err, target)
	}
}

func testSingle(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	_, err := tree.Get(ctx, "k", client.ReadOptions{})
	wantErr(t, err, client.ErrTreeNotFound)
	r, err := tree.Set(ctx, "k", []byte("one"), client.SetOptions{ContentType: "text/plain"})
	must(t, err)
	if !r.Created || r.Version == "" {
		t.Fatalf("first set: %+v", r)
	}
	e, err := tree.Get(ctx, "k", client.ReadOptions{})
	must(t, err)
	if e.Key != "k" || string(e.Value) != "one" || e.Version != r.Version || e.ContentType != "text/plain" || !e.ExpiresAt.IsZero() {
		t.Fatalf("get: %+v", e)
	}
	_, err = tree.Get(ctx, "k", client.ReadOptions{IfNoneMatch: e.Version})
	wantErr(t, err, client.ErrNotModified)
	st, err := tree.Stat(ctx, "k", client.ReadOptions{MaxAge: time.Minute})
	must(t, err)
	if st.Version != e.Version || st.Value != nil {
		t.Fatalf("stat: %+v", st)
	}
	_, err = tree.Stat(ctx, "none", client.ReadOptions{})
	wantErr(t, err, client.ErrKeyNotFound)
	if r, err = tree.Set(ctx, "k", []byte("two"), client.SetOptions{}); err != nil || r.Created || r.Version <= e.Version {
		t.Fatalf("second set: %+v, %v", r, err)
	}
	for _, want := range []bool{true, false} {
		existed, err := tree.Delete(ctx, "k", client.DeleteOptions{})
		if err != nil || existed != want {
			t.Fatalf("delete: %v, %v; want %v", existed, err, want)
		}
	}
	_, err = tree.Get(ctx, "k", client.ReadOptions{})
	wantErr(t, err, client.ErrKeyNotFound)
	var ce *client.Error
	if !errors.As(err, &ce) || ce.Status != 404 || ce.RequestID == "" {
		t.Fatalf("error %#v lacks status or request id", err)
	}
}

var awkward = []string{
	"/", "//", "a/b", "a//b", "..", ".", "...", "../../x", "%", "%2F", "%00", "?", "#", "a?b=c#d", " ", "a b", "+", "&=;",
	"emoji 🙂", "ü", "\x00", "a\x00b", "\n", "\r\n", "\t", "\\", `"`, "\u2028", "\U0010FFFF", "~", "-", strings.Repeat("k", 1024),
	strings.Repeat("🙂", 256), "keys/x", "key", "<&>",
}

func testAwkwardKeys(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("awkward.tree_1-x")
	for i, k := range awkward {
		_, err := tree.Set(ctx, k, []byte(fmt.Sprint(i)), client.SetOptions{})
		must(t, err)
	}
	for i, k := range awkward {
		e, err := tree.Get(ctx, k, client.ReadOptions{})
		if err != nil || string(e.Value) != fmt.Sprint(i) {
			t.Fatalf("get %q: %q, %v", k, e.Value, err)
		}
	}
	want := slices.Sorted(slices.Values(awkward))
	if got := scanKeys(t, tree, client.Query{}); !slices.Equal(got, want) {
		t.Fatalf("scan gave %q, want %q", got, want)
	}
	es, err := tree.GetMany(ctx, awkward, client.ReadOptions{})
	must(t, err)
	for i, e := range es {
		if e.Key != awkward[i] || string(e.Value) != fmt.Sprint(i) {
			t.Fatalf("get many [%d]: %q = %q", i, e.Key, e.Value)
		}
	}
	for _, k := range awkward {
		if existed, err := tree.Delete(ctx, k, client.DeleteOptions{}); err != nil || !existed {
			t.Fatalf("delete %q: %v, %v", k, existed, err)
		}
	}
	_, err = tree.Set(ctx, strings.Repeat("k", 1025), nil, client.SetOptions{})
	wantErr(t, err, client.ErrKeyTooLong)
	for _, k := range []string{"", "\xff", "a\xc0\x80"} {
		_, err := tree.Set(ctx, k, nil, client.SetOptions{})
		wantErr(t, err, client.ErrInvalidKey)
	}
}

func testValues(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("values")
	for name, v := range map[string][]byte{
		"nil": nil, "empty": {}, "nul": {0}, "every byte": everyByte(), "64 KiB": bytes.Repeat([]byte("\xff\x00\x80\n"), 16<<10),
		"1 MiB": bytes.Repeat([]byte{0xAA, 1}, 512<<10),
	} {
		_, err := tree.Set(ctx, name, v, client.SetOptions{})
		must(t, err)
		e, err := tree.Get(ctx, name, client.ReadOptions{})
		must(t, err)
		if e.Value == nil || !bytes.Equal(e.Value, v) {
			t.Fatalf("%s: %d bytes came back, want %d", name, len(e.Value), len(v))
		}
	}
	for e, err := range tree.Scan(ctx, client.Query{}) {
		must(t, err)
		if e.Value == nil {
			t.Fatalf("scan: %q has no value", e.Key)
		}
	}
}

func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func testConditions(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	r, err := tree.Set(ctx, "k", []byte("1"), client.SetOptions{IfAbsent: true})
	must(t, err)
	_, err = tree.Set(ctx, "k", []byte("2"), client.SetOptions{IfAbsent: true})
	wantErr(t, err, client.ErrVersionMismatch)
	var ce *client.Error
	if !errors.As(err, &ce) || ce.Current != r.Version {
		t.Fatalf("the mismatch says the version is %q, want %q", ce.Current, r.Version)
	}
	r2, err := tree.Set(ctx, "k", []byte("2"), client.SetOptions{IfVersion: r.Version})
	must(t, err)
	_, err = tree.Set(ctx, "k", []byte("3"), client.SetOptions{IfVersion: r.Version})
	wantErr(t, err, client.ErrVersionMismatch)
	_, err = tree.Set(ctx, "absent", nil, client.SetOptions{IfVersion: r.Version})
	wantErr(t, err, client.ErrVersionMismatch)
	_, err = tree.Delete(ctx, "k", client.DeleteOptions{IfVersion: r.Version})
	wantErr(t, err, client.ErrVersionMismatch)
	existed, err := tree.Delete(ctx, "k", client.DeleteOptions{IfVersion: r2.Version})
	if err != nil || !existed {
		t.Fatalf("delete: %v, %v", existed, err)
	}
	for _, o := range []client.SetOptions{{IfAbsent: true, IfVersion: "x"}, {TTL: -1}} {
		_, err = tree.Set(ctx, "k", nil, o)
		wantErr(t, err, client.ErrInvalidRequest)
	}
}

func testGetOrSet(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	e, created, err := tree.GetOrSet(ctx, "k", []byte("mine"), client.SetOptions{ContentType: "text/plain"})
	if err != nil || !created || string(e.Value) != "mine" || e.Version == "" {
		t.Fatalf("first: %+v, %v, %v", e, created, err)
	}
	again, created, err := tree.GetOrSet(ctx, "k", []byte("other"), client.SetOptions{})
	if err != nil || created || string(again.Value) != "mine" || again.Version != e.Version || again.ContentType != "text/plain" {
		t.Fatalf("second: %+v, %v, %v", again, created, err)
	}
	_, _, err = tree.GetOrSet(ctx, "k", nil, client.SetOptions{IfAbsent: true})
	wantErr(t, err, client.ErrInvalidRequest)
}

func testTTL(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	before := time.Now()
	_, err := tree.Set(ctx, "single", []byte("v"), client.SetOptions{TTL: time.Hour})
	must(t, err)
	_, err = tree.Batch(ctx, client.Batch{Ops: []client.Op{{Key: "batch", Value: []byte("v"), TTL: time.Hour}}})
	must(t, err)
	near := func(at time.Time) bool {
		d := at.Sub(before)
		return d > 59*time.Minute && d < 61*time.Minute
	}
	for e, err := range tree.Scan(ctx, client.Query{}) {
		must(t, err)
		got, err := tree.Get(ctx, e.Key, client.ReadOptions{})
		must(t, err)
		if !near(e.ExpiresAt) || !near(got.ExpiresAt) {
			t.Fatalf("%q expires at %v and %v", e.Key, e.ExpiresAt, got.ExpiresAt)
		}
	}
}

func testGetMany(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	for _, k := range []string{"a", "b", "c"} {
		_, err := tree.Set(ctx, k, []byte(k), client.SetOptions{})
		must(t, err)
	}
	es, err := tree.GetMany(ctx, []string{"c", "none", "a"}, client.ReadOptions{})
	must(t, err)
	if len(es) != 2 || es[0].Key != "c" || es[1].Key != "a" || string(es[1].Value) != "a" || es[0].Version == "" {
		t.Fatalf("%+v", es)
	}
	_, err = tree.GetMany(ctx, []string{"a", "\xff"}, client.ReadOptions{})
	wantErr(t, err, client.ErrInvalidKey)
}

func testBatch(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	old, err := tree.Set(ctx, "old", []byte("x"), client.SetOptions{})
	must(t, err)
	rs, err := tree.Batch(ctx, client.Batch{Ops: []client.Op{
		{Key: "raw", Value: []byte{0xff, 0}},
		{Key: "text", Value: []byte("grüße <&>"), Text: true},
		{Key: "json", JSON: []byte(`{ "a": [1, 2] }`)},
		{Key: "empty"},
		{Key: "old", Delete: true},
		{Key: "raw2", Value: []byte("n"), IfVersion: old.Version},
		{Key: strings.Repeat("k", 1025), Value: []byte("n")},
	}})
	must(t, err)
	for i, want := range []error{nil, nil, nil, nil, nil, client.ErrVersionMismatch, client.ErrKeyTooLong} {
		if got := rs[i].Err(); !errors.Is(got, want) {
			t.Errorf("result %d: %v, want %v", i, got, want)
		}
	}
	if !rs[4].Existed || rs[0].Version == "" {
		t.Errorf("results: %+v", rs)
	}
	for k, want := range map[string]string{"raw": "\xff\x00", "text": "grüße <&>", "json": `{"a":[1,2]}`, "empty": ""} {
		e, err := tree.Get(ctx, k, client.ReadOptions{})
		if err != nil || string(e.Value) != want {
			t.Errorf("%s: %q, %v", k, e.Value, err)
		}
	}
	for name, op := range map[string]client.Op{
		"delete with value": {Key: "k", Delete: true, Value: []byte("x")}, "bad JSON": {Key: "k", JSON: []byte("{")},
		"text not UTF-8": {Key: "k", Text: true, Value: []byte{0xff}}, "JSON and value": {Key: "k", JSON: []byte("1"), Value: []byte{}},
		"negative time": {Key: "k", TTL: -1},
	} {
		if _, err := tree.Batch(ctx, client.Batch{Ops: []client.Op{op}}); !errors.Is(err, client.ErrInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func fill(t *testing.T, tree *client.Tree, n int) []string {
	t.Helper()
	keys := make([]string, n)
	ops := make([]client.Op, n)
	for i := range n {
		keys[i] = fmt.Sprintf("k%05d", i)
		ops[i] = client.Op{Key: keys[i], Value: []byte(keys[i])}
	}
	for chunk := range slices.Chunk(ops, 1000) {
		rs, err := tree.Batch(t.Context(), client.Batch{Ops: chunk})
		must(t, err)
		for _, r := range rs {
			must(t, r.Err())
		}
	}
	return keys
}

func scanKeys(t *testing.T, tree *client.Tree, q client.Query) []string {
	t.Helper()
	keys := []string{}
	for e, err := range tree.Scan(t.Context(), q) {
		must(t, err)
		keys = append(keys, e.Key)
	}
	return keys
}

func testScan(t *testing.T, c *client.Client) {
	tree := c.Tree("t")
	keys := fill(t, tree, 2500)
	reversed := slices.Clone(keys)
	slices.Reverse(reversed)
	for name, tc := range map[string]struct {
		q    client.Query
		want []string
	}{
		"all":              {client.Query{}, keys},
		"reverse":          {client.Query{Reverse: true}, reversed},
		"prefix":           {client.Query{Range: client.Range{Prefix: "k0001"}}, keys[10:20]},
		"range":            {client.Query{Range: client.Range{Start: "k00100", End: "k00200"}}, keys[100:200]},
		"reverse range":    {client.Query{Range: client.Range{Start: "k00000", End: "k00003"}, Reverse: true}, []string{"k00002", "k00001", "k00000"}},
		"limit":            {client.Query{Limit: 7}, keys[:7]},
		"limit over pages": {client.Query{Limit: 2499, KeysOnly: true}, keys[:2499]},
		"limit beyond":     {client.Query{Limit: 99999}, keys},
		"empty":            {client.Query{Range: client.Range{Prefix: "x"}}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := scanKeys(t, tree, tc.q); !slices.Equal(got, tc.want) {
				t.Fatalf("%d keys, want %d", len(got), len(tc.want))
			}
		})
	}
	for e, err := range tree.Scan(t.Context(), client.Query{KeysOnly: true}) {
		must(t, err)
		if e.Value != nil {
			t.Fatalf("keys only, yet %q has a value", e.Key)
		}
		break
	}
	for _, q := range []client.Query{{Limit: -1}, {PageToken: "x"}, {Range: client.Range{Prefix: "a", End: "b"}}, {Range: client.Range{Start: "\xff"}}} {
		for _, err := range tree.Scan(t.Context(), q) {
			if err == nil {
				t.Fatalf("%+v was accepted", q)
			}
		}
	}
}

func testPages(t *testing.T, c *client.Client) {
	tree := c.Tree("t")
	keys := fill(t, tree, 30)
	var got []string
	q := client.Query{Limit: 10}
	for range 3 {
		p, err := tree.Page(t.Context(), q)
		must(t, err)
		for _, e := range p.Entries {
			got = append(got, e.Key)
			if string(e.Value) != e.Key {
				t.Fatalf("%q = %q", e.Key, e.Value)
			}
		}
		q.PageToken = p.NextPageToken
	}
	if !slices.Equal(got, keys) || q.PageToken != "" {
		t.Fatalf("%d keys in pages, token %q left", len(got), q.PageToken)
	}
	_, err := tree.Page(t.Context(), client.Query{Limit: 10_001})
	wantErr(t, err, client.ErrInvalidRequest)
	_, err = tree.Page(t.Context(), client.Query{PageToken: "!!"})
	wantErr(t, err, client.ErrInvalidArgument)
}

func testRanges(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	fill(t, tree, 120)
	n, err := tree.Count(ctx, client.Range{}, client.CountOptions{PerShard: true})
	must(t, err)
	sum := int64(0)
	for _, s := range n.Shards {
		sum += s.Count
	}
	if n.Total != 120 || sum != 120 {
		t.Fatalf("count: %+v", n)
	}
	deleted, err := tree.DeleteRange(ctx, client.Range{Prefix: "k0001"}, false)
	if err != nil || deleted != 10 {
		t.Fatalf("deleted %d, %v", deleted, err)
	}
	n, err = tree.Count(ctx, client.Range{Start: "k00005", End: "k00025"}, client.CountOptions{})
	if err != nil || n.Total != 10 {
		t.Fatalf("count %+v, %v", n, err)
	}
	_, err = tree.DeleteRange(ctx, client.Range{}, false)
	wantErr(t, err, client.ErrInvalidRequest)
	_, err = tree.DeleteRange(ctx, client.Range{Prefix: "k"}, true)
	wantErr(t, err, client.ErrInvalidRequest)
	if deleted, err = tree.DeleteRange(ctx, client.Range{}, true); err != nil || deleted != 110 {
		t.Fatalf("deleted %d, %v", deleted, err)
	}
}

func testTrees(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("one")
	created, err := tree.Create(ctx, client.CreateOptions{ShardCount: 2})
	if err != nil || !created {
		t.Fatalf("create: %v, %v", created, err)
	}
	created, err = tree.Create(ctx, client.CreateOptions{ShardCount: 2})
	if err != nil || created {
		t.Fatalf("create again: %v, %v", created, err)
	}
	_, err = tree.Create(ctx, client.CreateOptions{ShardCount: 3})
	wantErr(t, err, client.ErrTreeExists)
	_, err = c.Tree("two").Create(ctx, client.CreateOptions{})
	must(t, err)
	if got := treeNames(ctx, t, c); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatalf("trees %q", got)
	}
	m, err := tree.ShardMap(ctx)
	must(t, err)
	slots := 0
	for _, s := range m.Shards {
		for _, r := range s.Slots {
			slots += r[1] - r[0] + 1
		}
	}
	if m.Slots != 4096 || len(m.Shards) != 2 || slots != 4096 {
		t.Fatalf("shard map %+v covers %d slots", m, slots)
	}
	info, err := tree.SetOptions(ctx, client.TreeOptions{"TombstoneGracePeriod": "25h"})
	must(t, err)
	if o := info.Options["TombstoneGracePeriod"]; o.Origin != "tree" {
		t.Fatalf("options after the change: %+v", info.Options)
	}
	_, err = tree.Set(ctx, "k", []byte("v"), client.SetOptions{})
	must(t, err)
	testDropped(t, tree)
	_, err = tree.Info(ctx)
	wantErr(t, err, client.ErrTreeNotFound)
	for _, name := range []string{"", ".", "..", "a/b", "trees#x", "trees?x", "trees%41", "trees ", `trees\`} {
		_, err := c.Tree(name).Info(ctx)
		wantErr(t, err, client.ErrInvalidRequest)
	}
	_, err = c.Tree("_system").Info(ctx)
	var ce *client.Error
	if !errors.As(err, &ce) {
		t.Fatalf("a name of the system: %v", err)
	}
}

func testDropped(t *testing.T, tree *client.Tree) {
	t.Helper()
	ctx := t.Context()
	must(t, tree.Drop(ctx))
	_, err := tree.Get(ctx, "k", client.ReadOptions{})
	wantErr(t, err, client.ErrTreeDeleted)
	must(t, tree.Recover(ctx))
	e, err := tree.Get(ctx, "k", client.ReadOptions{})
	if err != nil || string(e.Value) != "v" {
		t.Fatalf("after recovery: %q, %v", e.Value, err)
	}
	info, err := tree.Info(ctx)
	if err != nil || info.State != "active" || info.Shards != 2 || info.Name != "one" || info.Created.IsZero() {
		t.Fatalf("info %+v, %v", info, err)
	}
	must(t, tree.Drop(ctx))
	must(t, tree.Purge(ctx))
}

func treeNames(ctx context.Context, t *testing.T, c *client.Client) []string {
	t.Helper()
	var names []string
	for info, err := range c.ListTrees(ctx) {
		must(t, err)
		names = append(names, info.Name)
	}
	return names
}
