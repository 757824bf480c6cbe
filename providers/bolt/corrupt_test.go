package bolt_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/bolt"
)

// filled returns the directory of a closed store with a thousand rows, a small
// blob and a large one.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, bolt.Options{NoSync: true})
	for i := range 10 {
		var ops []store.Op
		for j := range 100 {
			ops = append(ops, store.Insert(logKey(100*i+j), logData(j)))
		}
		if _, err := s.Table().Apply(t.Context(), "p", ops); err != nil {
			t.Fatal(err)
		}
	}
	for name, size := range map[string]int{"small": 10, "large": 100_000} {
		if _, err := s.Blobs().Put(t.Context(), name, make([]byte, size), store.Create); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDamagedFileIsRefused(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"cut to a third":       func(b []byte) []byte { return b[:len(b)/3] },
		"cut to two pages":     func(b []byte) []byte { return b[:2*os.Getpagesize()] },
		"cut in the first":     func(b []byte) []byte { return b[:100] },
		"overwritten by zeros": func(b []byte) []byte { return make([]byte, len(b)) },
		"text":                 func([]byte) []byte { return bytes.Repeat([]byte("not a database\n"), 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			path := filepath.Join(dir, "lattice.db")
			rewrite(t, path, damage)
			_, err := bolt.Open(dir, bolt.Options{})
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func rewrite(t *testing.T, path string, damage func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, damage(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBitIsFoundOrHarmless flips one bit of the database in many places.
// Either Verify refuses it, or everything reads as it was written.
func TestFlippedBitIsFoundOrHarmless(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := filled(t)
	path := filepath.Join(dir, "lattice.db")
	intact, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The file is grown ahead of its use; most of it is zero.
	used := len(bytes.TrimRight(intact, "\x00"))
	found := 0
	const flips = 100
	for range flips {
		bit := rng.IntN(8 * used)
		damaged := bytes.Clone(intact)
		damaged[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := bolt.Open(dir, bolt.Options{Verify: true, NoSync: true})
		if err != nil {
			if found++; !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("bit %d: %v", bit, err)
			}
			continue
		}
		if rows := countRows(t, s); rows != 1000 {
			t.Errorf("bit %d: %d rows, and nobody complains", bit, rows)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if found < flips/5 {
		t.Errorf("only %d of %d flipped bits were found", found, flips)
	}
	t.Logf("%d of %d flipped bits were found, the others were in unused space", found, flips)
}

func countRows(t *testing.T, s *bolt.Store) int {
	t.Helper()
	rows := 0
	for q := (store.RangeQuery{}); ; {
		page, err := s.Table().Range(t.Context(), "p", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			if row.Key != logKey(rows) || !bytes.Equal(row.Data, logData(rows%100)) {
				t.Fatalf("row %d is %q with %d bytes", rows, row.Key, len(row.Data))
			}
			rows++
		}
		if !page.More {
			return rows
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
}

// TestDamagedValueIsNamed damages one value, which bbolt itself cannot notice.
func TestDamagedValueIsNamed(t *testing.T) {
	flip := func(bucket, key string) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			v := bytes.Clone(b.Get([]byte(key)))
			v[len(v)-1] ^= 0x10
			return b.Put([]byte(key), v)
		}
	}
	cut := func(bucket, key string) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte("short")) }
	}
	moved := func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("rows"))
		return b.Put([]byte("p\x00"+logKey(7)), bytes.Clone(b.Get([]byte("p\x00"+logKey(8)))))
	}
	row := func(t *testing.T, s *bolt.Store) error {
		_, getErr := s.Table().Get(t.Context(), "p", logKey(7))
		_, rangeErr := s.Table().Range(t.Context(), "p", store.RangeQuery{From: logKey(5), To: logKey(9)})
		_, applyErr := s.Table().Apply(t.Context(), "p", []store.Op{store.Replace(logKey(7), nil, "x")})
		return same(t, getErr, rangeErr, applyErr)
	}
	blob := func(t *testing.T, s *bolt.Store) error {
		_, _, getErr := s.Blobs().Get(t.Context(), "small")
		_, _, rangeErr := s.Blobs().GetRange(t.Context(), "small", 0, 1)
		_, listErr := s.Blobs().List(t.Context(), "s", "")
		return same(t, getErr, rangeErr, listErr)
	}
	for _, c := range []struct {
		name string
		edit func(tx *bbolt.Tx) error
		read func(t *testing.T, s *bolt.Store) error
		says string
	}{
		{"flipped row", flip("rows", "p\x00"+logKey(7)), row, logKey(7)},
		{"short row", cut("rows", "p\x00"+logKey(7)), row, logKey(7)},
		{"row in the place of another", moved, row, logKey(7)},
		{"flipped blob", flip("blobs", "small"), blob, "small"},
		{"short blob", cut("blobs", "small"), blob, "small"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filled(t)
			if err := os.Remove(filepath.Join(dir, "blobs", blobFiles(t, dir)[0])); err != nil {
				t.Fatal(err)
			}
			editDatabase(t, dir, c.edit)
			s := open(t, dir, bolt.Options{NoSync: true})
			if err := c.read(t, s); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if err := s.Verify(); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("verify says %v", err)
			}
		})
	}
}

// same demands that all errors are corruption and returns the first.
func same(t *testing.T, errs ...error) error {
	t.Helper()
	for i, err := range errs {
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("way %d to read says %v", i, err)
		}
	}
	return errs[0]
}

