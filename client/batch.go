package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// GetMany returns those of the keys that exist, in the order asked for, all
// from one consistent view with respect to atomic batches.
func (t *Tree) GetMany(ctx context.Context, keys []string, o ReadOptions) ([]Entry, error) {
	if o.IfNoneMatch != "" {
		return nil, fmt.Errorf("%w: GetMany takes no IfNoneMatch", ErrInvalidRequest)
	}
	for i, k := range keys {
		if err := checkKey(k); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
	}
	q, err := t.call(http.MethodPost, "/batch-get", repeatAlways)
	if err != nil {
		return nil, err
	}
	if err := o.apply(q); err != nil {
		return nil, err
	}
	if keys == nil {
		keys = []string{}
	}
	if err := q.jsonBody(map[string][]string{"keys": keys}); err != nil {
		return nil, err
	}
	var out struct {
		Entries []jsonEntry `json:"entries"`
	}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return nil, err
	}
	return entries(out.Entries), nil
}

func entries(js []jsonEntry) []Entry {
	es := make([]Entry, len(js))
	for i, j := range js {
		es[i] = j.entry()
	}
	return es
}

// Op is one operation of a Batch: a set unless Delete is true. A set takes its
// value from JSON if that is not nil, else from Value.
type Op struct {
	Delete bool
	Key    string
	Value  []byte
	// JSON is stored compact.
	JSON json.RawMessage
	// Text says that Value is UTF-8 text; it is then stored as such.
	Text bool
	// TTL is the time to live of a set; zero is for ever.
	TTL time.Duration
	// IfVersion and IfAbsent are conditions, as in SetOptions. A delete takes
	// only IfVersion.
	IfVersion string
	IfAbsent  bool
}

// jsonOp is an Op as the service reads it.
type jsonOp struct {
	Op        string          `json:"op"`
	Key       string          `json:"key"`
	Value     *[]byte         `json:"value,omitempty"`
	Text      *string         `json:"text,omitempty"`
	JSON      json.RawMessage `json:"json,omitempty"`
	TTL       string          `json:"ttl,omitempty"`
	IfVersion string          `json:"ifVersion,omitempty"`
	IfAbsent  bool            `json:"ifAbsent,omitempty"`
}

func (o *Op) json() (jsonOp, error) {
	j := jsonOp{Op: "set", Key: o.Key, IfVersion: o.IfVersion, IfAbsent: o.IfAbsent}
	if err := checkKey(o.Key); err != nil {
		return j, err
	}
	if o.TTL < 0 {
		return j, fmt.Errorf("%w: TTL is negative", ErrInvalidRequest)
	}
	if o.Delete {
		if o.Value != nil || o.JSON != nil || o.TTL != 0 || o.IfAbsent {
			return j, fmt.Errorf("%w: a delete takes only a key and IfVersion", ErrInvalidRequest)
		}
		j.Op = "delete"
		return j, nil
	}
	if o.TTL > 0 {
		j.TTL = o.TTL.String()
	}
	return j, o.fillValue(&j)
}

func (o *Op) fillValue(j *jsonOp) error {
	switch {
	case o.JSON != nil && (o.Value != nil || o.Text):
		return fmt.Errorf("%w: JSON excludes Value and Text", ErrInvalidRequest)
	case o.JSON != nil:
		if !json.Valid(o.JSON) {
			return fmt.Errorf("%w: JSON is malformed", ErrInvalidRequest)
		}
		j.JSON = o.JSON
	case o.Text:
		s := string(o.Value)
		if !validText(s) {
			return fmt.Errorf("%w: Text is not UTF-8", ErrInvalidRequest)
		}
		j.Text = &s
	default:
		v := o.Value
		if v == nil {
			v = []byte{}
		}
		j.Value = &v
	}
	return nil
}

// Batch is a set of operations for one call.
type Batch struct {
	Ops []Op
	// Atomic makes the batch all or nothing: a condition that fails is an
	// error, ErrVersionMismatch, and nothing is written. Its keys must differ.
	Atomic bool
	// OperationID lets a repetition of an atomic batch inherit the outcome of the
	// first attempt; see AtomicOptions.
	OperationID string
}

// OpResult answers one Op.
type OpResult struct {
	Key string `json:"key"`
	// Status is "ok", or the Code of what went wrong with this key.
	Status string `json:"status"`
	// Version is the new version, or the present one after a mismatch.
	Version string `json:"version"`
	// Existed says whether a deleted key was there; in an atomic batch also
	// whether one that is set was.
	Existed bool `json:"existed"`
	// Detail is for people, when the service gives it.
	Detail string `json:"detail"`
}

// Err returns nil if the operation was carried out, else what its Status says.
func (r OpResult) Err() error {
	switch {
	case r.Status == "ok":
		return nil
	case r.Detail != "":
		return fmt.Errorf("%w: %s", Code(r.Status), r.Detail)
	}
	return Code(r.Status)
}

// repeatable says how often a batch may be sent. With an operation id the
// service recognises a repetition of an atomic batch.
func (b *Batch) repeatable() repeatable {
	if b.Atomic && b.OperationID != "" {
		return repeatAlways
	}
	for i := range b.Ops {
		if b.Ops[i].IfAbsent || b.Ops[i].IfVersion != "" {
			if b.Atomic {
				return repeatRefused
			}
			return repeatUnsent
		}
	}
	return repeatAlways
}

// Batch carries out operations in one request and returns one result for
// each, in order. Without Atomic each key stands alone: look at every
// OpResult.Err. The service bounds a batch to 10,000 operations and 4 MiB by
// default.
func (t *Tree) Batch(ctx context.Context, b Batch) ([]OpResult, error) {
	if b.OperationID != "" && !b.Atomic {
		return nil, fmt.Errorf("%w: only an atomic batch has an OperationID", ErrInvalidRequest)
	}
	ops := make([]jsonOp, len(b.Ops))
	for i := range b.Ops {
		j, err := b.Ops[i].json()
		if err != nil {
			return nil, fmt.Errorf("operations[%d]: %w", i, err)
		}
		ops[i] = j
	}
	q, err := t.call(http.MethodPost, "/batch", b.repeatable())
	if err != nil {
		return nil, err
	}
	err = q.jsonBody(struct {
		Operations  []jsonOp `json:"operations"`
		Atomic      bool     `json:"atomic,omitempty"`
		OperationID string   `json:"operationId,omitempty"`
	}{ops, b.Atomic, b.OperationID})
	if err != nil {
		return nil, err
	}
	var out struct {
		Results []OpResult `json:"results"`
	}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return nil, err
	}
	return out.Results, checkResults(b.Ops, out.Results)
}

// checkResults refuses an answer that does not match the request, since a
// result would be taken for another key's.
func checkResults(ops []Op, results []OpResult) error {
	if len(results) != len(ops) {
		return fmt.Errorf("%w: %d results for %d operations", ErrProtocol, len(results), len(ops))
	}
	for i := range ops {
		if results[i].Key != ops[i].Key || results[i].Status == "" {
			return fmt.Errorf("%w: results[%d] does not answer operations[%d]", ErrProtocol, i, i)
		}
	}
	return nil
}

// opOverhead is what the JSON of an operation takes beside its key, value and
// conditions, generously.
const opOverhead = 96

// Size returns an upper bound of the bytes that the operation takes in the
// body of a batch.
func (o *Op) Size() int {
	n := opOverhead + escapedLen(o.Key) + len(o.IfVersion) + len(o.JSON)
	if o.TTL > 0 {
		n += 32
	}
	if o.Text {
		return n + escapedBytes(o.Value)
	}
	return n + (len(o.Value)+2)/3*4
}
