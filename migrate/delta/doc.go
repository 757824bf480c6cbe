// Package delta brings a tree that a migration has filled up to date with its
// source, by ordinary writes, as often as need be, while both are in use.
//
// A source that can tell is asked for what has changed since a cut. Any other
// is read whole and compared with the tree; only what differs is written. Asked
// for deletions, a pass also lists the keys of the tree and then those of the
// source, and deletes what the source has no more: only keys whose version is
// the one that the migration has left, so that nothing is lost that somebody
// else has written, and no more of them than was allowed.
//
// Position and counts are saved after the writes that they tell of are durable.
// Writing twice changes nothing, so that a pass that was killed goes on where it
// was. The cut for the next pass is recorded when everything of this one is
// durable, and not before.
package delta
