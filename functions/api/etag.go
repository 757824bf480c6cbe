package api

import (
	"strings"

	"github.com/latticekv/lattice/core/clock"
)

// tag is one entity tag (RFC 9110, section 8.8.3).
type tag struct {
	weak   bool
	opaque string
}

// tagList is the value of If-Match or If-None-Match.
type tagList struct {
	// any is the value "*".
	any  bool
	tags []tag
}

func quoteVersion(v clock.Version) string { return `"` + v.String() + `"` }

// parseTags reads a condition header, nil if it is absent. Several lines of
// one header are one list. Empty list elements are allowed, as RFC 9110 5.6.1
// has it, but at least one element must be there.
func parseTags(name string, lines []string) (*tagList, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	value := strings.Join(lines, ",")
	if strings.Trim(value, " \t") == "*" {
		return &tagList{any: true}, nil
	}
	list := &tagList{}
	for rest := skipListSpace(value); rest != ""; rest = skipListSpace(rest) {
		t, after, ok := cutTag(rest)
		if !ok {
			return nil, argument(name, "not a list of quoted entity tags, nor *")
		}
		list.tags = append(list.tags, t)
		rest = strings.TrimLeft(after, " \t")
		if rest != "" && rest[0] != ',' {
			return nil, argument(name, "entity tags are separated by commas")
		}
	}
	if len(list.tags) == 0 {
		return nil, argument(name, "empty")
	}
	return list, nil
}

func skipListSpace(s string) string { return strings.TrimLeft(s, " \t,") }

// cutTag reads one entity tag from the front of s.
func cutTag(s string) (t tag, rest string, ok bool) {
	s, t.weak = strings.CutPrefix(s, "W/")
	if !strings.HasPrefix(s, `"`) {
		return tag{}, "", false
	}
	t.opaque, rest, ok = strings.Cut(s[1:], `"`)
	for i := 0; i < len(t.opaque); i++ {
		if c := t.opaque[i]; c < 0x21 || c == 0x7f {
			return tag{}, "", false
		}
	}
	return t, rest, ok
}

// matchStrong reports whether a tag of the list stands for v in
// the comparison of If-Match, where weak tags never match.
func (l *tagList) matchStrong(v clock.Version) bool {
	return l.match(v, false)
}

// matchWeak is the comparison of If-None-Match: weakness does not matter.
func (l *tagList) matchWeak(v clock.Version) bool {
	return l.match(v, true)
}

func (l *tagList) match(v clock.Version, weakly bool) bool {
	if l.any {
		return true
	}
	want := v.String()
	for _, t := range l.tags {
		if t.opaque == want && (weakly || !t.weak) {
			return true
		}
	}
	return false
}

// single returns the one version that the list can match strongly, if it has
// exactly one tag and that is a version of ours.
func (l *tagList) single() (clock.Version, bool) {
	if l.any || len(l.tags) != 1 || l.tags[0].weak {
		return clock.Version{}, false
	}
	v, err := clock.ParseVersion(l.tags[0].opaque)
	if err != nil || v.IsZero() || v.String() != l.tags[0].opaque {
		return clock.Version{}, false
	}
	return v, true
}
