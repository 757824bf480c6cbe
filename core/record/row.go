package record

import (
	"encoding/binary"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// The format of a write-ahead row:
//
//	version  1 byte
//	flags    1 byte: 1 = the records are compressed with zstd
//	crc      4 bytes, little endian: CRC-32C of all other bytes
//	append   16 bytes
//	base     8 bytes, little endian
//	writer   4 bytes, little endian
//	seq      uvarint
//	count    uvarint: number of records
//	size     uvarint: bytes of the records uncompressed; only if compressed
//	records
const (
	rowVersion  = 1
	rowFlagZstd = 1
	rowFixed    = 34
	crcAt       = 2
)

const (
	// RowOverhead bounds what a row adds to the sizes of its records.
	RowOverhead = rowFixed + 3*binary.MaxVarintLen64
	// MaxRowRaw is the largest total size of the records of one row, before
	// compression. DecodeRow refuses more.
	MaxRowRaw = 16 << 20
)

// AppendRow appends the encoded row to dst. The records of a row should not
// exceed store.MaxRowBytes in sum of RecordSize, RowOverhead added; the
// appender splits groups accordingly.
func AppendRow(dst []byte, r *Row) []byte {
	start := len(dst)
	dst = append(dst, rowVersion, 0, 0, 0, 0, 0)
	dst = append(dst, r.Append[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Base))
	dst = binary.LittleEndian.AppendUint32(dst, r.Writer)
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = binary.AppendUvarint(dst, uint64(len(r.Records)))
	body := len(dst)
	for i := range r.Records {
		dst = appendRecord(dst, &r.Records[i])
	}
	dst, packed := packRow(dst, body)
	if packed {
		dst[start+1] |= rowFlagZstd
	}
	row := dst[start:]
	binary.LittleEndian.PutUint32(row[crcAt:], frame.Checksum(row[:crcAt], row[crcAt+4:]))
	return dst
}

// packRow replaces the records, which begin at body, by their size and their
// compressed form, if that is shorter. It works in the spare room behind them.
func packRow(dst []byte, body int) ([]byte, bool) {
	end := len(dst)
	raw := dst[body:end]
	if len(raw) < frame.MinCompress {
		return dst, false
	}
	dst, packed := frame.Compress(binary.AppendUvarint(dst, uint64(len(raw))), raw)
	if !packed || len(dst)-end >= len(raw) {
		return dst[:end], false
	}
	n := copy(dst[body:], dst[end:])
	return dst[:body+n], true
}

// EncodeRow returns the encoded row.
func EncodeRow(r *Row) []byte {
	size := RowOverhead
	for i := range r.Records {
		size += RecordSize(&r.Records[i])
	}
	return AppendRow(make([]byte, 0, size), r)
}

// DecodeRow reads the row that is stored under the sequence number. Keys,
// values and names alias one buffer that the row owns (data itself, if it was
// not compressed): neither may be modified. Puts and tombstones get the version
// of their place. Anything wrong, be it only that the row belongs elsewhere in
// the log, is store.ErrCorrupt naming the row.
func DecodeRow(seq uint64, data []byte) (Row, error) {
	row, count, body, err := openRow(seq, data)
	if err != nil {
		return Row{}, err
	}
	rd := frame.NewReader(body)
	row.Records = make([]Record, count)
	for i := range row.Records {
		readRecord(&rd, &row.Records[i])
		if err := rd.Err(); err != nil {
			return Row{}, store.Corruptf("log row %d, record %d: %v", seq, i, err)
		}
		stampRecord(&row, i)
	}
	if err := rd.Close(); err != nil {
		return Row{}, store.Corruptf("log row %d: %v", seq, err)
	}
	return row, nil
}

// stampRecord gives a put or tombstone the version that its place implies.
func stampRecord(row *Row, i int) {
	if k := row.Records[i].Kind; k == KindPut || k == KindTombstone {
		row.Records[i].Entry.Version = row.Version(i)
	}
}

// openRow checks the envelope of a row and returns it without records, their
// number, and their bytes.
func openRow(seq uint64, data []byte) (Row, int, []byte, error) {
	if err := checkRow(seq, data); err != nil {
		return Row{}, 0, nil, err
	}
	rd := frame.NewReader(data[crcAt+4:])
	var row Row
	copy(row.Append[:], rd.Next(len(row.Append)))
	row.Base = clock.HLC(rd.Uint64())
	row.Writer = rd.Uint32()
	row.Seq = rd.Uvarint()
	count := rd.Uvarint()
	body, err := rowBody(&rd, data[1])
	if err != nil {
		return Row{}, 0, nil, store.Corruptf("log row %d: %v", seq, err)
	}
	if row.Seq != seq {
		return Row{}, 0, nil, store.Corruptf("log row %d holds row %d", seq, row.Seq)
	}
	if count > uint64(len(body)/minRecord) {
		return Row{}, 0, nil, store.Corruptf("log row %d declares %d records in %d bytes", seq, count, len(body))
	}
	return row, int(count), body, nil
}

func checkRow(seq uint64, data []byte) error {
	if len(data) < rowFixed {
		return store.Corruptf("log row %d of %d bytes is cut short", seq, len(data))
	}
	if data[0] != rowVersion {
		return store.Corruptf("log row %d has unknown version %d", seq, data[0])
	}
	got, want := frame.Checksum(data[:crcAt], data[crcAt+4:]), binary.LittleEndian.Uint32(data[crcAt:])
	if got != want {
		return store.Corruptf("log row %d has checksum %08x, not %08x", seq, got, want)
	}
	if data[1]&^rowFlagZstd != 0 {
		return store.Corruptf("log row %d has unknown flags %#02x", seq, data[1])
	}
	return nil
}

// rowBody returns the bytes of the records, decompressed.
func rowBody(rd *frame.Reader, flags byte) ([]byte, error) {
	if flags&rowFlagZstd == 0 {
		return rd.Next(rd.Len()), rd.Err()
	}
	size := rd.Uvarint()
	if size > MaxRowRaw {
		rd.Fail(errRawSize)
	}
	if err := rd.Err(); err != nil {
		return nil, err
	}
	return frame.Decompress(rd.Next(rd.Len()), int(size))
}
