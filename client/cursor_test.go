package client_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/latticekv/lattice/client"
)

func filled(t *testing.T, c *client.Client, n int) *client.Tree {
	t.Helper()
	tree := c.Tree("t")
	var ops []client.Op
	for i := range n {
		ops = append(ops, client.Op{Key: fmt.Sprintf("k%03d", i), Value: []byte(fmt.Sprint("v", i))})
	}
	_, err := tree.Batch(t.Context(), client.Batch{Ops: ops})
	must(t, err)
	return tree
}

func openCursor(t *testing.T, tree *client.Tree, q client.CursorQuery) *client.Cursor {
	t.Helper()
	c, err := tree.OpenCursor(t.Context(), q)
	must(t, err)
	if c.ID() == "" || c.ExpiresAt().IsZero() || (c.SnapshotVersion() != "") != q.Snapshot {
		t.Fatalf("opened %q until %s, snapshot %q", c.ID(), c.ExpiresAt(), c.SnapshotVersion())
	}
	return c
}

func cursorKeys(t *testing.T, c *client.Cursor, limit int) []string {
	t.Helper()
	var keys []string
	for e, err := range c.All(t.Context(), limit) {
		must(t, err)
		keys = append(keys, e.Key)
	}
	return keys
}

func numberedKeys(from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("k%03d", i))
	}
	return keys
}

func testCursor(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), filled(t, c, 100)
	cur := openCursor(t, tree, client.CursorQuery{Kind: client.CursorEntries, Range: client.Range{Start: "k010", End: "k095"}, Reverse: true})
	want := numberedKeys(10, 95)
	slices.Reverse(want)
	p, err := cur.Next(ctx, 40)
	if err != nil || p.Page != 1 || len(p.Entries) != 40 || !p.HasMore || p.Deleted != nil || string(p.Entries[0].Value) != "v94" {
		t.Fatalf("first page %+v, %v", p, err)
	}
	// Another process, which did not get the first page.
	again, err := tree.Cursor(cur.ID(), 0).Next(ctx, 7)
	if err != nil || again.Page != 1 || len(again.Entries) != 40 || again.Entries[39].Key != p.Entries[39].Key {
		t.Fatalf("the page again: %+v, %v", again, err)
	}
	if got := cursorKeys(t, cur, 10); !slices.Equal(got, want[40:]) {
		t.Fatalf("the rest is %q", got)
	}
	if cur.LastPage() != 6 {
		t.Fatalf("page %d was the last", cur.LastPage())
	}
	unknown := tree.Cursor(cur.ID(), -1)
	p, err = unknown.Next(ctx, 0)
	if err != nil || p.Page != 7 || len(p.Entries) != 0 || p.HasMore || unknown.LastPage() != 7 {
		t.Fatalf("past the end: %+v, %v", p, err)
	}
	must(t, cur.Close(ctx))
	must(t, cur.Close(ctx))
	_, err = cur.Next(ctx, 1)
	wantErr(t, err, client.ErrCursorNotFound)
	keys := openCursor(t, tree, client.CursorQuery{Kind: client.CursorKeys, Range: client.Range{Prefix: "k00"}})
	for e, err := range keys.All(ctx, 3) {
		must(t, err)
		if e.Value != nil || e.Version == "" {
			t.Fatalf("a key with a value: %+v", e)
		}
		break // leaving early is no end
	}
	if got := cursorKeys(t, keys, 3); !slices.Equal(got, numberedKeys(3, 10)) {
		t.Fatalf("the rest is %q", got)
	}
}

