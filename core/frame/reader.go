package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

var (
	errShort    = errors.New("data ends early")
	errVarint   = errors.New("malformed number")
	errTrailing = errors.New("data goes on past its end")
)

// Reader reads fields from a byte slice. It never reads past the end, never
// allocates by a size that it was told, and remembers its first error, after
// which every read yields zero.
type Reader struct {
	buf []byte
	err error
}

// NewReader returns a Reader over data, which must not change as long as what
// was read from it is in use.
func NewReader(data []byte) Reader { return Reader{buf: data} }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.buf) }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Fail records an error, unless one came before, and ends the reading.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.buf = nil
}

// Close returns the first error; bytes left over are one.
func (r *Reader) Close() error {
	if r.err == nil && len(r.buf) > 0 {
		r.Fail(errTrailing)
	}
	return r.err
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.buf) == 0 {
		r.Fail(errShort)
		return 0
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	return b
}

// Uvarint reads a variable-length number. Longer forms than needed are
// refused, so that a value has one encoding.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 || n > 1 && r.buf[n-1] == 0 {
		r.Fail(errVarint)
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// Count reads the number of items that follow, each of at least width bytes.
// More than can follow is refused: the caller may allocate that many.
func (r *Reader) Count(width int) int {
	n := r.Uvarint()
	if r.err == nil && n > uint64(len(r.buf)/width) {
		r.Fail(fmt.Errorf("%d items declared in %d bytes", n, len(r.buf)))
		return 0
	}
	return int(n)
}

// Int64 reads a number written as the Uvarint of its two's complement.
func (r *Reader) Int64() int64 { return int64(r.Uvarint()) }

// Next reads n bytes. They alias the data.
func (r *Reader) Next(n int) []byte {
	if n < 0 || n > len(r.buf) {
		r.Fail(errShort)
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

// Uint64 reads 8 bytes, little endian.
func (r *Reader) Uint64() uint64 {
	if b := r.Next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uint32 reads 4 bytes, little endian.
func (r *Reader) Uint32() uint32 {
	if b := r.Next(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// Bytes reads a length and so many bytes; nil when there are none. They alias
// the data.
func (r *Reader) Bytes() []byte {
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	return r.Next(n)
}

// Text reads a string written like Bytes. It aliases the data and costs no
// allocation.
func (r *Reader) Text() string { return Text(r.Bytes()) }

// Text returns a string that aliases b, which must never change.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// AppendBytes appends what Reader.Bytes and Reader.Text read.
func AppendBytes[T ~string | ~[]byte](dst []byte, b T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
