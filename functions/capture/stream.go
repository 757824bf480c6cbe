package capture

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// ErrReaderGone is what a handler gets when it writes and nobody reads any more.
var ErrReaderGone = errors.New("the reader of the answer is gone")

// Stream is the answer of a handler that runs in a goroutine of its own and is
// read while it is made. Nothing is kept in between: a write returns when its
// bytes were read. The methods are safe for concurrent use.
type Stream struct {
	status int
	sent   http.Header
	err    error
	begun  chan struct{}
	ended  chan struct{}
	reader *io.PipeReader
	writer *io.PipeWriter
}

// Serve runs a handler, which may write at most limit bytes of body, and returns
// at once. What the handler returns as an error breaks the answer: it is what Err
// says if nothing was sent yet, and otherwise what the reader gets in place of
// io.EOF. The handler must not panic.
func Serve(limit int64, handler func(http.ResponseWriter) error) *Stream {
	s := &Stream{begun: make(chan struct{}), ended: make(chan struct{})}
	s.reader, s.writer = io.Pipe()
	w := &streamWriter{stream: s, limit: limit, header: http.Header{}}
	go func() {
		defer close(s.ended)
		err := handler(w)
		w.stop()
		if err != nil && s.status == 0 {
			s.err = err
			close(s.begun)
		} else {
			w.WriteHeader(http.StatusOK)
		}
		// A nil error is the end of a whole answer.
		_ = s.writer.CloseWithError(err)
	}()
	return s
}

// Begun is closed when status and header are known, or the handler failed
// before they were.
func (s *Stream) Begun() <-chan struct{} { return s.begun }

// Ended is closed when the handler has returned.
func (s *Stream) Ended() <-chan struct{} { return s.ended }

// Err returns why there is no answer; nil if there is one. Valid once Begun is
// closed, as are Status and Sent.
func (s *Stream) Err() error { return s.err }

// Status returns the status.
func (s *Stream) Status() int { return s.status }

// Sent returns the header as of the moment it was written.
func (s *Stream) Sent() http.Header { return s.sent }

// Read implements io.Reader with the body. It waits for the handler to write.
func (s *Stream) Read(p []byte) (int, error) { return s.reader.Read(p) }

// Break ends the body with an error for the reader and the handler's writes. It
// does nothing when the body has ended already.
func (s *Stream) Break(err error) { _ = s.writer.CloseWithError(err) }

// Abandon makes the handler's writes fail with ErrReaderGone: nobody reads on.
func (s *Stream) Abandon() { _ = s.reader.CloseWithError(ErrReaderGone) }

// streamWriter is the handler's side of a Stream. As other response writers it
// belongs to one goroutine.
type streamWriter struct {
	stream *Stream
	limit  int64
	header http.Header

	mu    sync.Mutex
	timer *time.Timer
}

// Header implements http.ResponseWriter.
func (w *streamWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter: the first final status counts, with
// the header as it is then; informational ones are dropped.
func (w *streamWriter) WriteHeader(status int) {
	s := w.stream
	if s.status != 0 || status < 200 {
		return
	}
	s.status, s.sent = status, w.header.Clone()
	close(s.begun)
}

// Write implements http.ResponseWriter. It returns when the bytes were read;
// ErrTooLarge beyond the limit.
func (w *streamWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if len(p) == 0 {
		return 0, nil
	}
	if int64(len(p)) > w.limit {
		// What follows would leave a hole.
		w.limit = 0
		return 0, ErrTooLarge
	}
	n, err := w.stream.writer.Write(p)
	w.limit -= int64(n)
	return n, err
}

// Flush implements http.Flusher: the header goes out; the body has.
func (w *streamWriter) Flush() { w.WriteHeader(http.StatusOK) }

// SetWriteDeadline bounds how long writes wait for a reader; the answer is
// broken after that. The zero time lifts the bound.
func (w *streamWriter) SetWriteDeadline(t time.Time) error {
	w.stop()
	if t.IsZero() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(time.Until(t), func() { w.stream.Break(os.ErrDeadlineExceeded) })
	return nil
}

func (w *streamWriter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}
