package funcshost

import (
	"net/url"
	"strings"
)

// forwardedQuery is the query that the handler gets: each name once, whatever
// its case, with its values joined by commas; escapes that stand for no text
// have become text.
func forwardedQuery(raw string) string {
	var names []string
	values := map[string][]string{}
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, value = formText(name), formText(value)
		if name == "" && value == "" {
			continue
		}
		key := strings.ToLower(name)
		if _, known := values[key]; !known {
			names = append(names, name)
		}
		values[key] = append(values[key], value)
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = formEscape(name) + "=" + formEscape(strings.Join(values[strings.ToLower(name)], ","))
	}
	return strings.Join(parts, "&")
}

func formText(s string) string {
	return unescape(strings.ReplaceAll(s, "+", " "), func(byte) bool { return false })
}

func formEscape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
