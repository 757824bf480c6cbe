// Package verify compares what a source holds with what a tree holds, entry by
// entry: a merge of two sorted streams, at constant memory however large they
// are.
//
// Every key of both sides is looked at. Values are compared whole, by length
// and SHA-256, for all entries, for a sample, or only at the boundaries: the
// first and last entries of each prefix, where a mistake in composing keys
// shows. An entry that has expired by now is no difference.
//
// The keys are divided into ranges, whose ends depend on the keys alone. For
// each range and each prefix there are counts and digests of both sides, so that
// two verifications can be compared with each other. What was found is saved
// with every range; a verification that was killed goes on at the last one and
// comes to the same result.
package verify
