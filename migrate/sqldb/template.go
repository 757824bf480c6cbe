package sqldb

import (
	"context"
	"errors"
	"strings"
)

// keyTemplate is the name of the table and the key columns. Whole numbers are
// padded to the widest of 64 bits, bytes are hexadecimal digits. The first
// column has a place for a sign if a number is below zero.
func (ds *dataset) keyTemplate(below bool) string {
	var b strings.Builder
	b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(ds.label))
	for i, k := range ds.keys {
		b.WriteString("/{" + k.name)
		switch {
		case k.integer == signed && below && i == 0:
			b.WriteString(":+19d")
		case k.integer == signed:
			b.WriteString(":019d")
		case k.integer == unsigned:
			b.WriteString(":020d")
		case k.bytes:
			b.WriteString(":hex")
		}
		b.WriteByte('}')
	}
	return b.String()
}

// negative reports whether the first key column holds a number below zero. It
// looks only where an index makes that quick.
func (s *Source) negative(ctx context.Context, snap *snapshot, set *dataset) (below bool, err error) {
	first := set.keys[0]
	if first.integer != signed || set.sorted || set.where != "" {
		return false, nil
	}
	least := &dataset{subject: set.subject, where: first.order + " < 0", columns: []*column{{read: "1"}}, keys: set.keys}
	text, _ := least.page(s.d.traits(), nil, nil, 1)
	rows, err := snap.conn.QueryContext(ctx, text)
	if err != nil {
		return false, err
	}
	below = rows.Next()
	return below, errors.Join(rows.Err(), rows.Close())
}
