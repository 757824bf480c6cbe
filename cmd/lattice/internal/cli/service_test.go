package cli

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
)

// serve starts the real service over memory.
func serve(t *testing.T) *tool {
	t.Helper()
	l, _ := fake(t)
	m := memory.New(memory.Options{})
	svc, err := service.New(service.Config{Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(svc.Handler())
	t.Cleanup(srv.Close)
	l.url = srv.URL
	return l
}

// TestImportScanExportAgainstTheService moves rows with awkward keys in and
// out of the real service, in exact order and number.
func TestImportScanExportAgainstTheService(t *testing.T) {
	l := serve(t)
	const n = 5_000
	keys := []string{"/", "//", "..", ".", "%2F", "?#", " ", "ü", "🙂", "a\x00b", "a\nb", `"`, strings.Repeat("k", 1024)}
	for i := range n - len(keys) {
		keys = append(keys, fmt.Sprintf("row/%06d", i*7919%1_000_000))
	}
	var in strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&in, "{\"key\":%s,\"text\":%s}\n", jsonString(k), jsonString("value of "+k))
	}
	name := file(t, "rows.ndjson", in.String())
	if out := l.ok("", "import", "t", name); !strings.Contains(out, "Read 5,000 rows: 5,000 written") {
		t.Fatal(out)
	}
	l.is(l.ok("", "count", "t"), fmt.Sprintf("%d\n", n))
	slices.Sort(keys)
	var want strings.Builder
	for _, k := range keys {
		want.WriteString(show(k) + "\t" + showValue([]byte("value of "+k), false) + "\n")
	}
	l.is(l.ok("", "scan", "t"), want.String())
	l.is(l.ok("", "scan", "t", "--limit", "4500"), strings.Join(strings.SplitAfter(want.String(), "\n")[:4500], ""))
	for _, k := range keys[:20] {
		if strings.ContainsRune(k, 0) {
			continue // an argument cannot hold it
		}
		l.is(l.ok("", "get", "t", "--", k), "value of "+k)
	}
	for _, ext := range []string{"ndjson.gz", "csv", "tsv"} {
		out := filepath.Join(t.TempDir(), "out."+ext)
		l.ok("", "export", "t", out)
		tree := "back-" + strings.ReplaceAll(ext, ".", "-")
		l.ok("", "import", tree, out)
		l.is(l.ok("", "scan", tree), want.String())
	}
	l.is(l.ok("", "delete", "t", "--prefix", "row/", "--yes"), "Deleted 4,987 keys.\n")
	l.is(l.ok(l.ok("", "scan", "t", "--keys-only"), "delete", "t", "-"), "Deleted 13 keys.\n")
	l.is(l.ok("", "count", "t"), "0\n")
}

func TestImportOfBadRowsAgainstTheService(t *testing.T) {
	l := serve(t)
	r := l.run(ndjson(3000)+`{"key":"`+strings.Repeat("k", 1025)+`","text":"x"}`+"\nbad\n"+`{"key":"last","text":"x","ttl":"1h","contentType":"text/html"}`+"\n", "import", "t")
	if r.code != ExitNo || !strings.Contains(r.out, "Read 3,003 rows: 3,001 written") || !strings.Contains(r.err, "line 3001: key") || !strings.Contains(r.err, "line 3002: malformed JSON") {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	l.is(l.ok("", "count", "t"), "3001\n")
	if out := l.ok("", "get", "t", "last", "--json"); !strings.Contains(out, `"contentType":"text/html"`) || !strings.Contains(out, "expiresAt") {
		t.Fatal(out)
	}
}

func TestLargeValueAgainstTheService(t *testing.T) {
	l := serve(t)
	big := strings.Repeat("0123456789abcdef", 5<<20/16)
	l.ok(fmt.Sprintf("{\"key\":\"big\",\"text\":%q}\n{\"key\":\"small\",\"text\":\"x\"}\n", big), "import", "t")
	if got := l.ok("", "get", "t", "big"); got != big {
		t.Fatalf("%d bytes came back", len(got))
	}
}

func TestTreesAgainstTheService(t *testing.T) {
	l := serve(t)
	l.is(l.ok("", "trees", "create", "orders", "--shards", "3"), "Created tree orders.\n")
	if out := l.ok("", "trees", "list"); !strings.Contains(out, "orders  active  3") {
		t.Fatal(out)
	}
	if out := l.ok("", "trees", "set", "orders", "TombstoneGracePeriod=25h"); !strings.Contains(out, "25h") {
		t.Fatal(out)
	}
	if out := l.ok("", "trees", "show", "orders", "--shard-map"); !strings.Contains(out, "4096 slots") {
		t.Fatal(out)
	}
	l.fails(ExitUsage, "invalid_argument", "", "trees", "set", "orders", "NoSuchOption=1")
	l.ok("", "set", "orders", "k", "v")
	l.ok("", "trees", "delete", "orders", "--yes")
	l.fails(ExitNo, "tree_deleted", "", "get", "orders", "k")
	l.ok("", "trees", "recover", "orders")
	l.is(l.ok("", "get", "orders", "k"), "v")
	l.ok("", "trees", "delete", "orders", "--yes")
	l.ok("", "trees", "purge", "orders", "--yes")
}

func jsonString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
