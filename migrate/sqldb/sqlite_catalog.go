package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// sqliteColumn is a row of table_xinfo.
type sqliteColumn struct {
	name, engine string
	notNull, pk  int
	hidden       int
}

func (s *sqlite) describe(ctx context.Context, conn *sql.Conn, what subject) (shape, error) {
	if what.query != "" {
		return s.described(ctx, conn, what)
	}
	var kind string
	var rowid bool
	err := conn.QueryRowContext(ctx, "SELECT type, NOT wr FROM pragma_table_list(?) WHERE schema = 'main'", what.table.name).Scan(&kind, &rowid)
	if err != nil {
		return shape{}, err
	}
	if kind != "table" {
		return s.described(ctx, conn, what)
	}
	rows, err := collect(ctx, conn, "SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", []any{what.table.name},
		func(c *sqliteColumn) []any { return []any{&c.name, &c.engine, &c.notNull, &c.pk, &c.hidden} })
	if err != nil {
		return shape{}, err
	}
	sh, err := s.unique(ctx, conn, what.table.name, rows, rowid)
	if err != nil {
		return shape{}, err
	}
	collated, err := s.collated(ctx, conn, what.table.name)
	if err != nil {
		return shape{}, err
	}
	for _, r := range rows {
		// 1 is a hidden column of a virtual table; generated ones are 2 and 3.
		if r.hidden == 1 {
			continue
		}
		c := s.column(r.name, r.engine, s.traits().quote(r.name))
		// A primary key may hold NULL, by an old mistake that SQLite keeps, unless
		// it is the row's own number or the table has none.
		c.nullable = r.notNull == 0 && (r.pk == 0 || rowid && !isRowid(rows, r))
		binary, err := s.binary(ctx, conn, what, c)
		if err != nil {
			return shape{}, err
		}
		// The row's number has no collation.
		binary = binary || rowid && isRowid(rows, r)
		// Named, the collation keeps an index from being searched by (a, b) > (x, y).
		if c.unindexed = !binary || slices.Contains(collated, c.name); binary {
			c.order = s.traits().quote(r.name)
		}
		sh.columns = append(sh.columns, c)
	}
	return s.journal(ctx, conn, sh)
}

// unique finds the unique indexes without NULLs.
func (s *sqlite) unique(ctx context.Context, conn *sql.Conn, table string, columns []sqliteColumn, rowid bool) (sh shape, err error) {
	if rowid {
		number := s.column("rowid", "integer", "rowid")
		number.order, number.nullable, number.integer = "rowid", false, signed
		sh.hidden = []*column{number}
	}
	var alias string
	for _, c := range columns {
		if rowid && isRowid(columns, c) {
			alias = c.name
		}
		if strings.EqualFold(c.name, "rowid") {
			sh.hidden = nil
		}
	}
	rows, err := collect(ctx, conn, `SELECT l.name, l.origin = 'pk', x.name FROM pragma_index_list(?1) l JOIN pragma_index_xinfo(l.name) x
		WHERE l."unique" AND NOT l.partial AND x.key AND NOT EXISTS (
			SELECT 1 FROM pragma_index_xinfo(l.name) n LEFT JOIN pragma_table_info(?1) t ON t.cid = n.cid
			WHERE n.key AND (n.name IS NULL OR NOT (t."notnull" OR l.origin = 'pk')))
		ORDER BY l.seq, x.seqno`, []any{table}, scanIndexColumn)
	if err != nil {
		return sh, err
	}
	sh.indexes = indexes(rows)
	if alias != "" {
		sh.indexes = append([]index{{columns: []string{alias}, primary: true}}, sh.indexes...)
	}
	if len(sh.hidden) > 0 {
		// It serves an order, and is not chosen by itself: VACUUM changes it.
		sh.orders = append(sh.orders, index{columns: []string{"rowid"}})
	}
	return sh, nil
}

// collated finds the indexed columns that no index orders by their bytes.
func (s *sqlite) collated(ctx context.Context, conn *sql.Conn, table string) ([]string, error) {
	return collect(ctx, conn, `SELECT DISTINCT x.name FROM pragma_index_list(?1) l JOIN pragma_index_xinfo(l.name) x
		WHERE l."unique" AND x.key AND x.name IS NOT NULL AND (x.coll <> 'BINARY' OR x."desc")`, []any{table},
		func(n *string) []any { return []any{n} })
}

// binary reports whether a column is compared by its bytes. Only the program of
// a comparison tells its collation; if that is not understood the answer is no.
func (s *sqlite) binary(ctx context.Context, conn *sql.Conn, what subject, c *column) (bool, error) {
	rows, err := collect(ctx, conn, "EXPLAIN SELECT 1 FROM "+what.from+" WHERE +"+s.traits().quote(c.name)+" > ?", []any{"x"},
		func(r *[8]sql.NullString) []any {
			return []any{&r[0], &r[1], &r[2], &r[3], &r[4], &r[5], &r[6], &r[7]}
		})
	for _, r := range rows {
		switch r[1].String {
		case "Gt", "Ge", "Lt", "Le":
			return strings.HasPrefix(r[5].String, "BINARY"), nil
		}
	}
	return false, err
}

// isRowid reports whether a column is another name of the row's number: a
// primary key alone, of the type INTEGER.
func isRowid(columns []sqliteColumn, c sqliteColumn) bool {
	for _, other := range columns {
		if other.pk > 1 {
			return false
		}
	}
	return c.pk == 1 && strings.EqualFold(c.engine, "INTEGER")
}

// journal says what reading does to writers.
func (s *sqlite) journal(ctx context.Context, conn *sql.Conn, sh shape) (shape, error) {
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return sh, err
	}
	if !strings.EqualFold(mode, "wal") {
		sh.notes = append(sh.notes, "Other programs cannot write to the file while it is read: its journal mode is "+mode+"; in WAL mode they could.")
	}
	return sh, nil
}

// described takes the columns of a view or query from its result.
func (s *sqlite) described(ctx context.Context, conn *sql.Conn, what subject) (sh shape, err error) {
	types, err := columnTypes(ctx, conn, "SELECT * FROM "+what.from+" LIMIT 0")
	if err != nil {
		return sh, err
	}
	for _, t := range types {
		// Without an affinity comparisons take values as they are.
		c := s.column(t.Name(), strings.ToLower(t.DatabaseTypeName()), "+"+s.traits().quote(t.Name()))
		c.nullable = true
		sh.columns = append(sh.columns, c)
	}
	return s.journal(ctx, conn, sh)
}

// column reads values as they are stored: a declared type binds nobody, and
// the sign before the name keeps the driver from reading times into them.
func (s *sqlite) column(name, engine, order string) *column {
	c := &column{
		name: name, engine: strings.ToLower(engine), convert: s.value,
		order: order + " COLLATE BINARY", param: "?", same: sameNumber, change: changeStored,
	}
	c.read = "+" + strings.TrimPrefix(order, "+")
	c.token = c.read
	if strings.Contains(strings.ToUpper(engine), "INT") {
		c.integer = signed
	}
	if c.engine == "" {
		c.engine = "no declared type"
	}
	return c
}

func (*sqlite) value(v any) (any, error) {
	switch v := v.(type) {
	case int64, float64:
		return v, nil
	case string:
		return toText(v)
	case []byte:
		return toBytes(v)
	}
	return nil, fmt.Errorf("the driver gave a %T", v)
}
