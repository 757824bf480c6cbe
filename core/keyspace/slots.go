// Package keyspace places keys: from a key to its virtual slot, from a slot to
// the physical shard that owns it under a versioned map.
package keyspace

import "github.com/cespare/xxhash/v2"

// Slots is the number of virtual slots of every tree. It never changes.
const Slots = 4096

// Slot is the virtual slot of a key: xxHash64 of its bytes, modulo Slots.
func Slot(key string) uint16 { return uint16(xxhash.Sum64String(key) % Slots) }

// ShardID is the index of a physical shard within its tree. Indexes are never
// reused.
type ShardID uint32
