package keys

import (
	"fmt"
	"strconv"
	"strings"
)

// kind is how a segment is written.
type kind int

const (
	kindText kind = iota
	kindRaw
	kindPadded
	kindHex
	kindBase64
	kindTime
	kindUnix
	kindUnixMilli
	kindDate
)

// maxDigits bounds the width of a number.
const maxDigits = 100

// form is what stands behind the colon.
type form struct {
	kind kind
	// digits is the width of a padded number, without the sign.
	digits int
	// signed is the form that has a place for numbers below zero.
	signed bool
}

// forms by name.
var forms = map[string]form{
	"raw": {kind: kindRaw}, "hex": {kind: kindHex}, "b64": {kind: kindBase64}, "rfc3339": {kind: kindTime},
	"unix": {kind: kindUnix}, "unixms": {kind: kindUnixMilli}, "date": {kind: kindDate},
}

// parseForm returns the form, or what is wrong with it.
func parseForm(s string) (f form, reason string) {
	if f, ok := forms[s]; ok {
		return f, ""
	}
	digits, signed := strings.CutPrefix(strings.TrimSuffix(s, "d"), "+")
	n, err := strconv.Atoi(digits)
	if err != nil || strings.Trim(digits, "0123456789") != "" {
		return f, fmt.Sprintf("%q is no form; there are a width such as 019d or +19d, hex, b64, rfc3339, unix, unixms, date and raw", s)
	}
	if n < 1 || n > maxDigits {
		return f, fmt.Sprintf("a width is 1 to %d", maxDigits)
	}
	return form{kind: kindPadded, digits: n, signed: signed}, ""
}

// width is the constant width of the form in bytes, 0 if it varies.
func (f form) width() int {
	switch f.kind {
	case kindPadded:
		if f.signed {
			return f.digits + 1
		}
		return f.digits
	case kindTime:
		return len("2006-01-02T15:04:05.000000000Z")
	case kindDate:
		return len("2006-01-02")
	case kindUnix:
		return 12
	case kindUnixMilli:
		return 15
	}
	return 0
}

// alphabet holds the characters that the form is made of, "" if it can be any.
func (f form) alphabet() string {
	switch f.kind {
	case kindHex:
		return "0123456789abcdef"
	case kindBase64:
		return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	case kindPadded, kindUnix, kindUnixMilli:
		return "0123456789"
	case kindTime, kindDate:
		return "0123456789-:.TZ"
	}
	return ""
}
