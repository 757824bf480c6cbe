package shard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

var update = flag.Bool("update", false, "rewrite golden files")

func sampleHead(tb testing.TB) Head {
	tb.Helper()
	h := Head{
		Seq: 42, Clock: 1 << 40, Append: record.ID{1, 2, 3}, Truncated: 17,
		Lease: Lease{Owner: 7, Token: 3, Expiry: 1_900_000_000_000, Handoff: 9, Backoff: 5},
		Live:  -1, Bytes: 1 << 33, Reads: 5, Writes: 6,
	}
	m := Meta{Checkpoint: Checkpoint{Manifest: "s-1-0/manifest-1", Seq: 40}}
	m.Moved.Add(3)
	m.Moved.Add(4)
	if err := h.setMeta(m); err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestHeadRoundTrip(t *testing.T) {
	h := sampleHead(t)
	data := h.encode(nil)
	got, err := decodeHead("s-1-0", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again := got.encode(nil); !bytes.Equal(again, data) {
		t.Fatalf("a head changes when it is read and written:\n%x\n%x", data, again)
	}
	if got.meta.refused == nil || !got.Meta().Moved.Has(4) || got.Meta().Checkpoint.Seq != 40 || got.Live != -1 {
		t.Fatalf("decoded %+v, %+v", got, got.Meta())
	}
	reused, err := decodeHead("s-1-0", data, &got)
	if err != nil || reused.meta != got.meta {
		t.Fatalf("an unchanged meta part is parsed again (%v)", err)
	}
}

func TestHeadFormatIsStable(t *testing.T) {
	const path = "testdata/head.golden"
	h := sampleHead(t)
	data := []byte(hex.EncodeToString(h.encode(nil)) + "\n")
	if *update {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, data) {
		t.Fatal("the stored form of heads changed; stored shards could not be read")
	}
}

func TestDamagedHeadIsRefused(t *testing.T) {
	h := sampleHead(t)
	data := h.encode(nil)
	for bit := range len(data) * 8 {
		bad := bytes.Clone(data)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeHead("s-1-0", bad, nil); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "s-1-0") {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
	}
	for n := range len(data) {
		if _, err := decodeHead("s-1-0", data[:n], nil); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// A head written by a later version must not be rewritten without what only
// that version knows.
func TestUnknownHeadFieldIsRefused(t *testing.T) {
	h := sampleHead(t)
	h.meta = &metaBytes{Meta: h.meta.Meta, raw: []byte(`{"checkpoint":{},"moved":[],"future":1}`)}
	_, err := decodeHead("s-1-0", h.encode(nil), nil)
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "future") {
		t.Fatalf("got %v", err)
	}
}

func FuzzDecodeHead(f *testing.F) {
	h := sampleHead(f)
	f.Add(h.encode(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeHead("s-1-0", data, nil)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%v is no category", err)
			}
			return
		}
		if !bytes.Equal(got.encode(nil), data) {
			t.Fatal("accepted bytes are not the head's own")
		}
	})
}

func TestLogKeysSortNewestFirstAfterTheHead(t *testing.T) {
	last := headKey
	for _, seq := range []uint64{1<<64 - 1, 1 << 32, 256, 255, 10, 9, 1, 0} {
		key := logKey(seq)
		if key <= last {
			t.Fatalf("row %d has key %q, not after %q", seq, key, last)
		}
		if got, err := parseLogKey("p", key); err != nil || got != seq {
			t.Fatalf("row %d reads back as %d, %v", seq, got, err)
		}
		if store.CheckKey("row", key) != nil || store.NextKey(key) <= key {
			t.Fatalf("key %q is not one of the contract", key)
		}
		last = key
	}
	for _, bad := range []string{"w", "x0000000000000000", "w00000000000000zz", "counter"} {
		if _, err := parseLogKey("p", bad); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("key %q: %v", bad, err)
		}
	}
}
