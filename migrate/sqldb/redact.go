package sqldb

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// minSecret is the shortest secret that is looked for as such: shorter ones are
// parts of too many words.
const minSecret = 4

// The places of a password in an address and in words such as password=….
var (
	userInfo   = regexp.MustCompile(`(://[^\s:/@]*):[^\s@]*@`)
	assignment = regexp.MustCompile(`(?i)\b(password|passwd|pwd)(\s*=\s*)('[^']*'|"[^"]*"|\{[^}]*\}|[^\s;&,]+)`)
)

// withoutSecrets is the last line of defence: messages are made without
// secrets, but an engine may repeat one. It takes out what stands in the place
// of a password, and the secrets themselves where they are words of their own.
func withoutSecrets(text string, secrets []string) string {
	text = userInfo.ReplaceAllString(text, "$1:…@")
	text = assignment.ReplaceAllString(text, "$1$2…")
	for _, secret := range secrets {
		if utf8.RuneCountInString(secret) >= minSecret {
			text = withoutWord(text, secret)
		}
	}
	return text
}

// withoutWord takes a secret out where no letter or digit continues it.
func withoutWord(text, secret string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, secret)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(secret)
		if continues(b.String()+text[:i], secret) || continues(secret, text[end:]) {
			// Go on behind the first character, so that one that overlaps is found.
			_, n := utf8.DecodeRuneInString(text[i:])
			b.WriteString(text[:i+n])
			text = text[i+n:]
			continue
		}
		b.WriteString(text[:i])
		b.WriteString("…")
		text = text[end:]
	}
}

// continues reports whether two texts, one behind the other, make one word at
// their seam.
func continues(before, behind string) bool {
	x, _ := utf8.DecodeLastRuneInString(before)
	y, _ := utf8.DecodeRuneInString(behind)
	return before != "" && behind != "" && wordRune(x) && wordRune(y)
}

func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
