package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// countedBody counts what is read of a request's body.
type countedBody struct {
	io.ReadCloser
	n int64
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	if b.ReadCloser == nil {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	if b.ReadCloser == nil {
		return nil
	}
	return b.ReadCloser.Close()
}

const (
	// firstChunk is what is allocated on the word of a Content-Length alone.
	firstChunk = 1 << 20
	// maxDrain is how much of a body over the limit is read and dropped, so
	// that a client that is only a little over reads the answer instead of a
	// broken connection.
	maxDrain = 1 << 20
)

// bodyLimit is a bound on a body and the code of its breach.
type bodyLimit struct {
	bytes int64
	code  Code
	what  string
}

func (l bodyLimit) exceeded() error {
	f := failf(l.code, "%s has more than %d bytes", l.what, l.bytes)
	f.Limit = l.bytes
	return f
}

// readBody reads the whole body, exactly: not more than the limit, not less
// than was announced, and with the digest that was sent.
func (s *Server) readBody(w http.ResponseWriter, r *request, limit bodyLimit) ([]byte, error) {
	if err := checkEncoding(r.Header.Values("Content-Encoding")); err != nil {
		return nil, err
	}
	if r.ContentLength > limit.bytes {
		drain(r, limit.bytes+maxDrain)
		return nil, limit.exceeded()
	}
	control := http.NewResponseController(w)
	// A host without deadlines bounds the time for a body by itself.
	bounded := control.SetReadDeadline(time.Now().Add(s.opts.RequestTimeout)) == nil
	body, err := readExactly(r.Body, r.ContentLength, limit, func(n int64) error { return s.holdBody(r, n) })
	if err != nil {
		return nil, err
	}
	if bounded {
		if err := control.SetReadDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("lift the deadline for the body: %w", err)
		}
	}
	return body, checkDigest(r.Header.Values("Content-Digest"), body)
}

// readContent is readBody for a body whose absence would mean something: an
// empty value, a load of nothing.
func (s *Server) readContent(w http.ResponseWriter, r *request, limit bodyLimit) ([]byte, error) {
	body, err := s.readBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	return body, s.checkArrived(r, body)
}

// checkArrived refuses an empty body, for which no digest vouches, where bodies
// get lost: what the client sent cannot be known.
func (s *Server) checkArrived(r *request, body []byte) error {
	if !s.cfg.LosesBodies || len(body) > 0 {
		return nil
	}
	if _, digested, err := parseDigest(r.Header.Values("Content-Digest")); digested || err != nil {
		return err
	}
	return failf(CodeLengthRequired, "no body arrived, and this host loses bodies that are sent without a Content-Length: "+
		"send one, not chunked; if nothing is what you mean, send the Content-Digest of nothing")
}

// checkEncoding refuses a compressed body: to store it as it is would be wrong,
// and to expand it would let a few bytes take much memory.
func checkEncoding(lines []string) error {
	for coding := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if c := strings.TrimSpace(coding); c != "" && !strings.EqualFold(c, "identity") {
			return failf(CodeUnsupportedEncoding, "Content-Encoding: only identity is understood; send the body as it is")
		}
	}
	return nil
}

// holdBody counts n more bytes of a body against what the process may hold at
// once. A body counts as it arrives, not as it was announced: announcing costs
// a client nothing.
func (s *Server) holdBody(r *request, n int64) error {
	if s.buffered.Add(n) > s.cfg.MaxBufferedBytes {
		s.buffered.Add(-n)
		return failf(CodeUnavailable, "the requests in work fill the memory for bodies and answers; try again")
	}
	r.held.Add(n)
	return nil
}

// reading is the context for a read of values: large ones count before they are
// brought into memory.
func (s *Server) reading(ctx context.Context, r *request) context.Context {
	return tree.WithAdmission(ctx, func(n int64) error {
		if n < 0 {
			s.giveBack(r, -n)
		} else if err := s.holdBody(r, n); err != nil {
			return err
		}
		r.loaded.Add(n)
		return nil
	})
}

// holdAnswer likewise counts a value that is answered as it is, unless it was
// counted when it was read, and is so long that a client which reads slowly, or
// not at all, keeps it in memory.
func (s *Server) holdAnswer(r *request, n int64) error {
	if n -= r.loaded.Load(); n <= longAnswer || r.Method == http.MethodHead {
		return nil
	}
	return s.holdBody(r, n)
}

// holdPage counts an answer of n bytes that is made in memory, beside the values in
// it. One that no room would be enough for is refused for good.
func (s *Server) holdPage(r *request, n int64) error {
	if err := r.fits(n); err != nil {
		return err
	}
	if n > s.cfg.MaxBufferedBytes {
		return bodyLimit{s.cfg.MaxBufferedBytes, CodeValueTooLarge, "the answer"}.exceeded()
	}
	if n <= longAnswer {
		return nil
	}
	return s.holdBody(r, n)
}

// giveBack counts n bytes less.
func (s *Server) giveBack(r *request, n int64) {
	s.buffered.Add(-n)
	r.held.Add(-n)
}

func (r *request) releaseBody(s *Server) {
	s.buffered.Add(-r.held.Swap(0))
	r.loaded.Store(0)
}

// drain drops up to n bytes of the body unless the client waits for a word
// before it sends any.
func drain(r *request, n int64) {
	if r.Header.Get("Expect") == "" && r.ContentLength <= n {
		// The answer is the same whether or not the rest arrives.
		_, _ = io.CopyN(io.Discard, r.Body, n)
	}
}

// readExactly reads a body of the announced length, -1 if it is unknown. It
// asks hold before it takes memory.
func readExactly(body io.Reader, length int64, limit bodyLimit, hold func(n int64) error) ([]byte, error) {
	most := limit.bytes
	if length >= 0 {
		most = length
	}
	if err := hold(min(most, firstChunk)); err != nil {
		return nil, err
	}
	// One byte of room beyond the end shows that the end is one.
	b := make([]byte, 0, min(most, firstChunk)+1)
	for {
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)) > most {
			return nil, tooLong(length, limit)
		}
		if errors.Is(err, io.EOF) {
			return b, checkLength(len(b), length)
		}
		if err != nil {
			return nil, bodyError(err)
		}
		if len(b) == cap(b) {
			size := nextSize(int64(cap(b)), most+1, length >= 0)
			if err := hold(size - int64(cap(b))); err != nil {
				return nil, err
			}
			b = slices.Grow(b, int(size)-len(b))
		}
	}
}

// nextSize is the room to make: for the whole of a body whose first chunk has
// arrived as announced, or for twice as much of one whose length is not known.
func nextSize(size, most int64, known bool) int64 {
	if known {
		return most
	}
	return min(2*size, most)
}

func tooLong(length int64, limit bodyLimit) error {
	if length >= 0 {
		return argument("body", "longer than its Content-Length of %d", length)
	}
	return limit.exceeded()
}

func checkLength(got int, length int64) error {
	if length >= 0 && int64(got) < length {
		return argument("body", "ended after %d bytes, its Content-Length is %d", got, length)
	}
	return nil
}

func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return argument("body", "did not arrive in time")
	}
	return &Failure{Code: CodeInvalidArgument, Detail: "body: broke off before its end", Err: err}
}
