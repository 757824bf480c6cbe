package client_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
)

// of yields entries whose value is their key.
func of(keys ...string) iter.Seq2[client.BulkEntry, error] {
	return func(yield func(client.BulkEntry, error) bool) {
		for _, k := range keys {
			if !yield(client.BulkEntry{Key: k, Value: []byte(k)}, nil) {
				return
			}
		}
	}
}

// chunk encodes entries whose value is their key.
func chunk(t *testing.T, keys ...string) []byte {
	t.Helper()
	var w client.ChunkWriter
	for _, k := range keys {
		must(t, w.Append(&client.BulkEntry{Key: k, Value: []byte(k)}))
	}
	return w.Bytes()
}

func numbered(from, to int) []string {
	var keys []string
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("k%06d", i))
	}
	return keys
}

func bulkFailure(t *testing.T, err error) (*client.Error, client.BulkFailure) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || e.Bulk == nil {
		t.Fatalf("error %v says nothing about a bulk load", err)
	}
	return e, *e.Bulk
}

func testBulkLoad(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("seeded")
	keys := numbered(0, 3000)
	slices.Reverse(keys)
	keys = append(keys, "<&>\u2028", "\x00\n\"\\", "🙂")
	res, err := tree.BulkLoad(ctx, of(keys...), client.BulkOptions{})
	if want := (client.BulkResult{Accepted: 3003, TotalLiveKeys: 3003}); err != nil || res != want {
		t.Fatalf("%+v, %v", res, err)
	}
	slices.Sort(keys)
	n := 0
	for e, err := range tree.Scan(ctx, client.Query{}) {
		must(t, err)
		if e.Key != keys[n] || string(e.Value) != keys[n] {
			t.Fatalf("entry %d is %q = %q", n, e.Key, e.Value)
		}
		n++
	}
	if n != len(keys) {
		t.Fatalf("%d of %d entries", n, len(keys))
	}
	_, err = tree.BulkLoad(ctx, of("x"), client.BulkOptions{})
	wantErr(t, err, client.ErrTreeNotEmpty)
	_, err = tree.DeleteRange(ctx, client.Range{}, true)
	must(t, err)
	_, err = tree.BulkLoad(ctx, of("x"), client.BulkOptions{})
	wantErr(t, err, client.ErrTreeNotEmpty)
}

