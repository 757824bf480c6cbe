package delimited

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

var bom = []byte("\xef\xbb\xbf")

// ErrLong: a line exceeds the bound; it has been skipped.
var ErrLong = errors.New("line too long")

// headOfLong is how much of a line that is too long is kept.
const headOfLong = 1 << 10

// Lines reads an input line by line.
type Lines struct {
	r      *bufio.Reader
	max    int
	n      int64
	offset int64
}

// NewLines reads lines of at most limit bytes, their ends included.
func NewLines(r io.Reader, limit int) *Lines { return LinesFrom(r, limit, 0, 0) }

// LinesFrom reads on behind line n, at an offset in bytes.
func LinesFrom(r io.Reader, limit int, n, offset int64) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 256<<10), max: limit, n: n, offset: offset}
}

// Number is how many lines were read.
func (l *Lines) Number() int64 { return l.n }

// Offset is how many bytes were read, line ends included.
func (l *Lines) Offset() int64 { return l.offset }

// Limit is the most that a line may have, in bytes.
func (l *Lines) Limit() int { return l.max }

// Next returns a copy of the next line with its line end, which only the last
// one may lack. A line of more than max bytes is skipped: ErrLong with the
// beginning of it.
func (l *Lines) Next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		l.offset += int64(len(part))
		line = append(line, part...)
		if len(line) > l.max {
			return l.skip(line, err)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = nil
		}
		if err != nil {
			return nil, err
		}
		l.n++
		if l.n == 1 {
			line = bytes.TrimPrefix(line, bom)
		}
		return line, nil
	}
}

// skip drops the rest of a line of which head was read with err.
func (l *Lines) skip(head []byte, err error) ([]byte, error) {
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = l.r.ReadSlice('\n')
		l.offset += int64(len(part))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	l.n++
	return bytes.Clone(head[:min(len(head), headOfLong)]), ErrLong
}

// Chomp removes the line end.
func Chomp(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}
