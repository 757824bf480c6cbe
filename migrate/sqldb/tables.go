package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
)

// maxTables bounds the names looked at for a suggestion.
const maxTables = 5000

// find resolves the name of the table: as it is written, or in another case if
// that is unique; with a schema, or among those that need none.
func (s *Source) find(ctx context.Context, snap *snapshot) (tableName, error) {
	schema, name, err := splitName(s.o.Table)
	if err != nil {
		return tableName{}, err
	}
	found, err := s.d.tables(ctx, snap.conn, name)
	if err != nil {
		return tableName{}, err
	}
	if schema != "" && len(found) == 0 {
		// A dot may be part of the name.
		if found, err = s.d.tables(ctx, snap.conn, s.o.Table); err != nil {
			return tableName{}, err
		}
		schema, name = "", s.o.Table
	}
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, strings.EqualFold} {
		matching := slices.DeleteFunc(slices.Clone(found), func(t tableName) bool {
			return !same(t.name, name) || schema != "" && !same(t.schema, schema) || schema == "" && !t.bare
		})
		if len(matching) == 1 {
			return matching[0], nil
		}
		if len(matching) > 1 {
			return tableName{}, notice("more than one table is called %s: %s; give one of them", s.o.Table, list(qualified(matching)))
		}
	}
	return tableName{}, s.unknown(ctx, snap, found)
}

// unknown says that there is no such table, and which may have been meant.
func (s *Source) unknown(ctx context.Context, snap *snapshot, elsewhere []tableName) error {
	if len(elsewhere) > 0 {
		return notice("there is no table %s here; did you mean %s?", s.o.Table, qualified(elsewhere)[0])
	}
	all, err := s.d.tables(ctx, snap.conn, "")
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.name
		if !t.bare || strings.Contains(s.o.Table, ".") {
			names[i] = qualified(all[i : i+1])[0]
		}
	}
	if len(names) == 0 {
		return notice("there is no table %s: %s holds no table that this user may see", s.o.Table, s.d.place())
	}
	return notice("there is no table %s%s", s.o.Table, suggestion(s.o.Table, names))
}

func qualified(tables []tableName) []string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.name
		if t.schema != "" {
			names[i] = t.schema + "." + t.name
		}
	}
	return names
}

// splitName splits schema.name; either may stand in double quotes, with ""
// for one inside.
func splitName(text string) (schema, name string, err error) {
	var parts []string
	rest := text
	for {
		var part string
		if strings.HasPrefix(rest, `"`) {
			end := closingQuote(rest)
			if end < 0 {
				return "", "", notice("the name %s has a quote that is not closed", text)
			}
			part, rest = strings.ReplaceAll(rest[1:end], `""`, `"`), rest[end+1:]
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			part, rest = rest[:end], rest[end:]
		}
		parts = append(parts, part)
		if rest == "" {
			break
		}
		if rest[0] != '.' {
			return "", "", notice("the name %s is not of the form name or schema.name", text)
		}
		rest = rest[1:]
	}
	switch {
	case slices.Contains(parts, ""):
	case len(parts) == 1:
		return "", parts[0], nil
	case len(parts) == 2:
		return parts[0], parts[1], nil
	}
	return "", "", notice("the name %s is not of the form name or schema.name", text)
}

// closingQuote is where the quote at the beginning of s ends, -1 if nowhere.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return i
	}
	return -1
}

// collect reads all rows of a query of the catalogue.
func collect[T any](ctx context.Context, conn *sql.Conn, query string, args []any, scan func(*T) []any) (found []T, err error) {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closing(err, rows)) }()
	for rows.Next() {
		var v T
		if err := rows.Scan(scan(&v)...); err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, rows.Err()
}

func scanTable(t *tableName) []any { return []any{&t.schema, &t.name, &t.bare} }

// indexColumn is a row of a catalogue's indexes.
type indexColumn struct {
	index   string
	primary bool
	column  string
}

func scanIndexColumn(c *indexColumn) []any { return []any{&c.index, &c.primary, &c.column} }

// indexes gathers columns into indexes: the primary key first, then those of
// the fewest columns.
func indexes(rows []indexColumn) []index {
	var found []index
	last := ""
	for i, r := range rows {
		if i == 0 || r.index != last {
			found = append(found, index{primary: r.primary})
			last = r.index
		}
		ix := &found[len(found)-1]
		ix.columns = append(ix.columns, r.column)
	}
	slices.SortStableFunc(found, func(a, b index) int {
		if a.primary != b.primary {
			if a.primary {
				return -1
			}
			return 1
		}
		return len(a.columns) - len(b.columns)
	})
	return found
}
