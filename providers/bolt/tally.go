package bolt

import (
	"encoding/binary"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
)

// tally sums up a bucket: how many values it has, and the sum of their
// versions modulo 2^64. It is kept in the meta bucket under the bucket's name
// and changes in the same transactions, so that Verify notices values that
// have vanished or come back: a damaged page may drop some without a trace.
type tally struct{ count, versions uint64 }

const tallyBytes = 16

// replace counts out an old version and in a new one. Zero is none: counters
// begin at one.
func (t *tally) replace(old, fresh uint64) {
	if old != 0 {
		t.count--
	}
	if fresh != 0 {
		t.count++
	}
	t.versions += fresh - old
}

// readTally returns the tally of a bucket; that of one that never had a value
// is zero.
func readTally(tx *bbolt.Tx, bucket []byte) (tally, error) {
	v := tx.Bucket(metaBucket).Get(bucket)
	switch len(v) {
	case 0:
		return tally{}, nil
	case tallyBytes:
		return tally{binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])}, nil
	}
	return tally{}, store.Corruptf("tally of %s has %d bytes, not %d", bucket, len(v), tallyBytes)
}

func (t tally) write(tx *bbolt.Tx, bucket []byte) error {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, tallyBytes), t.count)
	return tx.Bucket(metaBucket).Put(bucket, binary.BigEndian.AppendUint64(v, t.versions))
}
