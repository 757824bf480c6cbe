package rows

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPad bounds the width of a padded segment.
const maxPad = 64

// template builds a key from columns: "user/{id}", "order/{day}/{nr:8}".
type template struct{ parts []part }

// part is a literal, or a column when column is not negative.
type part struct {
	literal string
	column  int
	name    string
	// pad is the width to which a number is padded with zeros; 0 is as it is.
	pad int
}

// parseTemplate reads a template. {name} is a column, {name:8} a column of
// digits padded with zeros to eight; {{ and }} are braces.
func parseTemplate(s string, at map[string]int) (*template, error) {
	t := &template{}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			t.literal(s)
			break
		}
		t.literal(s[:i])
		if i+1 < len(s) && s[i] == s[i+1] {
			t.literal(s[i : i+1])
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[i] == '}' || end < 0 {
			return nil, fmt.Errorf("%w: unbalanced brace in the key template; {{ and }} stand for braces", ErrColumns)
		}
		p, err := parsePart(s[i+1:end], at)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
		s = s[end+1:]
	}
	if !t.hasColumn() {
		return nil, fmt.Errorf("%w: the key template names no column", ErrColumns)
	}
	return t, nil
}

func (t *template) literal(s string) {
	if s != "" {
		t.parts = append(t.parts, part{literal: s, column: -1})
	}
}

func (t *template) hasColumn() bool {
	for _, p := range t.parts {
		if p.column >= 0 {
			return true
		}
	}
	return false
}

// parsePart reads what stands between braces. A column whose name has a colon
// is taken by its whole name first.
func parsePart(s string, at map[string]int) (part, error) {
	if i, ok := at[s]; ok {
		return part{column: i, name: s}, nil
	}
	name, width, padded := s, "", false
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		name, width, padded = s[:i], s[i+1:], true
	}
	i, err := column(at, name)
	if err != nil {
		return part{}, err
	}
	p := part{column: i, name: name}
	if padded {
		n, err := strconv.Atoi(width)
		if err != nil || n < 1 || n > maxPad {
			return part{}, fmt.Errorf("%w: {%s}: a width is 1 to %d", ErrColumns, s, maxPad)
		}
		p.pad = n
	}
	return p, nil
}

func (t *template) build(fields [][]byte) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.column < 0 {
			b.WriteString(p.literal)
			continue
		}
		s := string(fields[p.column])
		if s == "" {
			return "", fmt.Errorf("column %q, part of the key, is empty", p.name)
		}
		if p.pad > 0 {
			if strings.Trim(s, "0123456789") != "" || len(s) > p.pad {
				return "", fmt.Errorf("column %q, part of the key, is no number of at most %d digits", p.name, p.pad)
			}
			b.WriteString(strings.Repeat("0", p.pad-len(s)))
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
