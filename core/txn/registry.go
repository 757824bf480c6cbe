package txn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

var (
	// ErrLost: the row is not what the caller believed; somebody else changed it.
	ErrLost = errors.New("the transaction was changed by somebody else")
	// ErrNoRow: there is no row, or not any more.
	ErrNoRow = errors.New("no such transaction")
)

// Registry reads and changes the rows of transactions. It is safe for concurrent
// use.
type Registry struct {
	table store.Table
	clock clock.Source

	mu sync.Mutex
	// known are outcomes that will not change, the newest half of them twice as
	// long: when recent is full it takes the place of former.
	recent, former map[record.ID]Outcome
	// done are rows that every shard has been told of by this instance, oldest
	// first, by partition: a later batch takes them away.
	done map[string][]doneRow
}

// doneRow is a row that is of no use after its retention.
type doneRow struct {
	id   ID
	etag store.ETag
	// updated is the row's own, told when this instance had told all shards, both
	// Unix milliseconds.
	updated, told int64
}

// New returns a registry over a table.
func New(table store.Table, src clock.Source) *Registry {
	return &Registry{table: table, clock: src}
}

// Outcome is how an attempt stands.
type Outcome struct {
	State State
	// Version is that of a committed one.
	Version clock.Version
	// Deadline and Start are those of a pending one.
	Deadline int64
	Start    clock.HLC
	// Keys is the number of its keys, 0 if there is no row.
	Keys int
	// Gone says that there is no row: the decision, if there was one, has been
	// forgotten. It counts as aborted only for who has seen that some shard does
	// not know of an end, and that less than TxDecisionRetention ago.
	Gone bool
}

// NewID draws the id of a batch.
func (g *Registry) NewID() (id ID) {
	a, b := g.clock.Uint64(), g.clock.Uint64()
	for i := range 8 {
		id[i] = byte(a >> (8 * i))
	}
	for i := range 4 {
		id[8+i] = byte(b >> (8 * i))
	}
	return id
}

// OperationID is the id of a batch that its caller has named.
func OperationID(operation string) (id ID) {
	sum := sha256.Sum256([]byte("operation " + operation))
	copy(id[:], sum[:])
	return id
}

// Fingerprint condenses the keys of a batch, in whatever order they come.
func Fingerprint(keys []string) string {
	sorted := slices.Sorted(slices.Values(keys))
	h := sha256.New()
	for _, key := range sorted {
		fmt.Fprintf(h, "%d:%s", len(key), key)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// FirstAttempt draws the number of a batch's first attempt. Chance keeps apart
// the attempts of a row that was removed and those of one that took its place.
func (g *Registry) FirstAttempt() uint32 { return uint32(g.clock.Uint64()) >> 1 }

// Begin records a new batch, durably, and reports whether this call did; if the
// row is there already it is returned as it stands.
//
// With it go rows of batches that are done since the retention: see Done.
func (g *Registry) Begin(ctx context.Context, treeID string, r Row, retention time.Duration) (*Row, bool, error) {
	mine := map[string]bool{}
	for attempt := 0; ; attempt++ {
		g.stamp(&r)
		mine[r.Nonce] = true
		data, err := encode(treeID, &r)
		if err != nil {
			return nil, false, err
		}
		ops := []store.Op{store.Insert(rowKey(r.ID), data)}
		if attempt == 0 {
			ops = append(ops, g.outlived(partition(treeID, r.ID), retention)...)
		}
		etags, err := g.table.Apply(ctx, partition(treeID, r.ID), ops)
		if err == nil {
			r.etag = etags[0]
			return &r, true, nil
		}
		gone := errors.Is(err, store.ErrNotFound) // of a row to take away
		if !uncertain(err) && !gone || attempt == tries {
			return nil, false, fmt.Errorf("begin %s: %w", where(treeID, r.ID), err)
		}
		old, rerr := g.Read(ctx, treeID, r.ID)
		if rerr == nil {
			return old, mine[old.Nonce], nil
		}
		if !errors.Is(rerr, ErrNoRow) {
			return nil, false, rerr
		}
		if g.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return nil, false, fmt.Errorf("begin %s: %w", where(treeID, r.ID), err)
		}
	}
}

// maxDone bounds the rows that are waiting to be taken away, maxTaken those that
// one batch takes. What is forgotten the tick finds.
const (
	maxDone  = 20_000
	maxTaken = 20
)

// Done notes that every shard knows how a batch has ended.
func (g *Registry) Done(treeID string, r *Row) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done == nil {
		g.done = make(map[string][]doneRow)
	}
	p := partition(treeID, r.ID)
	if q := g.done[p]; len(q) < maxDone {
		g.done[p] = append(q, doneRow{id: r.ID, etag: r.etag, updated: r.Updated, told: g.clock.Now().Milli()})
	}
}

// IsDone reports whether Done was called for a row as it stands, and it was not
// taken away since.
func (g *Registry) IsDone(treeID string, r *Row) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.done[partition(treeID, r.ID)]
	i, found := slices.BinarySearchFunc(q, r.Updated, func(d doneRow, at int64) int { return cmp.Compare(d.updated, at) })
	for ; found && i < len(q) && q[i].updated == r.Updated; i++ {
		if q[i].etag == r.etag {
			return true
		}
	}
	return false
}

