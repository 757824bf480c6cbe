package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// A run file is a magic, then frames, the last of which is the end:
//
//	frame  u32 length of the content, u32 length once unpacked, u64 checksum of
//	       both and of the content, the content
//	end    a frame whose unpacked length is 0: u64 number of blocks, u64 number
//	       of records, u32 longest content, u32 longest block
//
// A file without its end, or with anything behind it, is refused. Numbers are
// little-endian.
const (
	magic      = "lattice spool 1\n"
	frameBytes = 16
	endBytes   = 24
	// maxBlock bounds what a frame may claim: a block holds at least one entry,
	// and no value is that long.
	maxBlock = 1 << 30
)

// trailer is the end of a run.
type trailer struct {
	blocks, records        uint64
	maxPacked, maxUnpacked uint32
}

// memory is what reading the run takes.
func (t *trailer) memory() int { return int(t.maxPacked) + int(t.maxUnpacked) }

// blockWriter writes one run after the other.
type blockWriter struct {
	size    int
	w       io.Writer
	raw     []byte
	packed  []byte
	zip     *zstd.Encoder
	trailer trailer
}

func (b *blockWriter) begin(w io.Writer) error {
	if b.zip == nil {
		zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
		if err != nil {
			return err
		}
		b.zip = zip
	}
	b.w, b.raw, b.trailer = w, b.raw[:0], trailer{}
	_, err := io.WriteString(w, magic)
	return err
}

// add appends one record; records are never divided.
func (b *blockWriter) add(rec []byte) error {
	if len(b.raw) > 0 && len(b.raw)+len(rec) > b.size {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.raw = append(b.raw, rec...)
	b.trailer.records++
	return nil
}

func (b *blockWriter) flush() error {
	if len(b.raw) == 0 {
		return nil
	}
	b.packed = b.zip.EncodeAll(b.raw, b.packed[:0])
	if err := b.frame(b.packed, len(b.raw)); err != nil {
		return err
	}
	b.trailer.blocks++
	b.trailer.maxPacked = max(b.trailer.maxPacked, uint32(len(b.packed)))
	b.trailer.maxUnpacked = max(b.trailer.maxUnpacked, uint32(len(b.raw)))
	b.raw = b.raw[:0]
	return nil
}

func (b *blockWriter) frame(content []byte, unpacked int) error {
	var h [frameBytes]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(len(content)))
	binary.LittleEndian.PutUint32(h[4:], uint32(unpacked))
	binary.LittleEndian.PutUint64(h[8:], checksum(h[:8], content))
	if _, err := b.w.Write(h[:]); err != nil {
		return err
	}
	_, err := b.w.Write(content)
	return err
}

func checksum(head, content []byte) uint64 {
	d := xxhash.New()
	_, _ = d.Write(head)
	_, _ = d.Write(content)
	return d.Sum64()
}

func (b *blockWriter) end() error {
	if err := b.flush(); err != nil {
		return err
	}
	return b.frame(b.trailer.encode(), 0)
}

func (t *trailer) encode() []byte {
	b := make([]byte, 0, endBytes)
	b = binary.LittleEndian.AppendUint64(b, t.blocks)
	b = binary.LittleEndian.AppendUint64(b, t.records)
	b = binary.LittleEndian.AppendUint32(b, t.maxPacked)
	return binary.LittleEndian.AppendUint32(b, t.maxUnpacked)
}

// runReader reads the records of a run.
type runReader struct {
	f       *os.File
	name    string
	zip     *zstd.Decoder
	want    trailer
	got     trailer
	packed  []byte
	raw     []byte
	rest    []byte
	last    []byte
	started bool
}

// openRun opens a run and reads its end.
func openRun(path string, zip *zstd.Decoder) (*runReader, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, path)
	}
	if err != nil {
		return nil, err
	}
	r := &runReader{f: f, name: path, zip: zip}
	if err := r.readEnds(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

func (r *runReader) corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrCorrupt, r.name, fmt.Sprintf(format, args...))
}

