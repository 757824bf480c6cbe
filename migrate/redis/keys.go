package redis

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// KeyForm says what becomes of a key that is not UTF-8. Keys that are stay as
// they are, with one exception under Percent.
type KeyForm string

// The forms of binary keys.
const (
	// Reject makes a fault of it; also the zero value.
	Reject KeyForm = "reject"
	// Percent writes each byte that is no part of a character as %XX. So that no
	// two keys meet, every % of every key becomes %25.
	Percent KeyForm = "percent"
	// Hex writes the whole key as hexadecimal digits, in lower case; the order
	// of such keys is that of their bytes.
	Hex KeyForm = "hex"
	// Base64URL writes the whole key in the URL's base64, without padding. As
	// with Hex, it could meet a text key of the same letters, which is told as a
	// duplicate.
	Base64URL KeyForm = "base64url"
)

func (f KeyForm) valid() bool {
	switch f {
	case "", Reject, Percent, Hex, Base64URL:
		return true
	}
	return false
}

// text returns the key as it is known from here on, and whether it has one.
func (f KeyForm) text(key string) (string, bool) {
	plain := utf8.ValidString(key)
	switch {
	case f == Percent:
		return percent(key), true
	case plain:
		return key, true
	case f == Hex:
		return hex.EncodeToString([]byte(key)), true
	case f == Base64URL:
		return base64.RawURLEncoding.EncodeToString([]byte(key)), true
	}
	return "", false
}

func percent(key string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(key); {
		r, n := utf8.DecodeRuneInString(key[i:])
		if r == '%' || r == utf8.RuneError && n == 1 {
			b.WriteByte('%')
			b.WriteByte(digits[key[i]>>4])
			b.WriteByte(digits[key[i]&15])
		} else {
			b.WriteString(key[i : i+n])
		}
		i += n
	}
	return b.String()
}
