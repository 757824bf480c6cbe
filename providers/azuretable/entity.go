package azuretable

import (
	"encoding/base64"
	"strconv"

	"github.com/latticekv/lattice/core/store"
)

const (
	// chunkBytes is how much of a payload one binary property holds: at most
	// 64,000 bytes, and a multiple of three, so that base64 pads only the last.
	chunkBytes = 63_999
	// maxChunks hold the largest payload of the contract.
	maxChunks = (store.MaxRowBytes + chunkBytes - 1) / chunkBytes
	// entityFraming bounds the JSON of an entity besides its keys and payload.
	entityFraming = 64 + maxChunks*40
)

// chunkCount returns over how many properties a payload is spread.
func chunkCount(length int) int { return (length + chunkBytes - 1) / chunkBytes }

// entitySize bounds what appendEntity appends.
func entitySize(partition string, op store.Op) int {
	n := chunkCount(len(op.Data))
	return entityFraming + len(partition) + len(op.Key) + base64.StdEncoding.EncodedLen(len(op.Data)) + 4*n
}

// appendEntity appends the JSON of a row. Keys need no escaping: CheckKey admits
// nothing that JSON would escape.
func appendEntity(b []byte, partition string, op store.Op) []byte {
	b = append(b, `{"PartitionKey":"`...)
	b = append(b, partition...)
	b = append(b, `","RowKey":"`...)
	b = append(b, op.Key...)
	b = append(b, `","Len":`...)
	b = strconv.AppendInt(b, int64(len(op.Data)), 10)
	for i, rest := 0, op.Data; len(rest) > 0; i++ {
		chunk := rest[:min(chunkBytes, len(rest))]
		rest = rest[len(chunk):]
		b = append(b, `,"P`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `@odata.type":"Edm.Binary","P`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `":"`...)
		b = base64.StdEncoding.AppendEncode(b, chunk)
		b = append(b, '"')
	}
	return append(b, '}')
}

// entity is what decoding finds in the JSON of a row, still encoded.
type entity struct {
	etag, partition, key string
	length               int
	chunks               [maxChunks]token
}

// row checks an entity and turns it into a row of the partition. Nothing is
// allocated before the declared length agrees with what is there.
func (e *entity) row(partition string) (store.Row, error) {
	switch {
	case e.key == "" || e.partition == "":
		return store.Row{}, store.Corruptf("a row of partition %q has no keys", partition)
	case e.partition != partition:
		return store.Row{}, store.Corruptf("row %q is of partition %q, not %q", e.key, e.partition, partition)
	case e.etag == "":
		return store.Row{}, store.Corruptf("row %s/%s has no ETag", partition, e.key)
	case e.length < 0 || e.length > store.MaxRowBytes:
		return store.Row{}, store.Corruptf("row %s/%s has no valid length", partition, e.key)
	}
	for i := range e.chunks {
		want := base64.StdEncoding.EncodedLen(chunkLength(e.length, i))
		if have := len(e.chunks[i].text); have != want {
			return store.Row{}, store.Corruptf("row %s/%s of %d bytes: property P%d holds %d characters, not %d",
				partition, e.key, e.length, i, have, want)
		}
	}
	data, err := e.data()
	if err != nil {
		return store.Row{}, store.Corruptf("row %s/%s: %v", partition, e.key, err)
	}
	return store.Row{Key: e.key, ETag: store.ETag(e.etag), Data: data}, nil
}

// chunkLength returns how many bytes of a payload stand in property i.
func chunkLength(length, i int) int { return max(0, min(chunkBytes, length-i*chunkBytes)) }

func (e *entity) data() ([]byte, error) {
	data := make([]byte, 0, e.length)
	for i := range chunkCount(e.length) {
		var err error
		if data, err = base64.StdEncoding.Strict().AppendDecode(data, e.chunks[i].text); err != nil {
			return nil, err
		}
	}
	if len(data) != e.length {
		// The decoder passes over line breaks.
		return nil, base64.CorruptInputError(len(data))
	}
	return data, nil
}
