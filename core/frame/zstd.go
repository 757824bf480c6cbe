package frame

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// MinCompress is the length below which nothing is compressed: the gain would
// not pay for the time.
const MinCompress = 512

// maxRatio bounds the expansion that zstd can express: a block of 128 KiB that
// repeats one byte takes 4 bytes.
const maxRatio = 128 << 10 / 4

// encoders are pooled because one encoder serves one call at a time, and its
// tables are large.
var encoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20),
		zstd.WithEncoderCRC(false), // the envelope has its own checksum
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd encoder options: %v", err))
	}
	return &packer{enc: e}
}}

// packer is an encoder and the buffer that it writes to.
type packer struct {
	enc *zstd.Encoder
	buf []byte
}

// maxKept is the largest buffer that a pooled packer keeps.
const maxKept = 1 << 20

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd decoder options: %v", err))
	}
	return d
})

// Compress appends src to dst, compressed if src has at least MinCompress bytes
// and the result is smaller, and reports whether it is.
func Compress(dst, src []byte) ([]byte, bool) {
	if len(src) < MinCompress {
		return append(dst, src...), false
	}
	p := encoders.Get().(*packer)
	defer encoders.Put(p)
	p.buf = p.enc.EncodeAll(src, p.buf[:0])
	packed := len(p.buf) < len(src)
	if packed {
		dst = append(dst, p.buf...)
	} else {
		dst = append(dst, src...)
	}
	if cap(p.buf) > maxKept {
		p.buf = nil
	}
	return dst, packed
}

var errSize = errors.New("compressed data has not the declared size")

// Decompress returns the size bytes that src was compressed from. It fails
// before it allocates if src is too short to stand for so many. The caller
// bounds size.
func Decompress(src []byte, size int) ([]byte, error) {
	if size < 0 || size/maxRatio > len(src) {
		return nil, fmt.Errorf("%d compressed bytes cannot hold %d", len(src), size)
	}
	out, err := decoder().DecodeAll(src, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) != size {
		return nil, errSize
	}
	return out, nil
}
