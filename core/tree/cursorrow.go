package tree

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// cursorRow is what the service remembers of a cursor: a bookmark that survives
// every instance. Page K is the range (Prev, Last]; whoever lost the reply to it
// gets that range again.
type cursorRow struct {
	ID      string     `json:"id"`
	Kind    CursorKind `json:"kind"`
	From    rawKey     `json:"from,omitempty"`
	To      rawKey     `json:"to,omitempty"`
	Reverse bool       `json:"reverse,omitempty"`
	// Page is the number of the last page, 0 before the first.
	Page int64 `json:"page"`
	// Prev and Last bound the page: it begins after Prev and ends with Last. They
	// are empty before the first page, and Last is Prev on a page without
	// entries.
	Prev rawKey `json:"prev,omitempty"`
	Last rawKey `json:"last,omitempty"`
	// More says that another page may have entries.
	More bool `json:"more,omitempty"`
	// Deleted is the outcome of a page of a delete-range, -1 while it is being
	// carried out.
	Deleted int64 `json:"deleted,omitempty"`
	// TTL is the life of the cursor in milliseconds, Expiry when it ends.
	TTL    int64 `json:"ttl"`
	Expiry int64 `json:"expiry"`
	// Snapshot is nil for a cursor on the live tree.
	Snapshot *snapshot `json:"snapshot,omitempty"`
	// Ended says that the snapshot is not kept any more.
	Ended bool `json:"ended,omitempty"`

	etag store.ETag
}

// rawKey is a key, or the bound of a range, which need not be UTF-8: as JSON it is
// in base64.
type rawKey string

// MarshalText implements encoding.TextMarshaler.
func (k rawKey) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, []byte(k)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *rawKey) UnmarshalText(b []byte) error {
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, b)
	*k = rawKey(raw)
	return err
}

var cursorFormat = frame.Format{Magic: "LTCU", Version: 1, MaxSize: store.MaxRowBytes - frame.Overhead}

const cursorIDBytes = 16

// cursors keeps the rows of the cursors of one tree.
type cursors struct {
	db        *DB
	partition string
}

func (db *DB) cursors(treeID string) cursors { return cursors{db: db, partition: "c-" + treeID} }

func (c cursors) where(id string) string { return fmt.Sprintf("cursor %s of %s", id, c.partition) }

// newID draws the id of a cursor, which cannot be guessed from others.
func (c cursors) newID() string { return c.db.reg.newID() + c.db.reg.newID() }

func validCursorID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == cursorIDBytes
}

func (c cursors) encode(r *cursorRow) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.where(r.ID), err)
	}
	return cursorFormat.Seal(body), nil
}

func (c cursors) decode(id string, row store.Row) (*cursorRow, error) {
	body, err := cursorFormat.Open(c.where(id), row.Data)
	if err != nil {
		return nil, err
	}
	r := &cursorRow{etag: row.ETag}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, store.Corruptf("%s: %v", c.where(id), err)
	}
	if r.ID != id || r.Page < 0 || r.TTL <= 0 {
		return nil, store.Corruptf("%s does not describe itself", c.where(id))
	}
	return r, nil
}

// insert records a new cursor.
func (c cursors) insert(ctx context.Context, r *cursorRow) error {
	data, err := c.encode(r)
	if err != nil {
		return err
	}
	return c.db.reg.retry(ctx, func() error {
		etags, err := c.db.table.Apply(ctx, c.partition, []store.Op{store.Insert(r.ID, data)})
		switch {
		case err == nil:
			r.etag = etags[0]
			return nil
		case errors.Is(err, store.ErrOutcomeUnknown):
			return fmt.Errorf("record %s: %w: %w", c.where(r.ID), store.ErrUnavailable, err)
		case errors.Is(err, store.ErrExists):
			return nil // by an earlier attempt: the id is ours alone
		}
		return err
	})
}

// read returns a cursor: ErrCursorNotFound if there is none.
func (c cursors) read(ctx context.Context, id string) (*cursorRow, error) {
	var row store.Row
	err := c.db.reg.retry(ctx, func() (err error) {
		row, err = c.db.table.Get(ctx, c.partition, id)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrCursorNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.where(id), err)
	}
	return c.decode(id, row)
}

// errCursorMoved: somebody else used the cursor at the same time.
var errCursorMoved = errors.New("the cursor was used by somebody else")

// save replaces a row as it was read; errCursorMoved if it is another by now,
// perhaps because an earlier attempt of this very save has landed: who asks for
// the page again then gets it.
func (c cursors) save(ctx context.Context, r *cursorRow) error {
	data, err := c.encode(r)
	if err != nil {
		return err
	}
	return c.db.reg.retry(ctx, func() error {
		etags, err := c.db.table.Apply(ctx, c.partition, []store.Op{store.Replace(r.ID, data, r.etag)})
		switch {
		case err == nil:
			r.etag = etags[0]
			return nil
		case store.LostRace(err), errors.Is(err, store.ErrOutcomeUnknown), errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("%w: %w", errCursorMoved, err)
		}
		return fmt.Errorf("save %s: %w", c.where(r.ID), err)
	})
}

// remove deletes a row, whatever became of it.
func (c cursors) remove(ctx context.Context, id string) error {
	err := c.db.reg.retry(ctx, func() error {
		_, err := c.db.table.Apply(ctx, c.partition, []store.Op{store.Delete(id, "")})
		return err
	})
	if err == nil || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", c.where(id), err)
}

// list returns up to limit rows from a key on, not yet decoded.
func (c cursors) list(ctx context.Context, from string, limit int) (store.Page, error) {
	page, err := c.db.table.Range(ctx, c.partition, store.RangeQuery{From: from, Limit: limit})
	if err != nil {
		return page, fmt.Errorf("list cursors of %s: %w", c.partition, err)
	}
	return page, nil
}

// forget deletes all rows, of a tree that is gone for good.
func (c cursors) forget(ctx context.Context) error {
	if err := store.DeletePartition(ctx, c.db.table, c.partition); err != nil {
		return fmt.Errorf("forget the cursors of a tree that is gone: %w", err)
	}
	return nil
}
