package sqldb

import (
	"slices"
	"strconv"
	"strings"
)

// dataset is what is enumerated, and in which order.
type dataset struct {
	subject
	// label is what people call it.
	label   string
	where   string
	columns []*column
	keys    []*column
	change  *column
	// sorted: no index serves the order.
	sorted bool
	// whole: one statement gives all rows, because a page could not be found
	// quickly.
	whole bool
}

// since selects what changed.
type since struct {
	// all: everything counts as changed.
	all bool
	cut any
}

// statement is SQL under construction.
type statement struct {
	traits
	text strings.Builder
	args []any
}

func (st *statement) add(parts ...string) {
	for _, p := range parts {
		st.text.WriteString(p)
	}
}

// value adds a parameter for the key of a column.
func (st *statement) value(c *column, v any) {
	st.args = append(st.args, v)
	st.add(strings.Replace(c.param, "?", st.placeholder(len(st.args)), 1))
}

// page is the statement for the rows after a key, limit rows at most if it is
// positive. The tokens of the key columns follow the columns.
func (ds *dataset) page(t traits, after []any, changed *since, limit int) (string, []any) {
	st := &statement{traits: t}
	st.add("SELECT ")
	if limit > 0 && t.top {
		st.add("TOP (", strconv.Itoa(limit), ") ")
	}
	// Without names of their own, ORDER BY would take what is read for the column
	// that it is read from, and order numbers as text.
	alias := ds.alias()
	for i, c := range ds.columns {
		if i > 0 {
			st.add(", ")
		}
		st.add(c.read, " AS ", alias, strconv.Itoa(i))
	}
	for i, k := range ds.keys {
		st.add(", ", k.token, " AS ", alias, "k", strconv.Itoa(i))
	}
	st.add(" FROM ", ds.from)
	st.conditions(ds, after, changed)
	st.add(" ORDER BY ")
	for i, k := range ds.keys {
		if i > 0 {
			st.add(", ")
		}
		st.add(k.order)
	}
	if limit > 0 && !t.top {
		st.add(" LIMIT ", strconv.Itoa(limit))
	}
	return st.text.String(), st.args
}

// alias is what no column's name begins with.
func (ds *dataset) alias() string {
	alias := "x"
	for slices.ContainsFunc(ds.columns, func(c *column) bool { return strings.HasPrefix(strings.ToLower(c.name), alias) }) {
		alias += "_"
	}
	return alias
}

func (st *statement) conditions(ds *dataset, after []any, changed *since) {
	word := " WHERE "
	and := func() {
		st.add(word)
		word = " AND "
	}
	if ds.where != "" {
		and()
		// The line breaks keep a comment at its end from swallowing the bracket.
		st.add("(\n", ds.where, "\n)")
	}
	if changed != nil && !changed.all {
		and()
		st.add("(", ds.change.order, " >= ")
		st.value(ds.change, changed.cut)
		st.add(" OR ", ds.change.order, " IS NULL)")
	}
	if after != nil {
		and()
		st.after(ds.keys, after)
	}
}

// after adds the condition that a row follows a key.
func (st *statement) after(keys []*column, after []any) {
	if st.rowValues && !anyNullable(keys) {
		st.rowAfter(keys, after)
		return
	}
	st.add("(")
	if len(keys) > 1 {
		// It follows from the rest, and is what an index can be searched by.
		st.notBefore(keys[0], after[0])
		st.add(" AND (")
	}
	for i := range keys {
		if i > 0 {
			st.add(" OR ")
		}
		st.add("(")
		for j := range i {
			st.equal(keys[j], after[j])
			st.add(" AND ")
		}
		st.beyond(keys[i], after[i])
		st.add(")")
	}
	if len(keys) > 1 {
		st.add(")")
	}
	st.add(")")
}

func (st *statement) rowAfter(keys []*column, after []any) {
	st.add("(")
	for i, k := range keys {
		if i > 0 {
			st.add(", ")
		}
		st.add(k.order)
	}
	st.add(") > (")
	for i, k := range keys {
		if i > 0 {
			st.add(", ")
		}
		st.value(k, after[i])
	}
	st.add(")")
}

func (st *statement) equal(k *column, v any) {
	if v == nil {
		st.add(k.order, " IS NULL")
		return
	}
	st.add(k.order, " = ")
	st.value(k, v)
}

// beyond: the column sorts after v.
func (st *statement) beyond(k *column, v any) {
	switch {
	case v == nil && st.nullsLast:
		st.add("1 = 0")
	case v == nil:
		st.add(k.order, " IS NOT NULL")
	case k.nullable && st.nullsLast:
		st.add("(", k.order, " > ")
		st.value(k, v)
		st.add(" OR ", k.order, " IS NULL)")
	default:
		st.add(k.order, " > ")
		st.value(k, v)
	}
}

// notBefore: the column sorts after v or is equal to it.
func (st *statement) notBefore(k *column, v any) {
	switch {
	case v == nil && st.nullsLast:
		st.add(k.order, " IS NULL")
	case v == nil:
		st.add("1 = 1")
	case k.nullable && st.nullsLast:
		st.add("(", k.order, " >= ")
		st.value(k, v)
		st.add(" OR ", k.order, " IS NULL)")
	default:
		st.add(k.order, " >= ")
		st.value(k, v)
	}
}

// seekable reports whether the condition of a page is one that an index is
// searched by, whatever the number of key columns.
func (t traits) seekable(keys []*column) bool {
	return len(keys) == 1 || t.mergesRanges || t.rowValues && !anyNullable(keys)
}

func anyNullable(keys []*column) bool {
	for _, k := range keys {
		if k.nullable {
			return true
		}
	}
	return false
}

// count is the statement for the number of rows.
func (ds *dataset) count() string {
	text := "SELECT COUNT(*) FROM " + ds.from
	if ds.where != "" {
		text += " WHERE (\n" + ds.where + "\n)"
	}
	return text
}

// probe is a statement that the engine checks as it would a page, and that
// gives no row.
func (ds *dataset) probe(t traits) string {
	none := *ds
	none.where = "1 = 0"
	if ds.where != "" {
		none.where = "(\n" + ds.where + "\n) AND 1 = 0"
	}
	text, _ := none.page(t, nil, nil, 0)
	return text
}

// doubled delimits an identifier, doubling the closing delimiter inside.
func doubled(open, end string) func(string) string {
	return func(name string) string { return open + strings.ReplaceAll(name, end, end+end) + end }
}
