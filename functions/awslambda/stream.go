package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/capture"
)

// maxStreamBytes is what Lambda lets an answer have that is streamed.
const maxStreamBytes = 200 << 20

// stream runs the handler in a goroutine and returns its answer as soon as
// status and header are known; the body follows as it is made. The runtime's
// client reads the body to its end or its own failure, then closes it, and only
// then asks for the next event: with that the invocation is over.
func (f *function) stream(r *http.Request, id string, b *body) any {
	b.Stream = capture.Serve(maxStreamBytes, func(out http.ResponseWriter) error { return f.serve(out, r) })
	b.stuck = func() { f.logger.Error("handler does not end", "requestId", id) }
	cut, stop := b.window.untilCut()
	defer stop()
	select {
	case <-b.Begun():
	case <-cut:
		b.cancel()
		b.Abandon()
		b.stuck()
		return streamed(refusal(id, late(r.Method)))
	}
	if b.Err() != nil {
		b.cancel()
		b.flush()
		return streamed(refusal(id, failed))
	}
	if !b.window.cut.IsZero() {
		b.timer = time.AfterFunc(time.Until(b.window.cut), func() { b.Break(errTimeUp) })
	}
	answer := &events.LambdaFunctionURLStreamingResponse{StatusCode: b.Status(), Body: b}
	answer.Headers, answer.Cookies = headers(b.Sent())
	return answer
}

// body is a streamed body. One that breaks off gives an error instead of io.EOF,
// which the runtime's client passes on; and it lacks its last line, or bytes that
// its length promised.
type body struct {
	*capture.Stream
	window window
	// cancel ends the handler's context.
	cancel context.CancelFunc
	// timer breaks the body at the cut; nil if there is none.
	timer *time.Timer
	// flush is called when the handler has ended, stuck when it does not.
	flush, stuck func()
}

// Close ends the handler, should it still be at work, and waits until it has
// ended: a reader that closes early has gone away.
func (b *body) Close() error {
	b.cancel()
	b.Abandon()
	if b.timer != nil {
		b.timer.Stop()
	}
	// At the cut the handler has just been told.
	last := b.window
	last.cut = last.cut.Add(last.cut.Sub(last.finish) / 2)
	end, stop := last.untilCut()
	defer stop()
	select {
	case <-b.Ended():
		b.flush()
		return nil
	case <-end:
		b.stuck()
		return errors.New("handler does not end")
	}
}
