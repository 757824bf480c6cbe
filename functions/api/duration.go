package api

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/options"
)

// maxTTL bounds a time to live, so that no expiry overflows: a hundred years.
const maxTTL = 100 * 365 * 24 * time.Hour

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// parseTTL reads a time to live: positive and at most maxTTL.
func parseTTL(field, s string) (time.Duration, error) {
	d, err := options.ParseDuration(s)
	if err != nil {
		return 0, argument(field, "%v", err)
	}
	if d <= 0 {
		return 0, argument(field, "must be positive")
	}
	if d > maxTTL {
		return 0, argument(field, "must be at most %s", maxTTL)
	}
	return d, nil
}

// requestTTL returns the time to live that the header Lattice-TTL or the
// parameter ttl gives, 0 if neither does. Both may be given if they agree.
func requestTTL(h http.Header, query map[string]string) (time.Duration, error) {
	var ttl time.Duration
	lines := h.Values("Lattice-TTL")
	if len(lines) > 1 {
		return 0, argument("Lattice-TTL", "given more than once")
	}
	if len(lines) == 1 {
		d, err := parseTTL("Lattice-TTL", strings.TrimSpace(lines[0]))
		if err != nil {
			return 0, err
		}
		ttl = d
	}
	param, ok := query["ttl"]
	if !ok {
		return ttl, nil
	}
	d, err := parseTTL("ttl", param)
	if err == nil && ttl != 0 && ttl != d {
		err = argument("ttl", "differs from the header Lattice-TTL")
	}
	return d, err
}

// maxAge returns the staleness that Cache-Control accepts; 0 demands a
// linearizable answer. no-cache and no-store demand it too; directives that do
// not concern a read are ignored.
func maxAge(lines []string) (time.Duration, error) {
	age, given := time.Duration(math.MaxInt64), false
	for _, directive := range splitQuoted(strings.Join(lines, ","), ',') {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "no-cache", "no-store":
			age, given = 0, true
		case "max-age":
			d, err := parseMaxAge(value)
			if err != nil {
				return 0, err
			}
			age, given = min(age, d), true
		}
	}
	if !given {
		return 0, nil
	}
	return age, nil
}

// parseMaxAge reads delta-seconds; what does not fit is as good as 2^31
// (RFC 9111, section 1.2.2).
func parseMaxAge(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	if !isDigits(s) {
		return 0, argument("Cache-Control", "max-age is not a number of seconds")
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		n = math.MaxInt32
	}
	return time.Duration(n) * time.Second, nil
}

// splitQuoted splits at sep outside double quotes.
func splitQuoted(s string, sep byte) []string {
	var parts []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}