// outlived returns the operations that take away rows of a partition.
func (g *Registry) outlived(partition string, retention time.Duration) (ops []store.Op) {
	limit := g.clock.Now().Milli() - retention.Milliseconds()
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.done[partition]
	for len(q) > 0 && q[0].told < limit && len(ops) < maxTaken {
		ops = append(ops, store.Delete(rowKey(q[0].id), q[0].etag))
		q = q[1:]
	}
	if len(ops) > 0 {
		g.done[partition] = q
	}
	return ops
}

const (
	// tries bounds how often one operation is repeated.
	tries      = 12
	backoffMin = 2 * time.Millisecond
	backoffMax = 200 * time.Millisecond
)

// uncertain reports whether a failed write is worth a look at what is stored.
func uncertain(err error) bool {
	return store.LostRace(err) || store.Transient(err) || errors.Is(err, store.ErrOutcomeUnknown)
}

func (g *Registry) pause(ctx context.Context, attempt int, atLeast time.Duration) error {
	d := min(backoffMin<<min(attempt, 8), backoffMax)
	return g.clock.Sleep(ctx, max(clock.Jitter(g.clock, d), atLeast))
}

func (g *Registry) stamp(r *Row) {
	r.Nonce = fmt.Sprintf("%016x", g.clock.Uint64())
	r.Updated = g.clock.Now().Milli()
}

// Read returns a row as it is now: ErrNoRow if there is none.
func (g *Registry) Read(ctx context.Context, treeID string, id ID) (*Row, error) {
	for attempt := 0; ; attempt++ {
		row, err := g.table.Get(ctx, partition(treeID, id), rowKey(id))
		if err == nil {
			return decode(treeID, id, row)
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil, ErrNoRow
		}
		if !store.Transient(err) || attempt == tries || g.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return nil, fmt.Errorf("read %s: %w", where(treeID, id), err)
		}
	}
}

// Change applies a change to a row that was read, and writes it if nobody else
// has changed it: else it is ErrLost. A reply that was lost is looked for by the
// row's nonce, so that the answer is right; where that cannot be done it is
// store.ErrOutcomeUnknown. The change is durable when Change returns nil.
func (g *Registry) Change(ctx context.Context, treeID string, r *Row, change func(*Row)) error {
	next := *r
	change(&next)
	g.stamp(&next)
	data, err := encode(treeID, &next)
	if err != nil {
		return err
	}
	sent := false
	for attempt := 0; ; attempt++ {
		etags, err := g.table.Apply(ctx, partition(treeID, r.ID), []store.Op{store.Replace(rowKey(r.ID), data, r.etag)})
		if err == nil {
			next.etag = etags[0]
			*r = next
			return nil
		}
		if !uncertain(err) && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("change %s: %w", where(treeID, r.ID), err)
		}
		sent = sent || !store.Transient(err)
		if done, lerr := g.landed(ctx, treeID, r, &next, sent); done || lerr != nil {
			return lerr
		}
		if attempt == tries || g.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return g.undecided(treeID, r, sent, err)
		}
	}
}

// landed looks what became of a change: it has landed, or it is ErrLost, or the
// row is as it was and it may be sent again.
func (g *Registry) landed(ctx context.Context, treeID string, r, next *Row, sent bool) (bool, error) {
	now, err := g.Read(ctx, treeID, r.ID)
	switch {
	case errors.Is(err, ErrNoRow):
		return false, fmt.Errorf("change %s: %w: %w", where(treeID, r.ID), ErrLost, err)
	case err != nil:
		return false, g.undecided(treeID, r, sent, err)
	case now.Nonce == next.Nonce:
		*r = *now
		return true, nil
	case now.etag == r.etag:
		return false, nil
	default:
		*r = *now
		return false, fmt.Errorf("change %s: %w", where(treeID, r.ID), ErrLost)
	}
}

func (g *Registry) undecided(treeID string, r *Row, sent bool, cause error) error {
	if !sent {
		return fmt.Errorf("change %s: %w", where(treeID, r.ID), cause)
	}
	return fmt.Errorf("change %s: %w: %v", where(treeID, r.ID), store.ErrOutcomeUnknown, cause)
}