// TestDamagedBlobFileIsNamed damages the file of a large blob.
func TestDamagedBlobFileIsNamed(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 5) },
		"longer":  func(path string) error { return os.Truncate(path, 100_001) },
		"flipped": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{1}, 100_000), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			if err := damage(filepath.Join(dir, "blobs", blobFiles(t, dir)[0])); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, bolt.Options{NoSync: true})
			_, _, err := s.Blobs().Get(t.Context(), "large")
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), `"large"`) {
				t.Errorf("get says %v", err)
			}
			_, _, err = s.Blobs().GetRange(t.Context(), "large", 0, 1)
			if name != "flipped" && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("get of a range says %v", err)
			}
			if err := s.Verify(); !errors.Is(err, store.ErrCorrupt) && name != "missing" {
				t.Errorf("verify says %v", err)
			}
			if _, _, err := s.Blobs().Get(t.Context(), "small"); err != nil {
				t.Errorf("the other blob: %v", err)
			}
		})
	}
}

// TestVanishedOrRevivedValueIsNoticed changes the database in ways that leave
// every value intact.
func TestVanishedOrRevivedValueIsNoticed(t *testing.T) {
	key := []byte("p\x00" + logKey(7))
	var old []byte
	for name, c := range map[string]struct {
		before, after func(tx *bbolt.Tx) error
	}{
		"row is gone": {after: func(tx *bbolt.Tx) error { return tx.Bucket([]byte("rows")).Delete(key) }},
		"row is back in an old version": {
			before: func(tx *bbolt.Tx) error { old = bytes.Clone(tx.Bucket([]byte("rows")).Get(key)); return nil },
			after:  func(tx *bbolt.Tx) error { return tx.Bucket([]byte("rows")).Put(key, old) },
		},
		"blob is gone":     {after: func(tx *bbolt.Tx) error { return tx.Bucket([]byte("blobs")).Delete([]byte("small")) }},
		"counter is reset": {after: func(tx *bbolt.Tx) error { return tx.Bucket([]byte("rows")).SetSequence(5) }},
		"sum is cut":       {after: func(tx *bbolt.Tx) error { return tx.Bucket([]byte("lattice")).Put([]byte("rows"), []byte("x")) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			if c.before != nil {
				editDatabase(t, dir, c.before)
			}
			s := open(t, dir, bolt.Options{Verify: true, NoSync: true})
			row, err := s.Table().Get(t.Context(), "p", logKey(7))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Replace(logKey(7), []byte("new"), row.ETag)}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			editDatabase(t, dir, c.after)
			if _, err := bolt.Open(dir, bolt.Options{Verify: true}); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}
