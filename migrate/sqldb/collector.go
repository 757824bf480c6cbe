package sqldb

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/source"
)

// maxOrigin bounds the value of a key column in the origin of a record, in
// characters.
const maxOrigin = 64

// collector makes pages of rows. Rows of equal keys are kept together.
type collector struct {
	set     *dataset
	values  []any
	targets []any

	// tokens are those of the row just scanned, identity what they compare by.
	tokens   []any
	identity string

	// done are the rows of complete groups, group those of the last key.
	done, group           source.Page
	doneBytes, groupBytes int
	// doneKey and groupKey are the tokens of their last rows.
	doneKey, groupKey []any
	groupIdentity     string
	// after is the last key that a page was made up to.
	after []any
}

func newCollector(set *dataset) *collector {
	c := &collector{set: set, values: make([]any, len(set.columns)+len(set.keys))}
	c.targets = make([]any, len(c.values))
	for i := range c.values {
		c.targets[i] = &c.values[i]
	}
	return c
}

// row looks at the row just scanned, and reports whether its key differs from
// that of the row before.
func (c *collector) row() (begins bool, err error) {
	c.tokens = make([]any, len(c.set.keys))
	var id strings.Builder
	for i, k := range c.set.keys {
		t, err := k.tokenOf(c.values[len(c.set.columns)+i])
		if err != nil {
			return false, fmt.Errorf("column %s: %w", k.name, err)
		}
		c.tokens[i] = t
		if t == nil {
			id.WriteString("-;")
			continue
		}
		if k.same != nil {
			t = k.same(t)
		}
		text, err := encodeToken(t)
		if err != nil {
			return false, fmt.Errorf("column %s: %w", k.name, err)
		}
		fmt.Fprintf(&id, "%d:%s;", len(text), text)
	}
	c.identity = id.String()
	begins = c.groupKey == nil || c.identity != c.groupIdentity
	if begins {
		c.closeGroup()
	} else if c.groupRows() >= maxEqual || c.groupBytes >= maxEqualBytes {
		return false, tooManyEqual(c.set.keys)
	}
	return begins, nil
}

// take adds the row to the group of its key.
func (c *collector) take() {
	record, fault, size := c.record()
	if fault != nil {
		c.group.Faults = append(c.group.Faults, *fault)
	} else {
		c.group.Records = append(c.group.Records, record)
	}
	c.groupBytes += size
	c.groupKey, c.groupIdentity = c.tokens, c.identity
}

func (c *collector) groupRows() int { return len(c.group.Records) + len(c.group.Faults) }

// closeGroup adds the group to what is done.
func (c *collector) closeGroup() {
	if c.groupKey == nil {
		return
	}
	c.done.Records = append(c.done.Records, c.group.Records...)
	c.done.Faults = append(c.done.Faults, c.group.Faults...)
	c.doneBytes += c.groupBytes
	c.doneKey = c.groupKey
	c.dropGroup()
}

// dropGroup forgets the group.
func (c *collector) dropGroup() {
	c.group, c.groupBytes, c.groupKey, c.groupIdentity = source.Page{}, 0, nil, ""
}

// full reports whether the groups that are done make a page.
func (c *collector) full(rows int) bool {
	return len(c.done.Records)+len(c.done.Faults) >= rows || c.doneBytes >= pageBytes
}

// page returns the groups that are done, the last one too if nothing follows,
// and the key of the last row.
func (c *collector) page(last bool) (source.Page, []any) {
	if last {
		c.closeGroup()
	}
	p, key := c.done, c.doneKey
	c.done, c.doneBytes, c.doneKey = source.Page{}, 0, nil
	if key != nil {
		c.after = key
	}
	return p, key
}

// record converts the row just scanned. A row that cannot be is a fault.
func (c *collector) record() (source.Record, *source.Fault, int) {
	origin := c.origin()
	r := source.Record{Origin: origin, Fields: make([]source.Field, len(c.set.columns))}
	size := len(origin)
	for i, col := range c.set.columns {
		r.Fields[i].Name = col.name
		raw := c.values[i]
		if raw == nil {
			continue
		}
		v, err := col.convert(raw)
		if err != nil {
			return source.Record{}, &source.Fault{Origin: origin, Reason: fmt.Sprintf("column %s (%s): %v", col.name, col.engine, err)}, size
		}
		r.Fields[i].Value = v
		if text, ok := v.(string); ok && col.change.moment() && !writable(text) {
			r.Losses = append(r.Losses, source.Loss{Field: col.name, What: noDay})
		}
		size += weight(v)
	}
	return r, nil, size
}

// origin says which row it is: orders (tenant=acme, id=7).
func (c *collector) origin() string {
	var b strings.Builder
	b.WriteString(c.set.label)
	b.WriteString(" (")
	for i, k := range c.set.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(k.name)
		b.WriteByte('=')
		b.WriteString(shown(c.tokens[i]))
	}
	b.WriteByte(')')
	return b.String()
}

// shown is a value for people.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		if !utf8.Valid(v) {
			return fmt.Sprintf("0x%x", v[:min(len(v), maxOrigin/2)]) + ellipsis(len(v) > maxOrigin/2)
		}
		return shown(string(v))
	case string:
		cut := v
		if utf8.RuneCountInString(v) > maxOrigin {
			cut = string([]rune(v)[:maxOrigin])
		}
		plain := cut != "" && cut != "NULL" && !strings.ContainsFunc(cut, func(r rune) bool {
			return !unicode.IsPrint(r) || strings.ContainsRune(` "=,()`, r)
		})
		if !plain {
			cut = strconv.Quote(cut)
		}
		return cut + ellipsis(len(cut) < len(v))
	}
	return fmt.Sprint(v)
}

func ellipsis(needed bool) string {
	if needed {
		return "…"
	}
	return ""
}

// weight is about how much memory a value takes.
func weight(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 32
	case []byte:
		return len(v) + 32
	case source.Number:
		return len(v) + 32
	}
	return jsonWeight(v)
}
