// Package spool sorts more entries than fit in memory, on disk, in a way that
// survives a crash.
//
// Entries are gathered in a buffer without pointers; a full buffer is sorted
// and written as a run: a compressed file whose blocks and end carry checksums.
// Runs are numbered, and a file covers the runs of its name, [from, to). A
// checkpoint makes everything added durable and returns the number of runs, the
// generation. Opening a spool at a generation forgets the runs after it, so that
// its owner can save the generation together with its own state and never sees
// an entry twice or not at all.
//
// Reading merges all runs by key; entries of one key come in the order in which
// they were added.
package spool
