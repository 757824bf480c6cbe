package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/latticekv/lattice/core/tree"
)

// batchGet answers POST …/batch-get.
func (s *Server) batchGet(w http.ResponseWriter, r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	read, err := r.readOptions()
	if err != nil {
		return err
	}
	body, err := s.readBody(w, r, s.jsonLimit())
	if err != nil {
		return err
	}
	keys, err := s.parseKeys(body)
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	items, err := t.GetMany(s.reading(r.Context(), r), keys, read)
	if err != nil {
		return err
	}
	if err := s.checkTotal(items); err != nil {
		return err
	}
	return s.writePage(w, r, entriesPage(items, f, false, ""))
}

// checkTotal refuses an answer that would not fit.
func (s *Server) checkTotal(items []tree.Item) error {
	limit := bodyLimit{s.cfg.MaxBatchGetBytes, CodeRequestTooLarge, "the answer"}
	if bytesOf(items) > limit.bytes {
		return limit.exceeded()
	}
	return nil
}

// bytesOf counts keys and values.
func bytesOf(items []tree.Item) int64 {
	total := int64(0)
	for i := range items {
		total += int64(len(items[i].Key) + len(items[i].Value))
	}
	return total
}

func (s *Server) parseKeys(body []byte) ([]string, error) {
	var keys []string
	given := false
	size := sizer{limit: s.opts.MaxBatchBytes}
	err := parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (bool, error) {
			if name != "keys" {
				return false, nil
			}
			given = true
			return true, p.array(name, func(path string) error {
				key, err := p.text(path)
				if err != nil {
					return err
				}
				keys = append(keys, key)
				return errors.Join(s.checkOperations(len(keys)), checkKey(path, key, s.opts.MaxKeyLength), size.add(len(key)))
			})
		})
	})
	if err == nil && !given {
		err = argument("keys", "missing")
	}
	return keys, err
}

// checkOperations bounds the operations, or keys, of a batch.
func (s *Server) checkOperations(n int) error {
	if n <= s.opts.MaxBatchOperations {
		return nil
	}
	f := failf(CodeRequestTooLarge, "the batch has more than %d operations", s.opts.MaxBatchOperations)
	f.Limit = int64(s.opts.MaxBatchOperations)
	return f
}

// sizer adds up the keys and values of a batch.
type sizer struct{ total, limit int64 }

func (z *sizer) add(n int) error {
	if z.total += int64(n); z.total <= z.limit {
		return nil
	}
	return bodyLimit{z.limit, CodeRequestTooLarge, "the batch"}.exceeded()
}

// resultBody is the outcome of one operation.
type resultBody struct {
	Key    string `json:"key"`
	Status string `json:"status"`
	// Version is the new one of a set, or the one in the way of a condition.
	Version string `json:"version,omitempty"`
	// Existed is given for deletes, and in an atomic batch for sets too.
	Existed *bool `json:"existed,omitempty"`
}

type resultsBody struct {
	Results []resultBody `json:"results"`
}

// batch answers POST …/batch.
func (s *Server) batch(w http.ResponseWriter, r *request) error {
	body, err := s.readBody(w, r, s.jsonLimit())
	if err != nil {
		return err
	}
	req, err := s.parseBatch(body)
	if err != nil {
		return err
	}
	if err := r.resultsFit(req.ops); err != nil {
		return err
	}
	t, err := s.openToWrite(r, sets(req.ops))
	if err != nil {
		return err
	}
	results, err := s.perform(r.Context(), t, &req)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, newResults(&req, results))
}

func (s *Server) perform(ctx context.Context, t handle, req *batchRequest) ([]tree.BatchResult, error) {
	if !req.atomic {
		return t.Batch(ctx, req.ops)
	}
	results, err := t.AtomicBatch(ctx, req.ops, req.operationID)
	if err != nil {
		err = &batchError{err}
	}
	s.cfg.ObserveAtomic(atomicOutcome(err))
	return results, err
}

// The outcomes of an atomic batch that are no codes.
const (
	outcomeCommitted = "committed"
	outcomeUnknown   = "unknown"
)

// atomicOutcome names what became of an atomic batch: committed, unknown, or the
// code for which nothing was written.
func atomicOutcome(err error) string {
	if err == nil {
		return outcomeCommitted
	}
	p := classify(err)
	if p.OutcomeUnknown {
		return outcomeUnknown
	}
	return string(p.Code)
}

// batchError is an error of an atomic batch, in whose words some categories say
// something else than elsewhere.
type batchError struct{ err error }

// Error implements error.
func (e *batchError) Error() string { return "atomic batch: " + e.err.Error() }

// Unwrap returns the cause.
func (e *batchError) Unwrap() error { return e.err }

func sets(ops []tree.BatchOp) bool {
	for i := range ops {
		if !ops[i].Delete {
			return true
		}
	}
	return false
}

func newResults(req *batchRequest, results []tree.BatchResult) resultsBody {
	body := resultsBody{Results: make([]resultBody, len(results))}
	for i, res := range results {
		body.Results[i] = newResult(&req.ops[i], res)
		if req.atomic {
			body.Results[i].Existed = &res.Existed
		}
	}
	return body
}

func newResult(op *tree.BatchOp, res tree.BatchResult) resultBody {
	out := resultBody{Key: op.Key, Status: "ok"}
	if res.Err != nil {
		p := classify(res.Err)
		out.Status = string(p.Code)
		if !p.current.IsZero() {
			out.Version = p.current.String()
		}
		return out
	}
	if op.Delete {
		out.Existed = &res.Existed
		return out
	}
	out.Version = res.Version.String()
	return out
}
