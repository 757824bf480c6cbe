package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// chunkLine is a line of a chunk as encoding/json reads it.
type chunkLine struct {
	Key         string    `json:"key"`
	Value       []byte    `json:"value"`
	ContentType string    `json:"contentType"`
	ExpiresAt   time.Time `json:"expiresAt"`
}

func TestChunkIsWhatJSONReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w ChunkWriter
		var want []BulkEntry
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			e := BulkEntry{
				Key: rapid.StringN(1, 20, 80).Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"),
				ContentType: rapid.String().Draw(t, "type"),
			}
			if rapid.Bool().Draw(t, "expires") {
				e.ExpiresAt = time.UnixMilli(rapid.Int64Range(-1e12, 1e14).Draw(t, "at")).UTC()
			}
			if err := w.Append(&e); err != nil {
				t.Fatal(err)
			}
			want = append(want, e)
		}
		if w.Entries() != len(want) || w.Len() != len(w.Bytes()) {
			t.Fatalf("%d entries and %d bytes, want %d and %d", w.Entries(), w.Len(), len(want), len(w.Bytes()))
		}
		if !utf8.Valid(w.Bytes()) {
			t.Fatal("not UTF-8")
		}
		lines := bytes.SplitAfter(w.Bytes(), []byte("\n"))
		if len(lines) != len(want)+1 || len(lines[len(want)]) != 0 {
			t.Fatalf("%d lines for %d entries", len(lines)-1, len(want))
		}
		for i, e := range want {
			var got chunkLine
			if err := json.Unmarshal(lines[i], &got); err != nil {
				t.Fatalf("%s: %v", lines[i], err)
			}
			if got.Key != e.Key || !bytes.Equal(got.Value, e.Value) || got.ContentType != e.ContentType || !got.ExpiresAt.Equal(e.ExpiresAt) {
				t.Fatalf("%+v came back as %+v", e, got)
			}
		}
	})
}

func TestChunkRefusesAndStaysAsItWas(t *testing.T) {
	var w ChunkWriter
	if err := w.Append(&BulkEntry{Key: "a"}); err != nil {
		t.Fatal(err)
	}
	before := string(w.Bytes())
	for name, tc := range map[string]struct {
		e    BulkEntry
		want error
	}{
		"no key":       {BulkEntry{}, ErrInvalidKey},
		"key":          {BulkEntry{Key: "\xff"}, ErrInvalidKey},
		"content type": {BulkEntry{Key: "k", ContentType: "\xff"}, ErrInvalidRequest},
		"year 10000":   {BulkEntry{Key: "k", ExpiresAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, ErrInvalidRequest},
		"year -1":      {BulkEntry{Key: "k", ExpiresAt: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}, ErrInvalidRequest},
		"far away":     {BulkEntry{Key: "k", ExpiresAt: time.Unix(math.MaxInt64, 0)}, ErrInvalidRequest},
	} {
		if err := w.Append(&tc.e); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if string(w.Bytes()) != before || w.Entries() != 1 {
		t.Errorf("the chunk is now %q", w.Bytes())
	}
	w.Reset()
	if w.Len() != 0 || w.Entries() != 0 {
		t.Errorf("after a reset %d bytes, %d entries", w.Len(), w.Entries())
	}
}

func TestChunkMakesNoGarbage(t *testing.T) {
	var w ChunkWriter
	e := BulkEntry{Key: "order/acme/\"0001\"\n", Value: make([]byte, 100), ContentType: "application/json", ExpiresAt: time.Unix(1e9, 0)}
	fill := func() {
		w.Reset()
		for range 100 {
			if err := w.Append(&e); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("%v allocations for a hundred entries in a chunk that has been filled before", n)
	}
}
