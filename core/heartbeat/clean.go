package heartbeat

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds an error's text in a row, in bytes.
const maxText = 400

// secrets are what must not be kept, should an error of some library name it:
// the query of a URL, which may hold a signature, and whatever follows the name
// of a credential.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(://[^\s?"']*\?)[^\s"']+`),
	regexp.MustCompile(`(?i)((?:sig|signature|account_?key|shared_?access_?\w*|password|secret|token|authorization|bearer|credential)["']?\s*[=:]\s*)(?:bearer\s+|basic\s+)?[^\s;,&]+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
}

// clean returns an error as text that may be kept and shown: without secrets,
// on one line, of bounded length; empty for nil.
func clean(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > 16*maxText {
		text = text[:16*maxText]
	}
	for _, s := range secrets {
		text = s.ReplaceAllString(text, "${1}***")
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(text) > maxText {
		text = text[:maxText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return text
}
