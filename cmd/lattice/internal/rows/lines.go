package rows

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

var bom = []byte("\xef\xbb\xbf")

// errLong: a line exceeds the bound; it has been skipped.
var errLong = errors.New("line too long")

// headOfLong is how much of a line that is too long is kept.
const headOfLong = 1 << 10

// lines reads an input line by line.
type lines struct {
	r   *bufio.Reader
	max int
	n   int64
}

func newLines(r io.Reader, limit int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 256<<10), max: limit}
}

// next returns a copy of the next line with its line end, which only the last
// one may lack. A line of more than max bytes is skipped: errLong with the
// beginning of it.
func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
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
func (l *lines) skip(head []byte, err error) ([]byte, error) {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	l.n++
	return bytes.Clone(head[:min(len(head), headOfLong)]), errLong
}

// chomp removes the line end.
func chomp(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}