func testBulkLoadRefusals(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("refused")
	_, err := tree.BulkLoad(ctx, of("b", "a", "b"), client.BulkOptions{})
	wantErr(t, err, client.ErrBulkLoadOrder)
	if e, f := bulkFailure(t, err); e.Key != "b" || f.PreviousKey != "b" {
		t.Errorf("%+v, %+v", e, f)
	}
	long := strings.Repeat("k", 1025)
	_, err = tree.BulkLoad(ctx, of("a", long), client.BulkOptions{EnforceLimits: true})
	wantErr(t, err, client.ErrKeyTooLong)
	var e *client.Error
	if !errors.As(err, &e) || e.Limit != 1024 {
		t.Errorf("%+v names no limit", e)
	}
	_, err = tree.BulkLoad(ctx, of("a", ""), client.BulkOptions{})
	wantErr(t, err, client.ErrInvalidKey)
	broken := errors.New("source broke")
	_, err = tree.BulkLoad(ctx, func(yield func(client.BulkEntry, error) bool) {
		_ = yield(client.BulkEntry{Key: "a"}, nil) && yield(client.BulkEntry{}, broken)
	}, client.BulkOptions{})
	wantErr(t, err, broken)
	if info, err := tree.Count(ctx, client.Range{}, client.CountOptions{}); err == nil && info.Total != 0 {
		t.Fatalf("refused loads left %d keys", info.Total)
	}
	res, err := tree.BulkLoad(ctx, of("a", long), client.BulkOptions{})
	if err != nil || res.Accepted != 2 || res.OverLimit != 1 || res.FirstOverLimit == nil || res.FirstOverLimit.Limit != 1024 || res.FirstOverLimit.Size != 1025 || res.FirstOverLimit.What != "key" {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = c.Tree("nothing").BulkLoad(ctx, of(), client.BulkOptions{})
	if err != nil || res.Accepted != 0 || res.TotalLiveKeys != 0 {
		t.Fatalf("of nothing: %+v, %v", res, err)
	}
}

func testBulkStream(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("streamed")
	_, err := tree.Set(ctx, "a", []byte("there"), client.SetOptions{})
	must(t, err)
	for range 2 {
		res, err := tree.BulkStream(ctx, of(numbered(0, 5000)...), client.BulkOptions{})
		if want := (client.BulkResult{Accepted: 5000, TotalLiveKeys: 5001}); err != nil || res != want {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	_, err = tree.BulkStream(ctx, of("m", "n", "c"), client.BulkOptions{})
	wantErr(t, err, client.ErrBulkLoadOrder)
	if e, f := bulkFailure(t, err); e.Key != "c" || f.PreviousKey != "n" || f.EntryIndex != 2 || f.Accepted > 2 {
		t.Errorf("%+v, %+v", e, f)
	}
}

func testBulkTTL(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("expiring")
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	res, err := tree.BulkLoad(ctx, func(yield func(client.BulkEntry, error) bool) {
		_ = yield(client.BulkEntry{Key: "later", Value: []byte("{}"), ContentType: "application/json", ExpiresAt: at}, nil) &&
			yield(client.BulkEntry{Key: "over", ExpiresAt: at.Add(-2 * time.Hour)}, nil)
	}, client.BulkOptions{})
	if err != nil || res.Accepted != 2 || res.TotalLiveKeys != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	e, err := tree.Get(ctx, "later", client.ReadOptions{})
	if err != nil || e.ContentType != "application/json" || !e.ExpiresAt.Equal(at) || string(e.Value) != "{}" {
		t.Fatalf("%+v, %v", e, err)
	}
	_, err = tree.Get(ctx, "over", client.ReadOptions{})
	wantErr(t, err, client.ErrKeyNotFound)
}

func testBulkSession(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("resumed")
	const op = "load-1"
	_, err := tree.BulkLoadState(ctx, op)
	if !errors.Is(err, client.ErrTreeNotFound) {
		wantErr(t, err, client.ErrOperationNotFound)
	}
	for _, isNew := range []bool{true, false} {
		st, created, err := tree.BeginBulkLoad(ctx, op)
		if err != nil || created != isNew || st.Status != client.BulkOpen || st.NextChunk != 0 || st.LastKey != "" || st.Started.IsZero() || st.OperationID != op {
			t.Fatalf("begin: %+v, %v, %v", st, created, err)
		}
	}
	_, _, err = tree.BeginBulkLoad(ctx, "load-2")
	wantErr(t, err, client.ErrOperationInProgress)
	_, err = tree.AppendBulkLoad(ctx, "load-2", 0, chunk(t, "a"), client.BulkOptions{})
	wantErr(t, err, client.ErrOperationNotFound)
	for i := range int64(3) {
		body := chunk(t, numbered(int(i)*500, int(i+1)*500)...)
		for range 2 {
			ack, err := tree.AppendBulkLoad(ctx, op, i, body, client.BulkOptions{})
			if want := (client.BulkAck{Chunk: i, NextChunk: i + 1, Accepted: 500}); err != nil || ack != want {
				t.Fatalf("chunk %d: %+v, %v", i, ack, err)
			}
		}
	}
	testBulkSessionRefusals(t, tree, op)
	st, err := tree.BulkLoadState(ctx, op)
	if err != nil || st.NextChunk != 3 || st.Accepted != 1500 || st.LastKey != "k001499" || st.Pending || st.Status != client.BulkOpen {
		t.Fatalf("state: %+v, %v", st, err)
	}
	for range 2 {
		st, err := tree.CommitBulkLoad(ctx, op)
		if err != nil || st.TotalLiveKeys != 1500 || st.Status != client.BulkCommitted || st.Accepted != 1500 {
			t.Fatalf("commit: %+v, %v", st, err)
		}
	}
	_, err = tree.AppendBulkLoad(ctx, op, 3, chunk(t, "z"), client.BulkOptions{})
	wantErr(t, err, client.ErrOperationMismatch)
	_, err = tree.AbortBulkLoad(ctx, op)
	wantErr(t, err, client.ErrOperationMismatch)
	_, _, err = tree.BeginBulkLoad(ctx, "load-2")
	wantErr(t, err, client.ErrTreeNotEmpty)
}

// testBulkSessionRefusals finds three chunks of 500 acknowledged.
func testBulkSessionRefusals(t *testing.T, tree *client.Tree, op string) {
	ctx := t.Context()
	for _, index := range []int64{0, 1, 4, 1 << 40} {
		_, err := tree.AppendBulkLoad(ctx, op, index, chunk(t, "x"), client.BulkOptions{})
		wantErr(t, err, client.ErrChunkOutOfSequence)
		if _, f := bulkFailure(t, err); f.ChunkIndex != index || f.ExpectedChunkIndex != 3 {
			t.Errorf("chunk %d: %+v", index, f)
		}
	}
	_, err := tree.AppendBulkLoad(ctx, op, 2, chunk(t, "x"), client.BulkOptions{})
	wantErr(t, err, client.ErrOperationMismatch)
	_, err = tree.AppendBulkLoad(ctx, op, -1, nil, client.BulkOptions{})
	wantErr(t, err, client.ErrInvalidRequest)
	for _, tc := range []struct {
		keys          []string
		key, previous string
		entry         int64
	}{
		{[]string{"x", "z", "y"}, "y", "z", 2},
		{[]string{"x", "x"}, "x", "x", 1},
		{[]string{"k001499"}, "k001499", "k001499", 0},
		{[]string{"a"}, "a", "k001499", 0},
	} {
		_, err := tree.AppendBulkLoad(ctx, op, 3, chunk(t, tc.keys...), client.BulkOptions{})
		wantErr(t, err, client.ErrBulkLoadOrder)
		if e, f := bulkFailure(t, err); e.Key != tc.key || f.PreviousKey != tc.previous || f.EntryIndex != tc.entry || f.ChunkIndex != 3 {
			t.Errorf("%v: %+v, %+v", tc.keys, e, f)
		}
	}
	_, err = tree.Get(ctx, "x", client.ReadOptions{})
	wantErr(t, err, client.ErrKeyNotFound)
}

func testBulkAbort(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("aborted")
	_, _, err := tree.BeginBulkLoad(ctx, "x")
	must(t, err)
	_, err = tree.AppendBulkLoad(ctx, "x", 0, chunk(t, "a", "b"), client.BulkOptions{})
	must(t, err)
	for range 2 {
		st, err := tree.AbortBulkLoad(ctx, "x")
		if err != nil || st.Status != client.BulkAborted || st.Accepted != 2 || st.NextChunk != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	_, err = tree.CommitBulkLoad(ctx, "x")
	wantErr(t, err, client.ErrOperationMismatch)
	if st, created, err := tree.BeginBulkLoad(ctx, "x"); err != nil || created || st.Status != client.BulkAborted {
		t.Fatalf("begin again: %+v, %v, %v", st, created, err)
	}
	n, err := tree.Count(ctx, client.Range{}, client.CountOptions{})
	if err != nil || n.Total != 2 {
		t.Fatalf("%+v, %v: what was loaded stays", n, err)
	}
	for _, id := range []string{"", ".", ".."} {
		_, err := tree.BulkLoadState(ctx, id)
		wantErr(t, err, client.ErrInvalidRequest)
	}
}

func testDiagnostics(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("examined")
	_, err := tree.Diagnostics(ctx, false)
	wantErr(t, err, client.ErrTreeNotFound)
	_, err = tree.Create(ctx, client.CreateOptions{ShardCount: 2})
	must(t, err)
	fill(t, tree, 100)
	_, err = tree.Delete(ctx, "k00007", client.DeleteOptions{})
	must(t, err)
	d, err := tree.Diagnostics(ctx, true)
	must(t, err)
	if d.Tree != "examined" || !d.Deep || d.Incomplete || d.BulkPending || d.SampledAt.IsZero() || len(d.Shards) != 2 {
		t.Fatalf("%+v", d)
	}
	var sum client.DiagnosticsTotals
	slots := 0
	for _, s := range d.Shards {
		sum.LiveKeys, sum.Tombstones, sum.Bytes, sum.Shards = sum.LiveKeys+s.LiveKeys, sum.Tombstones+s.Tombstones, sum.Bytes+s.Bytes, sum.Shards+1
		slots += s.Slots
	}
	if sum != d.Totals || sum.LiveKeys != 99 || sum.Tombstones != 1 || sum.Bytes == 0 || slots != 4096 {
		t.Fatalf("totals %+v, the shards sum up to %+v and %d slots", d.Totals, sum, slots)
	}
}
