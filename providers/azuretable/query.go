package azuretable

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/latticekv/lattice/core/store"
)

// maxEmptyPages bounds how many empty pages in a row are followed. The service
// sends one at each boundary of its own partitioning, and when a query took too
// long to find anything.
const maxEmptyPages = 64

// position is the service's own continuation.
type position struct{ partition, row string }

// page asks for a page and goes on while the answer is empty and not the end.
func (t *Table) page(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	filter := rangeFilter(partition, q)
	var at position
	for range maxEmptyPages {
		var page store.Page
		var next position
		err := t.reads.Do(ctx, func(ctx context.Context) (err error) {
			page, next, err = t.fetch(ctx, partition, q, filter, at)
			return err
		})
		if err != nil || len(page.Rows) > 0 || !page.More {
			return page, err
		}
		if next == at {
			return store.Page{}, fmt.Errorf("%w: an empty page continues with itself", store.ErrUnavailable)
		}
		at = next
	}
	return store.Page{}, fmt.Errorf("%w: %d empty pages in a row", store.ErrUnavailable, maxEmptyPages)
}

// rangeFilter is the part of the query that says which rows. Keys hold nothing
// that would need quoting; they are quoted all the same.
func rangeFilter(partition string, q store.RangeQuery) string {
	f := "PartitionKey eq " + quote(partition)
	if q.From != "" {
		f += " and RowKey ge " + quote(q.From)
	}
	if q.To != "" {
		f += " and RowKey lt " + quote(q.To)
	}
	return "$filter=" + strings.ReplaceAll(url.QueryEscape(f), "+", "%20") + "&$top=" + strconv.Itoa(q.Limit)
}

// quote makes a string literal of OData.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// fetch makes one exchange. A table that does not exist yet has no rows.
func (t *Table) fetch(ctx context.Context, partition string, q store.RangeQuery, query string, at position) (page store.Page, next position, err error) {
	_, err = t.place.Read(ctx, func() (err error) {
		page, next, err = t.ask(ctx, partition, q, query, at)
		return err
	})
	return page, next, err
}

// ask makes the exchange of fetch.
func (t *Table) ask(ctx context.Context, partition string, q store.RangeQuery, query string, at position) (store.Page, position, error) {
	if at.partition != "" {
		query += "&NextPartitionKey=" + url.QueryEscape(at.partition)
	}
	if at.row != "" {
		query += "&NextRowKey=" + url.QueryEscape(at.row)
	}
	answer, err := t.wire.read(ctx, "/"+t.name+"()", query, maxPageBody)
	if err != nil {
		return store.Page{}, position{}, err
	}
	defer answer.release()
	rows, err := decodePage(answer.body(), partition, q, answer.cut)
	next := position{answer.nextPartition, answer.nextRow}
	return store.Page{Rows: rows, More: answer.cut || next != position{}}, next, err
}

// decodePage reads the rows of an answer. Of one that was cut at the bound it
// takes those that are whole.
func decodePage(in []byte, partition string, q store.RangeQuery, cut bool) ([]store.Row, error) {
	var rows []store.Row
	err := entities(in, func(e *entity) error {
		row, err := e.row(partition)
		if err != nil {
			return err
		}
		if err := inOrder(rows, row.Key, q); err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	})
	switch {
	case err == nil:
		return rows, nil
	case errors.Is(err, store.ErrCorrupt):
		return nil, err
	case cut && errors.Is(err, errCut) && len(rows) > 0:
		return rows, nil
	case errors.Is(err, errCut) && !cut:
		// The transport delivered less than the service meant: worth another try.
		return nil, fmt.Errorf("%w: answer to a query: %w", store.ErrUnavailable, err)
	}
	return nil, store.Corruptf("answer to a query of partition %q: %v", partition, err)
}

// inOrder refuses a row that the query did not ask for, or that is out of order:
// whoever reads on from the last key would miss rows.
func inOrder(rows []store.Row, key string, q store.RangeQuery) error {
	switch {
	case key < q.From, q.To != "" && key >= q.To:
		return store.Corruptf("row %q is outside of the range asked for, %q to %q", key, q.From, q.To)
	case len(rows) > 0 && rows[len(rows)-1].Key >= key:
		return store.Corruptf("row %q follows %q", key, rows[len(rows)-1].Key)
	case len(rows) >= q.Limit:
		return store.Corruptf("more than the %d rows asked for", q.Limit)
	}
	return nil
}

// decodeEntity reads the answer to a point query.
func decodeEntity(in []byte, partition, key string) (store.Row, error) {
	s := &scanner{in: in}
	e, err := s.entity()
	if errors.Is(err, errCut) {
		return store.Row{}, fmt.Errorf("%w: answer to a point query: %w", store.ErrUnavailable, err)
	}
	if err != nil {
		return store.Row{}, store.Corruptf("answer to a query of row %s/%s: %v", partition, key, err)
	}
	row, err := e.row(partition)
	if err == nil && row.Key != key {
		return store.Row{}, store.Corruptf("row %q instead of %q", row.Key, key)
	}
	return row, err
}
