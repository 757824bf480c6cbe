package api

import (
	"bytes"
	"unicode/utf8"
)

// scan reads a line of the usual shape, a flat object of strings without
// escapes, and reports whether it was one. It takes nothing that parse would
// refuse, and understands nothing otherwise than parse does; what it does not
// take, parse decides on.
func (p *entryParser) scan(line []byte) bool {
	p.f = entryFields{}
	rest := bytes.TrimRight(line, " \t\r\n")
	if len(rest) < 2 || rest[0] != '{' || rest[len(rest)-1] != '}' {
		return false
	}
	rest = rest[1 : len(rest)-1]
	for {
		name, after, ok := cutString(rest)
		if !ok || len(after) == 0 || after[0] != ':' {
			return false
		}
		text, after, ok := cutString(skipSpace(after[1:]))
		if !ok || !p.take(name, text) {
			return false
		}
		if len(after) == 0 {
			return true
		}
		if after[0] != ',' {
			return false
		}
		rest = skipSpace(after[1:])
	}
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	return b
}

// cutString cuts what stands between two quotes from the front of b. It does
// not look inside.
func cutString(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	n := bytes.IndexByte(b[1:], '"')
	if n < 0 {
		return nil, nil, false
	}
	return b[1 : 1+n], b[2+n:], true
}

// take notes a member, and reports whether it is one that may be read so.
func (p *entryParser) take(name, text []byte) bool {
	i := fieldOf(name)
	if i >= fieldEnd || i == fieldJSON || p.f.given[i] {
		return false
	}
	p.f.given[i] = true
	if i != fieldValue {
		p.f.text[i] = text
		return plain(text)
	}
	// The decoder passes over line breaks, which JSON does not have in strings.
	if bytes.IndexByte(text, '\r') >= 0 {
		return false
	}
	value, ok := decodeBase64(p.value, text)
	p.value, p.f.value = value, value
	return ok
}

// plain reports whether a JSON string stands for itself.
func plain(text []byte) bool {
	ascii := true
	for _, c := range text {
		if c < 0x20 || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(text)
}
