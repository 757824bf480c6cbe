package cli

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// orders is a file of n orders, some of which expire.
func orders(n int, value func(i int) string, skip func(i int) bool) string {
	var b strings.Builder
	for i := range n {
		if skip(i) {
			continue
		}
		expires := "null"
		if i%7 == 0 {
			expires = fmt.Sprintf("%q", time.Date(2099, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339))
		}
		fmt.Fprintf(&b, "{\"tenant\":\"t%d\",\"id\":%d,\"state\":%q,\"until\":%s}\n", i%5, i, value(i), expires)
	}
	return b.String()
}

// TestMoveVerifyDeltaAgainstTheService goes the whole way with the real service:
// a migration, a source that changes, passes that follow it, and comparisons.
func TestMoveVerifyDeltaAgainstTheService(t *testing.T) {
	l := serve(t)
	const n = 6_000
	same := func(int) string { return "new" }
	none := func(int) bool { return false }
	name, state := file(t, "orders.ndjson", orders(n, same, none)), t.TempDir()
	args := []string{"file", "orders", name, "--key-template", "order/{tenant}/{id:6}", "--expires-column", "until", "--state", state, "--progress", "none"}
	migrate, verify := append([]string{"migrate"}, args...), append([]string{"verify"}, args...)
	l.says(l.ok("", migrate...), "6,000 records read: 6,000 loaded", "completed and verified")
	l.says(l.ok("", append(verify, "--values", "all", "--prefix-depth", "2", "--range-keys", "500")...),
		"Equal: 6,000 keys and 6,000 values compared", "order/t4/", " ranges, with the digests of the source:", "6,000 live keys on")

	changed := func(i int) string {
		if i%100 == 0 {
			return "changed"
		}
		return "new"
	}
	gone := func(i int) bool { return i%50 == 1 }
	rewrite(t, name, orders(n+10, changed, gone))
	later := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	if err := os.Chtimes(name, later, later); err != nil {
		t.Fatal(err)
	}
	r := l.fails(ExitNo, "Not equal", "", append(verify, "--values", "all")...)
	l.says(r.out, "of 5,889 keys: 9 missing, 120 extra, 60 with another value")
	// Somebody else writes a key that is gone from the source, and a new one.
	l.ok("", "set", "orders", "order/t1/000051", "theirs")
	l.ok("", "set", "orders", "order/t9/000000", "theirs")
	l.fails(ExitNo, "119 of 6001 keys, and 10 are allowed", "", append(migrate, "--since", "state", "--deletes", "--max-deletes", "10")...)
	out := l.ok("", append(migrate, "--since", "state", "--deletes")...)
	l.says(out, "119 keys deleted that the source has no more; 2 kept")
	r = l.fails(ExitNo, "Not equal: of 5,889 keys: 2 extra", "", append(verify, "--values", "all")...)
	l.says(r.out, "extra: order/t1/000051\n", "extra: order/t9/000000\n")
	l.ok("", "delete", "orders", "order/t1/000051", "order/t9/000000")
	l.says(l.ok("", append(verify, "--values", "all")...), "Equal: 5,889 keys and 5,889 values compared")
	l.says(l.ok("", append(migrate, "--since", "state", "--deletes")...), "5,889 records read: 0 written, 5,889 the same already.\n0 keys deleted")
}

// TestDeltaOfChangesAgainstTheService: a table that tells when its rows changed.
func TestDeltaOfChangesAgainstTheService(t *testing.T) {
	l := serve(t)
	path, state := filepath.Join(t.TempDir(), "shop.db"), t.TempDir()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	do := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, rev INTEGER NOT NULL)")
	for i := range 400 {
		do("INSERT INTO orders VALUES (?, 'new', ?)", i, i)
	}
	args := []string{"sqlite", "orders", path, "--table", "orders", "--key-template", "order/{id:6}", "--change-column", "rev", "--change-numbers", "5", "--state", state, "--progress", "none"}
	migrate, verify := append([]string{"migrate"}, args...), append([]string{"verify"}, args...)
	l.says(l.ok("", migrate...), "400 records read: 400 loaded")
	do("UPDATE orders SET state = 'paid', rev = 1000 + id WHERE id % 40 = 0")
	do("INSERT INTO orders VALUES (900, 'new', 2000)")
	do("DELETE FROM orders WHERE id = 7")
	// What has changed since the migration is told apart from what is lost.
	l.ok("", "delete", "orders", "order/000011")
	r := l.fails(ExitNo, "Not equal", "", append(verify, "--values", "all")...)
	l.says(r.out, "of 400 keys: 1 missing, 1 extra, 11 changed", "missing: order/000011", "changed at the source: order/000900", "changed at the source: order/000040", "extra: order/000007")
	out := l.ok("", append(migrate, "--since", "state", "--deletes")...)
	l.says(out, " written.\n", "1 key deleted that the source has no more.")
	if strings.Contains(out, "400 records read") {
		t.Errorf("all was read: %s", out)
	}
	r = l.fails(ExitNo, "of 400 keys: 1 missing;", "", append(verify, "--values", "all")...)
	l.says(r.out, "missing: order/000011")
	do("UPDATE orders SET rev = 3000 WHERE id = 11")
	l.ok("", append(migrate, "--since", "state", "--deletes")...)
	l.says(l.ok("", append(verify, "--values", "all")...), "Equal: 400 keys and 400 values compared")
}
