package tree

import (
	"testing"

	"github.com/latticekv/lattice/core/keyspace"
)

func TestAPartitionTellsTreeAndShard(t *testing.T) {
	r := row{ID: "00ff00ff00ff00ff"}
	for _, id := range []uint32{0, 9, 10, 255, 1<<20 - 1} {
		name := r.partition(keyspace.ShardID(id))
		for what, find := range map[string]func(string) (string, keyspace.ShardID, bool){"parse": ParsePartition, "find": FindShard} {
			if treeID, got, ok := find(name); !ok || treeID != r.ID || got != keyspace.ShardID(id) {
				t.Errorf("%s %q: %q, %d, %v", what, name, treeID, got, ok)
			}
		}
		text := "open checkpoint of " + name + ": blob \"" + name + "/run-1\": corrupt data"
		if treeID, got, ok := FindShard(text); !ok || treeID != r.ID || got != keyspace.ShardID(id) {
			t.Errorf("%q: %q, %d, %v", text, treeID, got, ok)
		}
	}
}

func TestWhatIsNoPartitionTellsNothing(t *testing.T) {
	for _, name := range []string{"", "registry", "s-", "s-00ff00ff00ff00ff", "s-00ff00ff00ff00ff-", "x-00ff00ff00ff00ff-1", "s-00ff00ff00ff00ff-g", "s-00ff00ff00ff00ff-1ffffffff"} {
		if treeID, id, ok := ParsePartition(name); ok {
			t.Errorf("parse %q: %q, %d", name, treeID, id)
		}
		if treeID, id, ok := FindShard(name); ok {
			t.Errorf("find %q: %q, %d", name, treeID, id)
		}
	}
}

func TestTheNameOfARememberedTree(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "named")
	m := h.entry.cur.Load()
	if got := in.DB.NameOf(m.ID); got != "named" {
		t.Errorf("got %q", got)
	}
	if got := in.DB.NameOf("0123456789abcdef"); got != "" {
		t.Errorf("an unknown id is called %q", got)
	}
}
