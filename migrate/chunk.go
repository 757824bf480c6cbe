package migrate

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/spool"
)

// builder makes chunks within the bounds.
type builder struct {
	w              client.ChunkWriter
	entries, bytes int
	last           mark
	hasLast        bool
}

func newBuilder(o *Options) *builder { return &builder{entries: o.ChunkEntries, bytes: o.ChunkBytes} }

// entryOverhead is about what a line of a chunk has beside key and value.
const entryOverhead = 96

// full reports whether e belongs into the next chunk.
func (b *builder) full(e *spool.Entry) bool {
	n := b.w.Entries()
	size := entryOverhead + len(e.Key) + len(e.Type) + base64.StdEncoding.EncodedLen(len(e.Value))
	return n > 0 && (n >= b.entries || b.w.Len()+size > b.bytes)
}

func (b *builder) add(e *spool.Entry) error {
	in := client.BulkEntry{Key: e.Key, Value: e.Value, ContentType: e.Type}
	if e.Expiry != 0 {
		in.ExpiresAt = time.UnixMilli(e.Expiry)
	}
	if err := b.w.Append(&in); err != nil {
		return fmt.Errorf("%s: %w", e.Origin, err)
	}
	b.last, b.hasLast = mark{e.Key, e.Origin, contentDigest(e)}, true
	return nil
}

// take returns what was gathered and begins the next chunk. The body is valid
// until the next entry is added.
func (b *builder) take(index int64) (parcel, []byte) {
	body := b.w.Bytes()
	p := parcel{Index: index, Entries: int64(b.w.Entries()), Bytes: int64(len(body)), Digest: xxhash.Sum64(body)}
	b.w.Reset()
	return p, body
}

// write puts a chunk on the disk. It is durable on return.
func (m *migration) write(p parcel, body []byte) error {
	if err := m.dir.Write(chunkName(p.Index), body); err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	return nil
}

// body reads a chunk as it was written.
func (m *migration) body(p parcel) ([]byte, error) {
	b, err := m.dir.Read(chunkName(p.Index))
	if err != nil {
		return nil, fmt.Errorf("chunk %d, which must be sent again as it was, cannot be read: %w; --restart begins anew", p.Index, err)
	}
	if int64(len(b)) != p.Bytes || xxhash.Sum64(b) != p.Digest {
		return nil, fmt.Errorf("chunk %d, which must be sent again as it was, is damaged on the disk (%s); --restart begins anew", p.Index, m.dir.Join(chunkName(p.Index)))
	}
	return b, nil
}
