package tree

import (
	"regexp"
	"strconv"

	"github.com/latticekv/lattice/core/keyspace"
)

// partitionName is how row.partition names a shard's partition.
var partitionName = regexp.MustCompile(`\bs-([0-9a-f]{16})-([0-9a-f]{1,8})\b`)

// FindShard finds the first name of a shard's partition in a text, such as the
// name of a blob or an error of core: the id of the tree and the index of the
// shard; false if there is none.
func FindShard(text string) (treeID string, id keyspace.ShardID, ok bool) {
	m := partitionName.FindStringSubmatch(text)
	if m == nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(m[2], 16, 32)
	return m[1], keyspace.ShardID(n), err == nil
}

// ParsePartition is FindShard for what is nothing but the name of a partition. It
// is cheap.
func ParsePartition(name string) (treeID string, id keyspace.ShardID, ok bool) {
	const idAt, shardAt = len("s-"), len("s-0123456789abcdef-")
	if len(name) <= shardAt || name[:idAt] != "s-" || name[shardAt-1] != '-' {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[shardAt:], 16, 32)
	return name[idAt : shardAt-1], keyspace.ShardID(n), err == nil
}

// NameOf returns the name of the tree of an id, empty if this instance does not
// remember it. It looks through all it remembers, so it is for rare moments.
func (db *DB) NameOf(treeID string) string {
	db.mu.RLock()
	defer db.mu.RUnlock()
	for name, e := range db.trees {
		if m := e.last.Load(); m != nil && m.ID == treeID {
			return name
		}
	}
	return ""
}
