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

// encoder and decoder serve any number of concurrent calls. They are made, and
// used once, when the program starts: what they make then belongs to no test's
// bubble of virtual time.
var (
	encoder = newEncoder()
	decoder = newDecoder()
)

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(1<<20),
		zstd.WithEncoderCRC(false), // the envelope has its own checksum
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd encoder options: %v", err))
	}
	e.EncodeAll([]byte{0}, nil)
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd decoder options: %v", err))
	}
	return d
}

// buffers hold compressed bytes on their way.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKept is the largest buffer that is kept for later.
const maxKept = 1 << 20

// Compress appends src to dst, compressed if src has at least MinCompress bytes
// and the result is smaller, and reports whether it is.
func Compress(dst, src []byte) ([]byte, bool) {
	if len(src) < MinCompress {
		return append(dst, src...), false
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	*buf = encoder.EncodeAll(src, (*buf)[:0])
	packed := len(*buf) < len(src)
	if packed {
		dst = append(dst, *buf...)
	} else {
		dst = append(dst, src...)
	}
	if cap(*buf) > maxKept {
		*buf = nil
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
	out, err := decoder.DecodeAll(src, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) != size {
		return nil, errSize
	}
	return out, nil
}
