package linear

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/tests/history"
)

// httpStore drives a tree through a process of the service. It takes the
// service at its word: what is answered without outcomeUnknown was not done.
type httpStore struct {
	tree *client.Tree
	// complain hears of answers that no fault explains.
	complain func(error)
}

var _ history.Store = httpStore{}

// newHTTPStore returns a store over a service. Nothing is sent twice: a
// repetition after a lost reply would be an operation that nobody recorded.
func newHTTPStore(url string, complain func(error)) (httpStore, error) {
	c, err := client.New(url, client.Options{Retry: client.RetryPolicy{Max: -1}})
	if err != nil {
		return httpStore{}, err
	}
	return httpStore{tree: c.Tree(treeName), complain: complain}, nil
}

// create makes the tree.
func (s httpStore) create(ctx context.Context) error {
	_, err := s.tree.Create(ctx, client.CreateOptions{})
	return err
}

// failed files an error of an operation.
func (s httpStore) failed(op *history.Op, err error) {
	if answer := (*client.Error)(nil); errors.As(err, &answer) && answer.Code == client.ErrVersionMismatch {
		op.Mismatch, op.Version = true, answer.Current
		return
	}
	op.Unknown = s.open(err)
	op.Void = !op.Unknown
}

// open reports whether an error leaves it open if a write was carried out.
func (s httpStore) open(err error) bool {
	if answer := (*client.Error)(nil); errors.As(err, &answer) {
		if answer.Status != http.StatusServiceUnavailable {
			s.complain(err)
		}
		return answer.OutcomeUnknown
	}
	if errors.Is(err, client.ErrProtocol) || errors.Is(err, client.ErrDigest) {
		s.complain(err)
	}
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// Do implements history.Store.
func (s httpStore) Do(ctx context.Context, op *history.Op) {
	switch op.Kind {
	case history.Get:
		s.get(ctx, op)
	case history.GetOrSet:
		s.getOrSet(ctx, op)
	case history.Delete:
		existed, err := s.tree.Delete(ctx, op.Key, client.DeleteOptions{IfVersion: op.IfVersion})
		if op.Found = existed; err != nil {
			s.failed(op, err)
		}
	default:
		r, err := s.tree.Set(ctx, op.Key, []byte(op.Value), client.SetOptions{IfAbsent: op.IfAbsent, IfVersion: op.IfVersion})
		if op.Found, op.Version = !r.Created, r.Version; err != nil {
			s.failed(op, err)
		}
	}
}

func (s httpStore) get(ctx context.Context, op *history.Op) {
	e, err := s.tree.Get(ctx, op.Key, client.ReadOptions{})
	switch {
	case err == nil:
		op.Seen, op.Version = string(e.Value), e.Version
	case !errors.Is(err, client.ErrKeyNotFound):
		s.failed(op, err)
	}
}

func (s httpStore) getOrSet(ctx context.Context, op *history.Op) {
	e, created, err := s.tree.GetOrSet(ctx, op.Key, []byte(op.Value), client.SetOptions{})
	if err != nil {
		s.failed(op, err)
		return
	}
	op.Found, op.Version = !created, e.Version
	if !created {
		op.Seen = string(e.Value)
	}
}

// Batch implements history.Store.
func (s httpStore) Batch(ctx context.Context, ops []history.Op) {
	batch := client.Batch{Ops: make([]client.Op, len(ops))}
	for i, op := range ops {
		batch.Ops[i] = client.Op{Key: op.Key, IfAbsent: op.IfAbsent, IfVersion: op.IfVersion, Delete: op.Kind == history.Delete}
		if op.Kind != history.Delete {
			batch.Ops[i].Value = []byte(op.Value)
		}
	}
	results, err := s.tree.Batch(ctx, batch)
	if err != nil {
		s.open(err)
	}
	for i := range ops {
		op := &ops[i]
		switch {
		case err != nil:
			// The error is about the batch: a part of it may have been done.
			op.Unknown = true
		case errors.Is(results[i].Err(), client.ErrVersionMismatch):
			op.Mismatch, op.Version = true, results[i].Version
		default:
			op.Found = results[i].Existed
			if op.Kind != history.Delete {
				op.Version = results[i].Version
			}
		}
	}
}

// Look implements history.Store.
func (s httpStore) Look(ctx context.Context, v *history.Survey) bool {
	found, err := s.tree.GetMany(ctx, v.Keys, client.ReadOptions{})
	if err != nil {
		s.open(err)
		return false
	}
	v.Seen = make([]string, len(v.Keys))
	for i, key := range v.Keys {
		if len(found) > 0 && found[0].Key == key {
			v.Seen[i] = string(found[0].Value)
			found = found[1:]
		}
	}
	return true
}

// Count implements history.Store. The keys share a prefix that ends in a slash.
func (s httpStore) Count(ctx context.Context, v *history.Survey) bool {
	prefix, _, _ := strings.Cut(v.Keys[0], "/")
	c, err := s.tree.Count(ctx, client.Range{Prefix: prefix + "/"}, client.CountOptions{})
	if err != nil {
		s.open(err)
		return false
	}
	v.Total = int(c.Total)
	return true
}
