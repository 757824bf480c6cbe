package funcshost

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// serverPath is what the host's server makes of a path as it was sent: unescaped
// but for %2F and what is no UTF-8, without dot segments. A path with a NUL is
// refused.
func serverPath(raw string) (string, error) {
	path := unescape(raw, func(b byte) bool { return b == '/' })
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("the path %q has a NUL", raw)
	}
	return withoutDots(path), nil
}

// forwardedPath is the path under which the host calls the handler. It builds an
// address out of the unescaped path and parses that: a # or ? ends the path, what
// looks like an escape becomes one, and dot segments are taken out once more.
func forwardedPath(path string, queried bool) string {
	if !queried {
		// Nothing stands behind the path then, and white space at the end of an
		// address is cut.
		path = strings.TrimRight(path, " \t\r\n")
	}
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = path[:end]
	}
	path = strings.ReplaceAll(path, `\`, "/")
	path = strings.Map(func(r rune) rune {
		if bidirectional(r) {
			return -1
		}
		return r
	}, path)
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		value, isEscape := escaped(path, i)
		switch {
		case isEscape && unreserved(value):
			b.WriteByte(value)
			i += 2
		case isEscape:
			b.WriteString(path[i : i+3])
			i += 2
		case unreserved(path[i]) || strings.IndexByte("/:@!$&'()*+,;=", path[i]) >= 0:
			b.WriteByte(path[i])
		default:
			fmt.Fprintf(&b, "%%%02X", path[i])
		}
	}
	return withoutDots(b.String())
}

// bidirectional reports whether a rune is one of those that steer the direction
// of text; addresses are cleaned of them.
func bidirectional(r rune) bool { return r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e }

func unreserved(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || strings.IndexByte("-._~", c) >= 0
}

// escaped returns the byte that a percent sign at i stands for.
func escaped(s string, i int) (value byte, ok bool) {
	if i+2 >= len(s) || s[i] != '%' {
		return 0, false
	}
	_, err := fmt.Sscanf(s[i+1:i+3], "%02x", &value)
	return value, err == nil && hex(s[i+1]) && hex(s[i+2])
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' || 'a' <= c && c <= 'f'
}

// unescape replaces escapes by what they stand for, as far as that is UTF-8 and
// none of those that are kept.
func unescape(s string, keep func(byte) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		var run []byte
		at := i
		for value, ok := escaped(s, at); ok && !keep(value); value, ok = escaped(s, at) {
			run = append(run, value)
			at += 3
		}
		for len(run) > 0 {
			r, size := utf8.DecodeRune(run)
			if r == utf8.RuneError && size == 1 {
				b.WriteString(s[i : i+3])
			} else {
				b.Write(run[:size])
			}
			run, i = run[size:], i+3*size
		}
		if i < len(s) {
			b.WriteByte(s[i])
			i++
		}
	}
	return b.String()
}

// withoutDots takes the segments . and .. out of a path.
func withoutDots(path string) string {
	var kept []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}
