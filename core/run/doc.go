// Package run keeps the checkpointed state of a shard as sorted runs of
// immutable leaves: a log-structured merge tree (O'Neil et al., "The
// log-structured merge-tree", 1996) with tiered merges over one base.
//
// A Set is one immutable view: runs from the newest to the oldest, the last of
// which may be the base, which holds everything older. Flush puts a run of new
// entries on top; MergeStep merges neighbouring runs into one, a bounded piece
// at a time; Save writes the view as a manifest, and Open reads it. Nothing is
// ever overwritten: every blob has a fresh name, so a view stays readable until
// its blobs are collected, and whoever crashes or loses a race leaves orphans
// and nothing else.
//
// # Order
//
// For every key, an entry in a newer run has a higher version than one in an
// older run. The caller of Flush sees to that: it flushes in log order, and an
// entry that arrives with an old version is not flushed over a newer one. So
// the first run that knows a key decides, and a merge never compares versions.
//
// # Merges
//
// A merge in progress is part of the view: its output run stands above (newer
// than) its inputs and says how many they are. The output holds the merged
// entries of all keys below a cursor; the inputs are visible only from the
// cursor on (Run.From). Every step moves the cursor, so a view between two
// steps reads the same as before and after, and whoever opens it goes on from
// there. At the end of the key space the inputs vanish. At most one merge into
// the base and one above it are in progress.
//
// # Blobs
//
// A cold reader needs the manifest, at most one index blob, and one leaf per
// key. The manifest holds the indexes of young runs itself and refers to the
// index blob for those that have settled.
package run
