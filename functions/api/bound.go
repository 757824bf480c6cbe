package api

import (
	"context"
	"net/http"

	"github.com/latticekv/lattice/core/tree"
)

type answerBound struct{}

// BoundAnswer returns the request with a bound for the answer's body: n bytes, of
// which the host cannot return more. What would exceed it is refused before
// anything is done.
func BoundAnswer(r *http.Request, n int64) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), answerBound{}, n))
}

// fits refuses an answer of n bytes that the host could not return.
func (r *request) fits(n int64) error {
	if r.most == 0 || n <= r.most {
		return nil
	}
	f := failf(CodeValueTooLarge, "the answer has %d bytes, more than the %d that this host can return; ask for a smaller page or range", n, r.most)
	f.Limit = r.most
	return f
}

// resultBytes is what the outcome of one operation of a batch takes at most, beside
// its key.
const resultBytes = 128

// resultsFit refuses a batch whose results the host could not return.
func (r *request) resultsFit(ops []tree.BatchOp) error {
	if r.most == 0 {
		return nil
	}
	w := &entryWriter{measures: true}
	for i := range ops {
		w.quoted([]byte(ops[i].Key))
	}
	if n := w.size + resultBytes*int64(len(ops)+1); n > r.most {
		f := failf(CodeRequestTooLarge, "the results of the batch may have %d bytes, more than the %d that this host can return; send fewer operations", n, r.most)
		f.Limit = r.most
		return f
	}
	return nil
}
