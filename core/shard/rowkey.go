package shard

import (
	"fmt"
	"strconv"

	"github.com/latticekv/lattice/core/store"
)

// The rows of a shard's partition. The head sorts after every log row, so that
// one range query from any row on ends with it.
const (
	logPrefix = "w"
	headKey   = "zhead"
	seqDigits = 16
)

// logKey returns the row key of a log row: its number in fixed-width
// hexadecimal, so that key order is log order.
func logKey(seq uint64) string {
	var b [len(logPrefix) + seqDigits]byte
	copy(b[:], logPrefix)
	for i := len(b) - 1; i >= len(logPrefix); i-- {
		b[i] = "0123456789abcdef"[seq&15]
		seq >>= 4
	}
	return string(b[:])
}

// parseLogKey reads the number back.
func parseLogKey(partition, key string) (uint64, error) {
	if len(key) != len(logPrefix)+seqDigits || key[:len(logPrefix)] != logPrefix {
		return 0, store.Corruptf("unknown row %q in %s", key, partition)
	}
	seq, err := strconv.ParseUint(key[len(logPrefix):], 16, 64)
	if err != nil {
		return 0, store.Corruptf("unknown row %q in %s", key, partition)
	}
	return seq, nil
}

// rowName names a log row in errors.
func rowName(partition string, seq uint64) string {
	return fmt.Sprintf("row %s of %s", logKey(seq), partition)
}
