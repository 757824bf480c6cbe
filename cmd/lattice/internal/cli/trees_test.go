package cli

import (
	"strings"
	"testing"
)

func TestTrees(t *testing.T) {
	l, _ := fake(t)
	l.is(l.ok("", "trees", "list"), "There are no trees.\n")
	l.is(l.ok("", "trees", "create", "one", "--shards", "2", "CursorIdleTtl=1h"), "Created tree one.\n")
	l.is(l.ok("", "trees", "create", "one", "--shards", "2", "CursorIdleTtl=1h"), "Tree one exists already, with these settings.\n")
	l.fails(ExitNo, "tree_exists", "", "trees", "create", "one", "--shards", "3")
	l.is(l.ok("", "trees", "create", "two", "--json"), `{"created":true,"tree":"two"}`+"\n")
	out := l.ok("", "trees", "list")
	if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "NAME") || !strings.HasPrefix(lines[1], "one") {
		t.Fatal(out)
	}
	if out = l.ok("", "trees", "list", "--json"); !strings.HasPrefix(out, `{"trees":[{"name":"one","state":"active","shards":2`) {
		t.Fatal(out)
	}
	out = l.ok("", "trees", "show", "one")
	for _, want := range []string{"name         one\n", "shards       2\n", "CursorIdleTtl  1h     tree\n"} {
		if !strings.Contains(out, want) {
			t.Fatalf("lacks %q:\n%s", want, out)
		}
	}
	if out = l.ok("", "trees", "set", "one", "CursorIdleTtl=", "Max=5"); !strings.Contains(out, "CursorIdleTtl  48h    default") || !strings.Contains(out, "Max            5      tree") {
		t.Fatal(out)
	}
	l.is(l.ok("", "trees", "set", "one", "Max=6"), "SETTING  VALUE  FROM\nMax      6      tree\n")
	if out = l.ok("", "trees", "set", "one", "Max=6", "--json"); !strings.Contains(out, "CursorIdleTtl") {
		t.Fatal(out)
	}
	if out = l.ok("", "trees", "show", "one", "--shard-map"); !strings.Contains(out, "1      2048   2048-4095") {
		t.Fatal(out)
	}
	if out = l.ok("", "trees", "show", "one", "--shard-map", "--json"); !strings.Contains(out, `"slots":[[0,2047]]`) {
		t.Fatal(out)
	}
}

func TestTreeLife(t *testing.T) {
	l, _ := fake(t)
	l.ok("", "set", "t", "k", "v")
	l.fails(ExitUsage, "--yes", "", "trees", "delete", "t")
	l.ok("", "trees", "delete", "t", "--yes")
	l.fails(ExitNo, "tree_deleted", "", "get", "t", "k")
	l.is(l.ok("", "trees", "recover", "t"), "Recovered tree t.\n")
	l.is(l.ok("", "get", "t", "k"), "v")
	l.tty = true
	l.fails(ExitNo, "nothing was done", "\n", "trees", "delete", "t")
	l.ok("y\n", "trees", "delete", "t")
	l.is(l.ok("Yes\n", "trees", "purge", "t", "--json"), `{"purged":true,"tree":"t"}`+"\n")
	l.fails(ExitNo, "tree_not_found", "", "trees", "show", "t")
}
