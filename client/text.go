package client

import "unicode/utf8"

func validText(s string) bool { return utf8.ValidString(s) }

// escapedLen bounds the length of s as a JSON string without its quotes.
func escapedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		n += escapeCost(s[i])
	}
	return n
}

func escapedBytes(b []byte) int {
	n := len(b)
	for _, c := range b {
		n += escapeCost(c)
	}
	return n
}

// escapeCost bounds what escaping adds to one byte. U+2028 and U+2029, three
// bytes each that start with 0xE2, become six.
func escapeCost(c byte) int {
	switch {
	case c < 0x20 || c == 0x7f:
		return 5
	case c == '"' || c == '\\':
		return 1
	case c == 0xE2:
		return 3
	}
	return 0
}
