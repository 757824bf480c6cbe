package bolt

import (
	"bytes"
	"fmt"
	"strings"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
)

// maxFaults bounds what Verify reports.
const maxFaults = 10

// Verify reads the whole database and every blob, and returns an ErrCorrupt
// that names up to ten faults. Writes wait until it is done.
func (s *Store) Verify() error {
	var found faults
	err := guard(s.commit.path, func() error {
		// In a write transaction, because that keeps writers away.
		return discard(s.db.Update(func(tx *bbolt.Tx) error {
			found.walk(tx, rowBucket, func(k, v []byte) (uint64, error) {
				version, _, err := decodeRow(k, v)
				return version, err
			})
			found.walk(tx, blobBucket, s.verifyBlob)
			found.checkPages(tx)
			return errDiscard
		}))
	})
	if err != nil || len(found) == 0 {
		return err
	}
	return store.Corruptf("database %s: %s", s.commit.path, strings.Join(found, "; "))
}

func (s *Store) verifyBlob(k, v []byte) (uint64, error) {
	entry, err := decodeBlob(k, v)
	if err == nil {
		_, err = s.blobs.files.load(string(k), entry)
	}
	return entry.version, err
}

// faults are descriptions of what is wrong.
type faults []string

// note adds a fault and reports whether there is room for more.
func (f *faults) note(err error) bool {
	if err != nil && len(*f) < maxFaults {
		*f = append(*f, err.Error())
	}
	return len(*f) < maxFaults
}

// walk decodes every value of a bucket, demands that each can be found by its
// key and comes after the one before, and compares all with the tally.
func (f *faults) walk(tx *bbolt.Tx, bucket []byte, version func(k, v []byte) (uint64, error)) {
	var seen tally
	var last []byte
	b := tx.Bucket(bucket)
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		number, err := version(k, v)
		if err == nil && (bytes.Compare(last, k) >= 0 || !bytes.Equal(b.Get(k), v) || number > b.Sequence()) {
			err = fmt.Errorf("%s: value of key %q is out of place", bucket, k)
		}
		if !f.note(err) {
			return
		}
		seen.replace(0, number)
		last = bytes.Clone(k)
	}
	kept, err := readTally(tx, bucket)
	if err == nil && kept != seen && len(*f) == 0 {
		err = fmt.Errorf("%s: %d values were found, %d with other versions were written", bucket, seen.count, kept.count)
	}
	f.note(err)
}

// checkPages compares the pages that the buckets reach with those that are not
// free: one that is both in use and free would be overwritten some day.
//
// bbolt has a check of its own, but it trusts the lengths that it reads, and
// so a damaged file can keep it busy for ever or end the process.
func (f *faults) checkPages(tx *bbolt.Tx) {
	pages := int(tx.Size()) / tx.DB().Info().PageSize
	used := 0
	for id := 0; id < pages; {
		info, err := tx.Page(id)
		if err != nil || info == nil {
			f.note(fmt.Errorf("page %d cannot be read: %v", id, err))
			return
		}
		run := 1
		switch info.Type {
		case "free", "meta":
		case "freelist":
			run += info.OverflowCount
		case "leaf", "branch":
			run += info.OverflowCount
			used += run
		default:
			f.note(fmt.Errorf("page %d has type %q", id, info.Type))
			return
		}
		if id += run; id > pages {
			f.note(fmt.Errorf("a run of %d pages ends behind the last page, %d", run, pages))
			return
		}
	}
	stats := tx.Cursor().Bucket().Stats()
	reached := stats.LeafPageN + stats.LeafOverflowN + stats.BranchPageN + stats.BranchOverflowN
	if used != reached {
		f.note(fmt.Errorf("%d pages are in use, but the buckets have %d", used, reached))
	}
}