func testSnapshotCursor(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), filled(t, c, 50)
	cur := openCursor(t, tree, client.CursorQuery{Kind: client.CursorEntries, Snapshot: true})
	p, err := cur.Next(ctx, 20)
	must(t, err)
	_, err = tree.DeleteRange(ctx, client.Range{Start: "k025"}, false)
	must(t, err)
	_, err = tree.Atomic(ctx, []client.Op{{Key: "k022", Value: []byte("new")}, {Key: "k022x", Value: []byte("new")}}, client.AtomicOptions{})
	must(t, err)
	n := len(p.Entries)
	for e, err := range cur.All(ctx, 7) {
		must(t, err)
		if e.Key != fmt.Sprintf("k%03d", n) || string(e.Value) != fmt.Sprint("v", n) {
			t.Fatalf("entry %d is %q = %q", n, e.Key, e.Value)
		}
		n++
	}
	if n != 50 {
		t.Fatalf("%d entries", n)
	}
	must(t, cur.Close(ctx))
}

func testDeleteCursor(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), filled(t, c, 50)
	cur := openCursor(t, tree, client.CursorQuery{Kind: client.CursorDeleteRange, Range: client.Range{Start: "k010"}})
	deleted := int64(0)
	for more := true; more; {
		p, err := cur.Next(ctx, 15)
		must(t, err)
		if p.Deleted == nil || p.Entries != nil {
			t.Fatalf("page %+v", p)
		}
		deleted, more = deleted+*p.Deleted, p.HasMore
	}
	if got := scanKeys(t, tree, client.Query{}); deleted != 40 || !slices.Equal(got, numberedKeys(0, 10)) {
		t.Fatalf("%d deleted, %q are left", deleted, got)
	}
	all := openCursor(t, tree, client.CursorQuery{Kind: client.CursorDeleteRange, All: true})
	for _, err := range all.All(ctx, 0) {
		wantErr(t, err, client.ErrInvalidRequest)
	}
	if got := scanKeys(t, tree, client.Query{}); len(got) != 0 {
		t.Fatalf("%q are left", got)
	}
}

func testCursorRefusals(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), filled(t, c, 3)
	for _, q := range []client.CursorQuery{
		{Kind: client.CursorKeys, Range: client.Range{Prefix: "a", End: "b"}}, {Kind: client.CursorDeleteRange},
		{Kind: client.CursorDeleteRange, All: true, Range: client.Range{Prefix: "a"}}, {Kind: client.CursorKeys, All: true},
	} {
		_, err := tree.OpenCursor(ctx, q)
		wantErr(t, err, client.ErrInvalidRequest)
	}
	_, err := tree.OpenCursor(ctx, client.CursorQuery{Kind: client.CursorKeys, Range: client.Range{Prefix: "\xff"}})
	wantErr(t, err, client.ErrInvalidKey)
	for _, q := range []client.CursorQuery{{}, {Kind: "values"}, {Kind: client.CursorDeleteRange, All: true, Reverse: true}, {Kind: client.CursorDeleteRange, All: true, Snapshot: true}} {
		_, err := tree.OpenCursor(ctx, q)
		wantErr(t, err, client.ErrInvalidArgument)
	}
	_, err = c.Tree("none").OpenCursor(ctx, client.CursorQuery{Kind: client.CursorKeys})
	wantErr(t, err, client.ErrTreeNotFound)
	cur := openCursor(t, tree, client.CursorQuery{Kind: client.CursorKeys})
	for _, limit := range []int{-1, 10_001} {
		_, err = cur.Next(ctx, limit)
		wantErr(t, err, client.ErrInvalidRequest)
	}
	_, err = tree.Cursor(cur.ID(), 1).Next(ctx, 1)
	wantErr(t, err, client.ErrInvalidArgument)
	for _, id := range []string{"0123", "a/b", "..x", "00000000000000000000000000000000"} {
		_, err = tree.Cursor(id, 0).Next(ctx, 1)
		wantErr(t, err, client.ErrCursorNotFound)
		must(t, tree.Cursor(id, 0).Close(ctx))
	}
	for _, id := range []string{"", ".", ".."} {
		_, err = tree.Cursor(id, 0).Next(ctx, 1)
		wantErr(t, err, client.ErrInvalidRequest)
	}
}
