package api

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// bulkSource is the entries of a request.
type bulkSource interface {
	tree.BulkSource
	peek(most int) error
}

// isLines tells the two forms of a bulk load's body apart.
func isLines(h http.Header) (bool, error) {
	if lines := h.Values("Content-Type"); len(lines) == 1 {
		switch mediaType, _, _ := mime.ParseMediaType(lines[0]); mediaType {
		case ndjsonType:
			return true, nil
		case jsonType:
			return false, nil
		}
	}
	return false, argument("Content-Type", "must be %s or %s", jsonType, ndjsonType)
}

// bulkLines is isLines for a body that has arrived: with the body its type gets
// lost as well.
func (s *Server) bulkLines(r *request) (bool, error) {
	if r.ContentLength == 0 {
		if err := s.checkArrived(r, nil); err != nil {
			return false, err
		}
	}
	return isLines(r.Header)
}

// chunkLimit bounds a body that is held in memory as a whole.
func (s *Server) chunkLimit() bodyLimit {
	return bodyLimit{2*s.opts.MaxBulkChunkBytes + 64<<10, CodeRequestTooLarge, "the body"}
}

// heldSource reads a whole body, with its digest, and returns its entries.
func (s *Server) heldSource(w http.ResponseWriter, r *request, lines bool) (bulkSource, error) {
	body, err := s.readContent(w, r, s.chunkLimit())
	if err != nil {
		return nil, err
	}
	if lines {
		return &lineSource{lines: &heldLines{body}, parse: s.newEntryParser()}, nil
	}
	return s.parseEntries(r, body)
}

// parseEntries reads {"entries":[…]}.
func (s *Server) parseEntries(r *request, body []byte) (bulkSource, error) {
	src, given, parse := &listSource{}, false, s.newEntryParser()
	err := parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (bool, error) {
			if name != "entries" {
				return false, nil
			}
			given = true
			return true, p.array(name, func(path string) error {
				parse.f = entryFields{}
				err := p.object(path, func(name string) (bool, error) {
					if i := fieldOf([]byte(name)); i >= fieldEnd {
						return false, nil
					}
					return parse.f.member(p, path, name)
				})
				if err != nil {
					return err
				}
				var e tree.BulkEntry
				if err := parse.entry(path, &e); err != nil {
					return err
				}
				src.entries = append(src.entries, e)
				return s.holdBody(r, int64(len(e.Key)+len(e.Value))+entryOverhead)
			})
		})
	})
	if err == nil && !given {
		err = argument("entries", "missing")
	}
	return src, err
}

// entryOverhead is the memory of an entry beside its key and value.
const entryOverhead = 128

// listSource is entries in memory.
type listSource struct{ entries []tree.BulkEntry }

func (l *listSource) peek(int) error { return nil }

// Next implements tree.BulkSource.
func (l *listSource) Next(_ context.Context, e *tree.BulkEntry) error {
	if len(l.entries) == 0 {
		return io.EOF
	}
	*e, l.entries = l.entries[0], l.entries[1:]
	return nil
}

// streamSource reads lines as they arrive, at constant memory.
func (s *Server) streamSource(w http.ResponseWriter, r *request) (bulkSource, error) {
	if err := checkEncoding(r.Header.Values("Content-Encoding")); err != nil {
		return nil, err
	}
	want, digested, err := parseDigest(r.Header.Values("Content-Digest"))
	if err != nil {
		return nil, err
	}
	body := &pacedBody{body: r.Body, length: r.ContentLength, patience: s.opts.RequestTimeout, control: http.NewResponseController(w)}
	if digested {
		body.sum, body.want = sha256.New(), want
	}
	hold := func(n int64) error { return s.holdBody(r, n) }
	if err := hold(linesPortion); err != nil {
		return nil, err
	}
	lines := &streamLines{body: bufio.NewReaderSize(body, linesPortion), limit: s.lineLimit(), hold: hold, done: body.renew}
	return &lineSource{lines: lines, parse: s.newEntryParser()}, nil
}

// pacedBody is a body that must keep coming: each line, or each portion of a
// long one, has to arrive within patience of the moment at which the service
// began to wait for it. It ends as io.EOF only if it has the length that was
// announced and the digest that was sent.
type pacedBody struct {
	body     io.Reader
	length   int64
	patience time.Duration
	control  *http.ResponseController
	// sum is nil if no digest was sent.
	sum  hash.Hash
	want [sha256.Size]byte

	n int64
	// due is the end of patience, zero if the wait begins with the next read;
	// from is n at its beginning.
	due  time.Time
	from int64
}

// renew begins a new wait.
func (p *pacedBody) renew() { p.due = time.Time{} }

// Read implements io.Reader.
func (p *pacedBody) Read(b []byte) (int, error) {
	if p.due.IsZero() {
		p.due, p.from = time.Now().Add(p.patience), p.n
	}
	n, err := p.timed(b)
	p.n += int64(n)
	if p.sum != nil {
		p.sum.Write(b[:n])
	}
	if p.n-p.from >= linesPortion {
		p.renew()
	}
	switch {
	case p.length >= 0 && p.n > p.length:
		return n, argument("body", "longer than its Content-Length of %d", p.length)
	case errors.Is(err, io.EOF):
		return n, p.end()
	case err != nil:
		return n, bodyError(err)
	}
	return n, nil
}

// timed reads under the deadline, which must not stand while the service is
// busy with what has come. A host without deadlines bounds the time for a body
// by itself.
func (p *pacedBody) timed(b []byte) (int, error) {
	if p.control.SetReadDeadline(p.due) != nil {
		return p.body.Read(b)
	}
	n, err := p.body.Read(b)
	if lift := p.control.SetReadDeadline(time.Time{}); lift != nil && err == nil {
		err = lift
	}
	return n, err
}

func (p *pacedBody) end() error {
	if p.length >= 0 && p.n < p.length {
		return argument("body", "ended after %d bytes, its Content-Length is %d", p.n, p.length)
	}
	if p.sum != nil && [sha256.Size]byte(p.sum.Sum(nil)) != p.want {
		return failf(CodeDigestMismatch, "the content received, %d bytes, has another sha-256 than the header Content-Digest", p.n)
	}
	return io.EOF
}
