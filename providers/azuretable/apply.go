package azuretable

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// Apply implements store.Table. One exchange, never repeated unless there was no
// table, which it creates then.
func (t *Table) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	if err := store.CheckContext(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckOps(partition, ops); err != nil {
		return nil, err
	}
	for i, op := range ops {
		if op.IfMatch != "" && !plausible(op.IfMatch) {
			return nil, refuse(partition, i, op)
		}
	}
	var etags []store.ETag
	err := t.place.Write(ctx, func() (err error) {
		if len(ops) == 1 {
			etags, err = t.applyOne(ctx, partition, ops[0])
		} else {
			etags, err = t.applyAll(ctx, partition, ops)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("apply to %s: %w", partition, err)
	}
	return etags, nil
}

// plausible reports whether the service can have issued the ETag and a header can
// carry it. It answers 400 to others.
func plausible(etag store.ETag) bool {
	if len(etag) < 4 || len(etag) > 256 || etag[:3] != `W/"` || etag[len(etag)-1] != '"' {
		return false
	}
	for _, c := range []byte(etag[3 : len(etag)-1]) {
		if c <= ' ' || c >= 0x7f || c == '"' {
			return false
		}
	}
	return true
}

// refuse is the answer to an ETag that no row here ever had.
func refuse(partition string, i int, op store.Op) error {
	return fmt.Errorf("apply to %s: %w", partition, &store.OpError{
		Index: i, Key: op.Key,
		Err: fmt.Errorf("%w: not an ETag of this store", store.ErrPrecondition),
	})
}

// applyOne sends a transaction of one operation as a plain entity request, which
// costs the service and us about half.
func (t *Table) applyOne(ctx context.Context, partition string, op store.Op) ([]store.ETag, error) {
	r := request{path: t.entityPath(partition, op.Key), contentType: contentJSON, ifMatch: string(op.IfMatch)}
	switch op.Kind {
	case store.OpInsert:
		r.method, r.path = http.MethodPost, "/"+t.name
		r.body = appendEntity(make([]byte, 0, entitySize(partition, op)), partition, op)
	case store.OpReplace:
		r.method = http.MethodPut
		r.body = appendEntity(make([]byte, 0, entitySize(partition, op)), partition, op)
	case store.OpDelete:
		r.method, r.contentType = http.MethodDelete, ""
		if r.ifMatch == "" {
			r.ifMatch = "*"
		}
	}
	answer, err := t.wire.write(ctx, r)
	if err != nil {
		return nil, nameOp(err, op)
	}
	defer answer.release()
	if answer.status != http.StatusNoContent {
		return nil, fmt.Errorf("%w: answer with status %d", store.ErrOutcomeUnknown, answer.status)
	}
	if op.Kind == store.OpDelete {
		return []store.ETag{""}, nil
	}
	if answer.etag == "" {
		return nil, fmt.Errorf("%w: answer without an ETag", store.ErrOutcomeUnknown)
	}
	return []store.ETag{store.ETag(answer.etag)}, nil
}

// nameOp turns the refusal of a plain entity request into that of operation 0.
func nameOp(err error, op store.Op) error {
	var refused *azhttp.StatusError
	if !errors.As(err, &refused) {
		return err
	}
	return opError(refused, 0, op)
}

// applyAll sends an entity-group transaction.
func (t *Table) applyAll(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	answer, err := t.wire.write(ctx, request{
		method:      http.MethodPost,
		path:        "/$batch",
		contentType: "multipart/mixed; boundary=batch_" + t.boundary,
		body:        t.appendTransaction(make([]byte, 0, t.transactionSize(partition, ops)), partition, ops),
	})
	if err != nil {
		return nil, err
	}
	defer answer.release()
	if answer.status != http.StatusAccepted {
		return nil, fmt.Errorf("%w: answer with status %d to a transaction", store.ErrOutcomeUnknown, answer.status)
	}
	return readTransaction(answer.contentType, answer.body(), ops)
}
