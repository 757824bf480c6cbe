package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
)

func TestOperationIDsDiffer(t *testing.T) {
	if a, b := client.NewOperationID(), client.NewOperationID(); a == b || len(a) < 20 || len(a) > 256 {
		t.Fatalf("%q and %q", a, b)
	}
}

func testAtomic(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("accounts")
	_, err := tree.Create(ctx, client.CreateOptions{ShardCount: 8})
	must(t, err)
	var ops []client.Op
	for i := range 16 {
		ops = append(ops, client.Op{Key: fmt.Sprintf("account/%02d", i), Value: []byte("100"), IfAbsent: true, TTL: time.Hour})
	}
	results, err := tree.Atomic(ctx, ops, client.AtomicOptions{OperationID: "opening"})
	must(t, err)
	for i, r := range results {
		if r.Key != ops[i].Key || r.Err() != nil || r.Existed || r.Version != results[0].Version {
			t.Fatalf("result %d: %+v", i, r)
		}
	}
	again, err := tree.Atomic(ctx, ops, client.AtomicOptions{OperationID: "opening"})
	if err != nil || again[3] != results[3] {
		t.Fatalf("a repetition: %+v, %v", again, err)
	}
	_, err = tree.Atomic(ctx, ops, client.AtomicOptions{})
	var e *client.Error
	if !errors.As(err, &e) || e.Code != client.ErrVersionMismatch || e.Current != results[0].Version || e.Key != "account/00" || e.Batch == nil ||
		e.Batch.Count != 16 || e.Batch.Failed[5] != (client.FailedCondition{Index: 5, Key: "account/05", Version: results[0].Version}) {
		t.Fatalf("a second batch: %v, %+v", err, e)
	}
	results, err = tree.Atomic(ctx, []client.Op{
		{Key: "account/00", Value: []byte("70"), IfVersion: results[0].Version}, {Key: "account/01", Value: []byte("130")},
		{Key: "account/02", Delete: true}, {Key: "none", Delete: true},
	}, client.AtomicOptions{})
	must(t, err)
	for i, existed := range []bool{true, true, true, false} {
		if results[i].Existed != existed {
			t.Errorf("result %d: %+v", i, results[i])
		}
	}
	n, err := tree.Count(ctx, client.Range{Prefix: "account/"}, client.CountOptions{})
	if err != nil || n.Total != 15 {
		t.Fatalf("%d accounts, %v", n.Total, err)
	}
	got, err := tree.GetMany(ctx, []string{"account/00", "account/03"}, client.ReadOptions{})
	if err != nil || string(got[0].Value) != "70" || !got[0].ExpiresAt.IsZero() || got[1].ExpiresAt.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
}

func testAtomicRefusals(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("t")
	_, err := tree.Atomic(ctx, []client.Op{{Key: "a"}, {Key: "b"}, {Key: "a", Delete: true}}, client.AtomicOptions{})
	wantErr(t, err, client.ErrInvalidArgument)
	_, err = tree.Batch(ctx, client.Batch{Ops: []client.Op{{Key: "a"}}, OperationID: "x"})
	wantErr(t, err, client.ErrInvalidRequest)
	_, err = tree.Atomic(ctx, []client.Op{{Key: "a", Value: []byte("1")}}, client.AtomicOptions{OperationID: "x"})
	must(t, err)
	_, err = tree.Atomic(ctx, []client.Op{{Key: "b"}}, client.AtomicOptions{OperationID: "x"})
	wantErr(t, err, client.ErrOperationMismatch)
	_, err = tree.Atomic(ctx, []client.Op{{Key: "b", IfAbsent: true}, {Key: "a", IfAbsent: true}}, client.AtomicOptions{OperationID: "y"})
	wantErr(t, err, client.ErrVersionMismatch)
	_, err = tree.Delete(ctx, "a", client.DeleteOptions{})
	must(t, err)
	// What the name has come to stands, though the condition would hold by now.
	_, err = tree.Atomic(ctx, []client.Op{{Key: "b", IfAbsent: true}, {Key: "a", IfAbsent: true}}, client.AtomicOptions{OperationID: "y"})
	wantErr(t, err, client.ErrVersionMismatch)
	_, err = tree.Get(ctx, "b", client.ReadOptions{})
	wantErr(t, err, client.ErrKeyNotFound)
}