// readEnds checks the magic and reads the trailer.
func (r *runReader) readEnds() error {
	st, err := r.f.Stat()
	if err != nil {
		return err
	}
	const least = int64(len(magic) + frameBytes + endBytes)
	if st.Size() < least {
		return r.corrupt("it has only %d bytes", st.Size())
	}
	tail := make([]byte, frameBytes+endBytes)
	if _, err := r.f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil {
		return err
	}
	content := tail[frameBytes:]
	if binary.LittleEndian.Uint32(tail) != endBytes || binary.LittleEndian.Uint32(tail[4:]) != 0 ||
		binary.LittleEndian.Uint64(tail[8:]) != checksum(tail[:8], content) {
		return r.corrupt("its end is missing")
	}
	r.want.blocks, r.want.records = binary.LittleEndian.Uint64(content), binary.LittleEndian.Uint64(content[8:])
	r.want.maxPacked, r.want.maxUnpacked = binary.LittleEndian.Uint32(content[16:]), binary.LittleEndian.Uint32(content[20:])
	if r.want.maxUnpacked > maxBlock || int64(r.want.maxPacked) > st.Size() {
		return r.corrupt("it claims a block of %d bytes", max(r.want.maxPacked, r.want.maxUnpacked))
	}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(r.f, head); err != nil {
		return err
	}
	if string(head) != magic {
		return r.corrupt("it does not begin as a run")
	}
	return nil
}

// next returns the next record, valid until the following call, or io.EOF.
func (r *runReader) next() ([]byte, error) {
	if len(r.rest) == 0 {
		if err := r.block(); err != nil {
			return nil, err
		}
	}
	n, err := recordLen(r.rest)
	if err != nil {
		return nil, r.corrupt("block %d: %v", r.got.blocks, err)
	}
	rec := r.rest[:n]
	r.rest = r.rest[n:]
	r.got.records++
	return rec, nil
}

// block reads the next block, or the end.
func (r *runReader) block() error {
	var h [frameBytes]byte
	if _, err := io.ReadFull(r.f, h[:]); err != nil {
		return r.readError(err)
	}
	packed, unpacked := binary.LittleEndian.Uint32(h[0:]), binary.LittleEndian.Uint32(h[4:])
	if unpacked == 0 && packed == endBytes {
		return r.end()
	}
	if packed > r.want.maxPacked || unpacked > r.want.maxUnpacked || unpacked == 0 {
		return r.corrupt("block %d claims to be longer than any", r.got.blocks+1)
	}
	if r.packed == nil {
		r.packed, r.raw = make([]byte, r.want.maxPacked), make([]byte, 0, r.want.maxUnpacked)
	}
	content := r.packed[:packed]
	if _, err := io.ReadFull(r.f, content); err != nil {
		return r.readError(err)
	}
	if checksum(h[:8], content) != binary.LittleEndian.Uint64(h[8:]) {
		return r.corrupt("the checksum of block %d differs", r.got.blocks+1)
	}
	raw, err := r.zip.DecodeAll(content, r.raw[:0])
	if err != nil || len(raw) != int(unpacked) {
		return r.corrupt("block %d cannot be unpacked", r.got.blocks+1)
	}
	r.rest = raw
	r.got.blocks++
	return nil
}

// end compares what was read with what was written.
func (r *runReader) end() error {
	if at, err := r.f.Seek(endBytes, io.SeekCurrent); err != nil {
		return err
	} else if st, err := r.f.Stat(); err != nil {
		return err
	} else if at != st.Size() {
		return r.corrupt("something stands behind its end")
	}
	if r.got.blocks != r.want.blocks || r.got.records != r.want.records {
		return r.corrupt("%d records in %d blocks were read, %d in %d were written", r.got.records, r.got.blocks, r.want.records, r.want.blocks)
	}
	return io.EOF
}

func (r *runReader) readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.corrupt("it is cut off after %d records of %d", r.got.records, r.want.records)
	}
	return fmt.Errorf("read %s: %w", r.name, err)
}

func (r *runReader) close() { _ = r.f.Close() }
