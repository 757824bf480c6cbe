package keys

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/source"
)

// DefaultMaxLength is the longest key, in bytes, unless a tree says otherwise.
const DefaultMaxLength = 1024

// ParseError says what is wrong with a template, and where.
type ParseError struct {
	Template string
	// Offset is the place in bytes from the start.
	Offset int
	Reason string
}

// Error implements error.
func (e *ParseError) Error() string {
	return fmt.Sprintf("key template %q, character %d: %s", e.Template, utf8.RuneCountInString(e.Template[:e.Offset])+1, e.Reason)
}

// Options qualify a template.
type Options struct {
	// NullSegment stands for NULL; if it is empty, NULL is a fault.
	NullSegment string
	// MaxLength is the longest key in bytes; 0 is DefaultMaxLength.
	MaxLength int
}

// Template makes keys. It is safe for concurrent use.
type Template struct {
	text  string
	parts []part
	o     Options
}

// part is a literal, or a segment if field is set.
type part struct {
	literal string
	offset  int
	field   string
	form    form
	// before and after are the separators beside a segment, 0 for none.
	before, after rune
}

// Parse reads a template; an error is a *ParseError. If names is not nil, they
// are the only fields there are, and a name that has a colon in it is
// understood as a whole.
func Parse(text string, names []string, o Options) (*Template, error) {
	if o.MaxLength == 0 {
		o.MaxLength = DefaultMaxLength
	}
	t := &Template{text: text, o: o}
	if i := invalidAt(text); i >= 0 {
		return nil, &ParseError{strings.ToValidUTF8(text, "?"), i, "it is not UTF-8"}
	}
	if err := t.split(names); err != nil {
		return nil, err
	}
	if len(t.Fields()) == 0 {
		return nil, t.wrong(0, "it names no field, so all rows would have one key; write a name in braces, such as {id}")
	}
	t.findSeparators()
	if err := t.checkSegments(); err != nil {
		return nil, err
	}
	return t, nil
}

// wrong makes a ParseError.
func (t *Template) wrong(offset int, format string, args ...any) error {
	return &ParseError{t.text, offset, fmt.Sprintf(format, args...)}
}

func invalidAt(s string) int {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return i
		}
	}
	return -1
}

func (t *Template) split(names []string) error {
	for at := 0; at < len(t.text); {
		rest := t.text[at:]
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			t.literal(at, rest)
			return nil
		}
		t.literal(at, rest[:i])
		at, rest = at+i, rest[i:]
		if strings.HasPrefix(rest, "{{") || strings.HasPrefix(rest, "}}") {
			t.literal(at, rest[:1])
			at += 2
			continue
		}
		end := strings.IndexByte(rest, '}')
		if rest[0] == '}' {
			return t.wrong(at, "a brace closes that was not opened; }} stands for a brace")
		}
		if end < 0 {
			return t.wrong(at, "this brace is not closed; {{ stands for a brace")
		}
		if err := t.segment(at, rest[1:end], names); err != nil {
			return err
		}
		at += end + 1
	}
	return nil
}

// literal adds text, to the literal before it if there is one.
func (t *Template) literal(at int, s string) {
	if n := len(t.parts); n > 0 && t.parts[n-1].field == "" && s != "" {
		t.parts[n-1].literal += s
	} else if s != "" {
		t.parts = append(t.parts, part{literal: s, offset: at})
	}
}

func (t *Template) segment(at int, inside string, names []string) error {
	p := part{field: inside, offset: at}
	if !slices.Contains(names, inside) {
		if i := strings.LastIndexByte(inside, ':'); i >= 0 {
			p.field = inside[:i]
			var reason string
			if p.form, reason = parseForm(inside[i+1:]); reason != "" {
				return t.wrong(at+1+i+1, "%s", reason)
			}
		}
	}
	if p.field == "" {
		return t.wrong(at, "the braces hold no name")
	}
	if names != nil && !slices.Contains(names, p.field) {
		return t.wrong(at+1, "there is no field %q; there are: %s", p.field, strings.Join(names, ", "))
	}
	t.parts = append(t.parts, p)
	return nil
}

func (t *Template) findSeparators() {
	for i := range t.parts {
		if t.parts[i].field == "" {
			continue
		}
		if i > 0 && t.parts[i-1].field == "" {
			t.parts[i].before, _ = utf8.DecodeLastRuneInString(t.parts[i-1].literal)
		}
		if i+1 < len(t.parts) && t.parts[i+1].field == "" {
			t.parts[i].after, _ = utf8.DecodeRuneInString(t.parts[i+1].literal)
		}
	}
}

// checkSegments refuses templates that cannot keep rows apart.
func (t *Template) checkSegments() error {
	for i := range t.parts {
		p := &t.parts[i]
		if p.field == "" {
			continue
		}
		if p.form.kind == kindRaw && i+1 < len(t.parts) {
			return t.wrong(p.offset, "only the last segment can be raw: where it ends could not be told")
		}
		if i+1 < len(t.parts) && t.parts[i+1].field != "" && (p.form.width() == 0 || t.o.NullSegment != "") {
			return t.wrong(t.parts[i+1].offset, "two segments run together; put a separator such as / between them")
		}
		varies := p.form.width() == 0 || t.o.NullSegment != ""
		if p.after != 0 && varies && strings.ContainsRune(p.form.alphabet(), p.after) {
			return t.wrong(t.parts[i+1].offset, "%q cannot separate here: the form of {%s} may hold it", p.after, p.field)
		}
		if r := p.separatorIn(t.o.NullSegment); r != 0 {
			return t.wrong(p.offset, "the segment for NULL, %q, holds the separator %q", t.o.NullSegment, r)
		}
	}
	return nil
}

// String returns the text of the template.
func (t *Template) String() string { return t.text }

// Fields returns the names of the fields that it uses, in order.
func (t *Template) Fields() []string {
	var out []string
	for i := range t.parts {
		if f := t.parts[i].field; f != "" {
			out = append(out, f)
		}
	}
	return out
}

// Warnings returns what is allowed and probably not wanted, a sentence each.
func (t *Template) Warnings() []string {
	var out []string
	seen := map[rune]bool{}
	for i := range t.parts {
		p := &t.parts[i]
		if p.field != "" && p.after >= '0' && p.form.width() == 0 && !seen[p.after] {
			seen[p.after] = true
			out = append(out, fmt.Sprintf("%q sorts above digits, so what begins with 10%c comes after what begins with 100; / sorts below digits and letters", p.after, p.after))
		}
		if p.field != "" && p.form.kind == kindBase64 {
			out = append(out, fmt.Sprintf("base64 does not keep the order of {%s}; :hex does", p.field))
		}
	}
	return out
}

// Key makes the key of a record. Its errors are faults of the record, worded
// for people, and hold no value. A key that is too long is returned beside its
// error.
func (t *Template) Key(r *source.Record) (string, error) {
	size := len(t.text) + 64
	b := make([]byte, 0, size)
	for i := range t.parts {
		p := &t.parts[i]
		if p.field == "" {
			b = append(b, p.literal...)
			continue
		}
		v, ok := r.Get(p.field)
		if !ok {
			return "", fmt.Errorf("there is no field %q, which the key needs", p.field)
		}
		var err error
		if b, err = t.append(b, p, v); err != nil {
			return "", fmt.Errorf("field %q, part of the key, %w", p.field, err)
		}
	}
	if len(b) > t.o.MaxLength {
		return string(b), fmt.Errorf("the key has %d bytes and may have %d", len(b), t.o.MaxLength)
	}
	return string(b), nil
}
