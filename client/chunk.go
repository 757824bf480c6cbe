package client

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// BulkEntry is one entry of a bulk load.
type BulkEntry struct {
	Key   string
	Value []byte
	// ContentType is stored with the value; empty is application/octet-stream.
	ContentType string
	// ExpiresAt is when the key vanishes, kept in milliseconds; zero is never.
	// One in the past is accepted and counted, and never seen.
	ExpiresAt time.Time
}

// ChunkWriter encodes entries as newline-delimited JSON, the body of a chunk.
// The zero value is ready; Reset lets it be used again without new memory. It
// does not look at the order of the keys: the service does.
type ChunkWriter struct {
	buf     []byte
	entries int
}

// Append adds one entry, of which nothing is kept. It refuses, and leaves the
// chunk as it was, a key that is no key (ErrInvalidKey), and a content type or
// an expiry that JSON cannot carry (ErrInvalidRequest).
func (w *ChunkWriter) Append(e *BulkEntry) error {
	if err := checkEntry(e); err != nil {
		return err
	}
	w.buf = appendEntry(w.buf, e)
	w.entries++
	return nil
}

// Bytes returns the chunk, valid until the next Append or Reset.
func (w *ChunkWriter) Bytes() []byte { return w.buf }

// Len is the length of the chunk in bytes.
func (w *ChunkWriter) Len() int { return len(w.buf) }

// Entries is the number of entries in the chunk.
func (w *ChunkWriter) Entries() int { return w.entries }

// Reset empties the chunk.
func (w *ChunkWriter) Reset() { w.buf, w.entries = w.buf[:0], 0 }

func checkEntry(e *BulkEntry) error {
	if err := checkKey(e.Key); err != nil {
		return err
	}
	if !utf8.ValidString(e.ContentType) {
		return fmt.Errorf("%w: the content type of %q is not UTF-8", ErrInvalidRequest, e.Key)
	}
	// RFC 3339 has four digits for the year.
	if y := e.ExpiresAt.UTC().Year(); !e.ExpiresAt.IsZero() && (y < 0 || y > 9999) {
		return fmt.Errorf("%w: the expiry of %q lies in the year %d", ErrInvalidRequest, e.Key, y)
	}
	return nil
}

// appendEntry writes the line of an entry that checkEntry accepts.
func appendEntry(b []byte, e *BulkEntry) []byte {
	b = append(b, `{"key":`...)
	b = appendString(b, e.Key)
	b = append(b, `,"value":"`...)
	b = base64.StdEncoding.AppendEncode(b, e.Value)
	b = append(b, '"')
	if e.ContentType != "" {
		b = append(b, `,"contentType":`...)
		b = appendString(b, e.ContentType)
	}
	if !e.ExpiresAt.IsZero() {
		b = append(b, `,"expiresAt":"`...)
		b = e.ExpiresAt.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	return append(b, '}', '\n')
}

// appendEnd writes the line that says that a stream is whole.
func appendEnd(b []byte, count int64) []byte {
	b = append(b, `{"end":true,"count":`...)
	b = strconv.AppendInt(b, count, 10)
	return append(b, '}', '\n')
}

// appendString writes valid UTF-8 as a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		if c < 0x20 {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, '\\', c)
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
