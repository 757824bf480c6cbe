// Package storetest is the storage contract as a test: every sentence of the
// comments of package store, checked against a provider. All providers run it,
// those of remote services over a real connection.
//
//	func TestConformance(t *testing.T) {
//		storetest.RunTable(t, func(t *testing.T) store.Table { … })
//		storetest.RunBlobs(t, func(t *testing.T) store.BlobStore { … })
//	}
//
// The suite works in partitions and under prefixes with fresh random names, so
// the storage need not be empty.
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// Config scales the suite down for slow providers, or up. Zero fields take the
// defaults.
type Config struct {
	// Rounds is how often each race is run; 20.
	Rounds int
	// Racers is the number of contenders of a race; 8.
	Racers int
	// ModelSteps is the length of the random walk that compares a table with a
	// model; 400.
	ModelSteps int
	// LargeBlob is the size of the largest blob written; 5 MiB. Set it to
	// store.MaxBlobBytes where that is affordable.
	LargeBlob int
	// ListBlobs is the number of blobs listed over several pages; 1,100.
	ListBlobs int
}

func (c Config) withDefaults() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.Rounds, 20)
	set(&c.Racers, 8)
	set(&c.ModelSteps, 400)
	set(&c.LargeBlob, 5<<20)
	set(&c.ListBlobs, 1100)
	return c
}

// RunTable runs the suite for tables with the default Config. open is called
// once.
func RunTable(t *testing.T, open func(t *testing.T) store.Table) { Config{}.RunTable(t, open) }

// RunBlobs runs the suite for blob stores with the default Config. open is
// called once.
func RunBlobs(t *testing.T, open func(t *testing.T) store.BlobStore) { Config{}.RunBlobs(t, open) }

// tableCase is one statement about tables. It has a partition of its own.
type tableCase struct {
	name string
	run  func(t *testing.T, f fixture)
}

// fixture is what a case works with.
type fixture struct {
	Config
	table store.Table
	// part is a fresh partition.
	part string
}

// RunTable runs the suite for tables. open is called once.
func (c Config) RunTable(t *testing.T, open func(t *testing.T) store.Table) {
	table := open(t)
	groups := [][]tableCase{rowCases, limitCases, transactionCases, rangeCases, raceCases}
	for _, group := range groups {
		for _, tc := range group {
			t.Run(tc.name, func(t *testing.T) {
				tc.run(t, fixture{Config: c.withDefaults(), table: table, part: freshName("part")})
			})
		}
	}
}

// freshName returns a name that nobody used before.
func freshName(kind string) string {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	return kind + "-" + hex.EncodeToString(b[:])
}

var sentinels = []error{
	store.ErrNotFound, store.ErrExists, store.ErrPrecondition, store.ErrThrottled, store.ErrUnavailable,
	store.ErrOutcomeUnknown, store.ErrTooLarge, store.ErrInvalid, store.ErrCorrupt,
}

// wantError demands that err is of one category, and of no other.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
	for _, other := range sentinels {
		if !errors.Is(want, other) && errors.Is(err, other) {
			t.Fatalf("error %v is %v as well as %v", err, other, want)
		}
	}
}

// wantOpError demands an error that names the failing operation.
func wantOpError(t *testing.T, err, want error, index int, key string) {
	t.Helper()
	wantError(t, err, want)
	var op *store.OpError
	if !errors.As(err, &op) {
		t.Fatalf("error %v is no *store.OpError", err)
	}
	if op.Index != index || op.Key != key {
		t.Fatalf("error names operation %d on %q, want %d on %q", op.Index, op.Key, index, key)
	}
}

// apply performs a transaction that must succeed, and checks its ETags.
func (f fixture) apply(t *testing.T, ops ...store.Op) []store.ETag {
	t.Helper()
	etags, err := f.table.Apply(t.Context(), f.part, ops)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	if len(etags) != len(ops) {
		t.Fatalf("apply of %d operations returned %d ETags", len(ops), len(etags))
	}
	for i, op := range ops {
		if (op.Kind == store.OpDelete) != (etags[i] == "") {
			t.Fatalf("operation %d of kind %d returned ETag %q", i, op.Kind, etags[i])
		}
	}
	return etags
}

// reject performs a transaction that must fail.
func (f fixture) reject(t *testing.T, ops ...store.Op) error {
	t.Helper()
	etags, err := f.table.Apply(t.Context(), f.part, ops)
	if err == nil {
		t.Fatalf("apply succeeded with ETags %q", etags)
	}
	if etags != nil {
		t.Fatalf("failed apply returned ETags %q", etags)
	}
	return err
}

// wantRow demands that the row exists with this payload, and returns its ETag.
func (f fixture) wantRow(t *testing.T, key string, data []byte) store.ETag {
	t.Helper()
	row, err := f.table.Get(t.Context(), f.part, key)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	if row.Key != key || row.ETag == "" {
		t.Fatalf("get %q returned key %q and ETag %q", key, row.Key, row.ETag)
	}
	if !bytes.Equal(row.Data, data) {
		t.Fatalf("row %q holds %s, want %s", key, brief(row.Data), brief(data))
	}
	return row.ETag
}

// wantNoRow demands that the row does not exist.
func (f fixture) wantNoRow(t *testing.T, key string) {
	t.Helper()
	_, err := f.table.Get(t.Context(), f.part, key)
	wantError(t, err, store.ErrNotFound)
}

// brief describes a payload in a failure message.
func brief(b []byte) string {
	const show = 16
	if len(b) <= show {
		return fmt.Sprintf("%d bytes %x", len(b), b)
	}
	return fmt.Sprintf("%d bytes %x…", len(b), b[:show])
}

// pattern returns n bytes that run through all values, different by seed.
// Every 4 KiB carry their number, so that none can stand in for another.
func pattern(n int, seed byte) []byte {
	const block = 4096
	b := make([]byte, n)
	for i := range min(n, block) {
		b[i] = byte(i) ^ byte(i>>8)*31 ^ seed
	}
	for at := block; at < n; at += block {
		copy(b[at:], b[:block])
		if at+4 <= n {
			binary.BigEndian.PutUint32(b[at:], uint32(at/block))
		}
	}
	return b
}

// cancelled returns a context that has ended.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