// Lookup returns how an attempt stands now. One without a row was forgotten after
// every shard had been told, or never came so far as to be decided: what is left
// of it by then is void, and it counts as aborted, and as gone.
func (g *Registry) Lookup(ctx context.Context, treeID string, tx record.ID) (Outcome, error) {
	if o, ok := g.recall(tx); ok {
		return o, nil
	}
	id, attempt := split(tx)
	r, err := g.Read(ctx, treeID, id)
	if errors.Is(err, ErrNoRow) {
		return Outcome{State: Aborted, Gone: true}, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	return g.outcome(r, attempt), nil
}

// outcome reads an attempt off its row.
func (g *Registry) outcome(r *Row, attempt uint32) Outcome {
	o := Outcome{State: Aborted}
	if r.Attempt == attempt {
		o = Outcome{State: r.State, Version: r.Version, Deadline: r.Deadline, Start: r.Start, Keys: r.Keys}
	}
	if o.State != Pending {
		g.remember(txOf(r.ID, attempt), o)
	}
	return o
}

// Abort aborts an attempt if it is pending, durably, and returns how it stands.
func (g *Registry) Abort(ctx context.Context, treeID string, tx record.ID) (Outcome, error) {
	return g.bend(ctx, treeID, tx, func(r *Row) bool {
		r.State = Aborted
		return true
	})
}

// Push makes sure that an attempt, if it is pending, will be committed with a
// version above a time, if at all, and returns how it stands.
func (g *Registry) Push(ctx context.Context, treeID string, tx record.ID, floor clock.HLC) (Outcome, error) {
	return g.bend(ctx, treeID, tx, func(r *Row) bool {
		changed := r.Floor < floor
		r.Floor = max(r.Floor, floor)
		return changed
	})
}

// bend changes the row of an attempt as long as that is pending.
func (g *Registry) bend(ctx context.Context, treeID string, tx record.ID, change func(*Row) bool) (Outcome, error) {
	id, attempt := split(tx)
	for try := 0; ; try++ {
		r, err := g.Read(ctx, treeID, id)
		if errors.Is(err, ErrNoRow) {
			return Outcome{State: Aborted}, nil
		}
		if err != nil {
			return Outcome{}, err
		}
		wanted := *r
		if r.Attempt != attempt || r.State != Pending || !change(&wanted) {
			return g.outcome(r, attempt), nil
		}
		err = g.Change(ctx, treeID, r, func(r *Row) { change(r) })
		switch {
		case err == nil:
			return g.outcome(r, attempt), nil
		case !errors.Is(err, ErrLost) && !errors.Is(err, store.ErrOutcomeUnknown) || try == tries:
			return Outcome{}, err
		}
		if perr := g.pause(ctx, try, 0); perr != nil {
			return Outcome{}, err
		}
	}
}

// maxKnown bounds the outcomes that an instance remembers.
const maxKnown = 4096

func (g *Registry) recall(tx record.ID) (Outcome, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o, ok := g.recent[tx]; ok {
		return o, true
	}
	o, ok := g.former[tx]
	return o, ok
}

func (g *Registry) remember(tx record.ID, o Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.recent == nil || len(g.recent) >= maxKnown/2 {
		g.former, g.recent = g.recent, make(map[record.ID]Outcome)
	}
	g.recent[tx] = o
}

// Page lists rows of a tree.
type Page struct {
	Rows []*Row
	// Next continues; empty at the end.
	Next string
}

// List returns up to limit rows after a place.
func (g *Registry) List(ctx context.Context, treeID, after string, limit int) (Page, error) {
	n, from, err := parsePlace(after)
	if err != nil {
		return Page{}, err
	}
	var p Page
	for ; n < partitions; n, from = n+1, "" {
		got, err := g.table.Range(ctx, partitionAt(treeID, n), store.RangeQuery{From: from, Limit: min(limit-len(p.Rows), store.MaxPageRows)})
		if err != nil {
			return p, fmt.Errorf("list transactions of %s: %w", partitionAt(treeID, n), err)
		}
		for _, row := range got.Rows {
			var id ID
			if err := id.UnmarshalText([]byte(row.Key)); err != nil {
				return p, store.Corruptf("row %q of %s is no transaction", row.Key, partitionAt(treeID, n))
			}
			r, err := decode(treeID, id, row)
			if err != nil {
				return p, err
			}
			p.Rows = append(p.Rows, r)
			p.Next = fmt.Sprintf("%d/%s", n, store.NextKey(row.Key))
		}
		if len(p.Rows) >= limit || got.More {
			return p, nil
		}
	}
	p.Next = ""
	return p, nil
}

func parsePlace(s string) (n int, from string, err error) {
	if s == "" {
		return 0, "", nil
	}
	if _, err := fmt.Sscanf(s, "%d/", &n); err != nil || n < 0 || n >= partitions {
		return 0, "", fmt.Errorf("place %q: %w", s, store.ErrInvalid)
	}
	for i := range s {
		if s[i] == '/' {
			return n, s[i+1:], nil
		}
	}
	return n, "", nil
}

// Remove deletes a row as it was read; one that changed or is gone stays so.
func (g *Registry) Remove(ctx context.Context, treeID string, r *Row) error {
	_, err := g.table.Apply(ctx, partition(treeID, r.ID), []store.Op{store.Delete(rowKey(r.ID), r.etag)})
	if err == nil || store.LostRace(err) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", where(treeID, r.ID), err)
}

// Forget deletes everything that is recorded about the batches of a tree that is
// gone for good. It may be repeated; after an error it is to be.
func (g *Registry) Forget(ctx context.Context, treeID string) error {
	for n := range partitions {
		if err := store.DeletePartition(ctx, g.table, partitionAt(treeID, n)); err != nil {
			return fmt.Errorf("forget the transactions of a tree that is gone: %w", err)
		}
	}
	return nil
}
