package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/latticekv/lattice/core/tree"
)

const (
	// linesPortion is how much of a streamed body is read at once.
	linesPortion = 64 << 10
)

// lineLimit bounds a line: the largest value that is taken, which base64 and
// escapes may double, and its key.
func (s *Server) lineLimit() int { return int(2*s.opts.MaxValueSizeBytes) + linesPortion }

// lineReader gives the lines of a body, without their ends.
type lineReader interface {
	// next returns a line that is valid until the next call, or io.EOF. What
	// stands behind the last line end is a line too: one that was cut off is no
	// JSON.
	next() ([]byte, error)
}

// heldLines are the lines of a body in memory.
type heldLines struct{ rest []byte }

func (h *heldLines) next() ([]byte, error) {
	if len(h.rest) == 0 {
		return nil, io.EOF
	}
	line, rest, _ := bytes.Cut(h.rest, []byte{'\n'})
	h.rest = rest
	return line, nil
}

// streamLines reads lines as they arrive, a portion ahead at most. A line that
// is longer than a portion is collected.
type streamLines struct {
	body *bufio.Reader
	long []byte
	// limit bounds a line.
	limit int
	// hold asks for memory before it is taken.
	hold func(n int64) error
	// done is told of every line that is not empty.
	done func()
}

func (s *streamLines) next() ([]byte, error) {
	s.long = s.long[:0]
	for {
		part, err := s.body.ReadSlice('\n')
		switch {
		case err == nil && len(s.long) == 0:
			return s.whole(part[:len(part)-1]), nil
		case err == nil:
			if err := s.collect(part[:len(part)-1]); err != nil {
				return nil, err
			}
			return s.whole(s.long), nil
		case errors.Is(err, bufio.ErrBufferFull):
			if err := s.collect(part); err != nil {
				return nil, err
			}
		case errors.Is(err, io.EOF) && len(s.long)+len(part) > 0:
			err := s.collect(part)
			return s.long, err
		default:
			return nil, err
		}
	}
}

// whole notes that a line has arrived; an empty one is no progress.
func (s *streamLines) whole(line []byte) []byte {
	if len(bytes.TrimSpace(line)) > 0 {
		s.done()
	}
	return line
}

func (s *streamLines) collect(part []byte) error {
	need := len(s.long) + len(part)
	if need > s.limit {
		f := failf(CodeRequestTooLarge, "the line has more than %d bytes", s.limit)
		f.Limit = int64(s.limit)
		return f
	}
	if size := cap(s.long); need > size {
		grown := min(max(2*size, 2*need), s.limit)
		if err := s.hold(int64(grown - size)); err != nil {
			return err
		}
		s.long = append(make([]byte, 0, grown), s.long...)
	}
	s.long = append(s.long, part...)
	return nil
}

// lineSource gives the entries of newline-delimited JSON.
type lineSource struct {
	lines lineReader
	parse *entryParser
	// line counts lines, count entries.
	line, count int64
	ended       bool
	// ahead are entries that peek has read.
	ahead  []tree.BulkEntry
	failed error
}

// peek reads entries ahead, one at least and others up to so many bytes, so that
// a body that is no good from the start is refused before anything is done for
// it.
func (s *lineSource) peek(most int) error {
	for size := 0; ; {
		var e tree.BulkEntry
		switch err := s.read(&e); {
		case errors.Is(err, io.EOF):
			s.failed = err
			return nil
		case err != nil:
			return err
		}
		e.Value = bytes.Clone(e.Value) // it is valid until the next one is read
		s.ahead = append(s.ahead, e)
		if size += len(e.Key) + len(e.Value) + entryOverhead; size >= most {
			return nil
		}
	}
}

// Next implements tree.BulkSource.
func (s *lineSource) Next(_ context.Context, e *tree.BulkEntry) error {
	if len(s.ahead) > 0 {
		*e, s.ahead = s.ahead[0], s.ahead[1:]
		return nil
	}
	if s.failed == nil {
		s.failed = s.read(e)
	}
	return s.failed
}

func (s *lineSource) read(e *tree.BulkEntry) error {
	for {
		line, err := s.lines.next()
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if f := (*Failure)(nil); errors.As(err, &f) && f.Code == CodeDigestMismatch {
			return err // it is the body's, not that of a line
		}
		s.line++
		if err != nil {
			return &lineError{s.line, err}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		isEnd, err := s.take(line, e)
		if err != nil {
			return &lineError{s.line, err}
		}
		if !isEnd {
			s.count++
			return nil
		}
	}
}

func (s *lineSource) take(line []byte, e *tree.BulkEntry) (isEnd bool, err error) {
	if s.ended {
		return false, argument("body", "something follows the end line")
	}
	isEnd, count, err := s.parse.line(line, e)
	if err == nil && isEnd && count != s.count {
		err = argument("count", "is %d, but %d entries were received", count, s.count)
	}
	s.ended = isEnd
	return isEnd, err
}

// lineError says which line of a body is at fault, counted from 1.
type lineError struct {
	line int64
	err  error
}

// Error implements error.
func (e *lineError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *lineError) Unwrap() error { return e.err }
