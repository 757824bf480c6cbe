// Package client talks to a Lattice service over its HTTP API.
//
// A [Client] belongs to one service; [Client.Tree] gives a handle of one named,
// sorted key space:
//
//	c, err := client.New("http://127.0.0.1:8080", client.Options{})
//	users := c.Tree("users")
//	res, err := users.Set(ctx, "alice", []byte("hello"), client.SetOptions{})
//	entry, err := users.Get(ctx, "alice", client.ReadOptions{})
//	for entry, err := range users.Scan(ctx, client.Query{Range: client.Range{Prefix: "a"}}) {
//		…
//	}
//
// Keys are non-empty UTF-8 strings and may hold anything, "/" and NUL
// included; values are opaque bytes. A nil error of a write means that it is
// durable. What the service refuses comes back as an [*Error], which matches
// its [Code] with errors.Is:
//
//	if errors.Is(err, client.ErrKeyNotFound) { … }
//
// Several keys change together, or not at all, with [Tree.Atomic]. A [Cursor]
// walks a range in pages with a bookmark that the service keeps, and shows one
// moment of the tree if it is opened with a snapshot.
//
// Calls are repeated, within [RetryPolicy] and the caller's context, when the
// service is busy or the connection fails, and only when repeating cannot do
// harm: see [RetryPolicy] for the rules. Everything here but a Cursor is
// safe for concurrent use.
package client
