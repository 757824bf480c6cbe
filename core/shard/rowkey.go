package shard

import (
	"fmt"
	"strconv"

	"github.com/latticekv/lattice/core/store"
)

// The rows of a shard's partition: the head, and after it the log, newest row
// first. One range query from the head on, of as many rows as are wanted,
// returns the head and the end of the log, whatever older rows still wait for
// collection; and rows that are appended while pages are read lie behind the
// reader.
const (
	headKey   = "head"
	logPrefix = "w"
	seqDigits = 16
)

// logKey returns the row key of a log row: the complement of its number in
// fixed-width hexadecimal, so that key order is log order reversed.
func logKey(seq uint64) string {
	var b [len(logPrefix) + seqDigits]byte
	copy(b[:], logPrefix)
	rest := ^seq
	for i := len(b) - 1; i >= len(logPrefix); i-- {
		b[i] = "0123456789abcdef"[rest&15]
		rest >>= 4
	}
	return string(b[:])
}

// parseLogKey reads the number back.
func parseLogKey(partition, key string) (uint64, error) {
	if len(key) != len(logPrefix)+seqDigits || key[:len(logPrefix)] != logPrefix {
		return 0, store.Corruptf("unknown row %q in %s", key, partition)
	}
	rest, err := strconv.ParseUint(key[len(logPrefix):], 16, 64)
	if err != nil {
		return 0, store.Corruptf("unknown row %q in %s", key, partition)
	}
	return ^rest, nil
}

// rowName names a log row in errors.
func rowName(partition string, seq uint64) string {
	return fmt.Sprintf("log row %d of %s", seq, partition)
}

// sinceQuery selects the head and the rows from a number on; at most limit rows
// a page, 0 for as many as there may be.
func sinceQuery(from uint64, limit int) store.RangeQuery {
	return store.RangeQuery{From: headKey, To: store.NextKey(logKey(from)), Limit: limit}
}

// throughQuery selects the rows up to a number, newest first.
func throughQuery(seq uint64) store.RangeQuery { return store.RangeQuery{From: logKey(seq)} }
