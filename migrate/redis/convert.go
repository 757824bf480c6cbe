package redis

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// errReply: the server answered in a form that the protocol does not know.
var errReply = errors.New("the server's reply has an unexpected form")

// pair is a field of a hash or of a stream's entry, or a member with its score.
type pair struct{ name, value string }

// item is an entry of a stream.
type item struct {
	id     string
	fields []pair
}

// collection gathers the parts of a value, whichever its type.
type collection struct {
	kind    string
	members []string
	pairs   []pair
	items   []item
	// bytes are those of all parts.
	bytes int64
}

// add takes the elements of a reply to the command that reads the type.
func (c *collection) add(reply any) error {
	list, ok := reply.([]any)
	if !ok {
		return errReply
	}
	switch c.kind {
	case kindList, kindSet:
		return c.addMembers(list)
	case kindHash, kindZSet:
		pairs, err := pairsOf(list)
		for _, p := range pairs {
			c.bytes += int64(len(p.name) + len(p.value))
		}
		c.pairs = append(c.pairs, pairs...)
		return err
	}
	return c.addItems(list)
}

func (c *collection) addMembers(list []any) error {
	for _, v := range list {
		m, ok := v.(string)
		if !ok {
			return errReply
		}
		c.bytes += int64(len(m))
		c.members = append(c.members, m)
	}
	return nil
}

func (c *collection) addItems(list []any) error {
	for _, v := range list {
		entry, ok := v.([]any)
		if !ok || len(entry) != 2 {
			return errReply
		}
		id, ok := entry[0].(string)
		flat, isList := entry[1].([]any)
		if !ok || !isList {
			return errReply
		}
		fields, err := pairsOf(flat)
		if err != nil {
			return err
		}
		c.bytes += int64(len(id))
		for _, p := range fields {
			c.bytes += int64(len(p.name) + len(p.value))
		}
		c.items = append(c.items, item{id, fields})
	}
	return nil
}

func pairsOf(flat []any) ([]pair, error) {
	if len(flat)%2 != 0 {
		return nil, errReply
	}
	pairs := make([]pair, 0, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		name, ok := flat[i].(string)
		value, ok2 := flat[i+1].(string)
		if !ok || !ok2 {
			return nil, errReply
		}
		pairs = append(pairs, pair{name, value})
	}
	return pairs, nil
}

// json returns the value.
func (c *collection) json() ([]byte, error) {
	switch c.kind {
	case kindHash:
		slices.SortFunc(c.pairs, byName)
		c.pairs = slices.CompactFunc(c.pairs, func(a, b pair) bool { return a.name == b.name })
		return appendPairs(nil, c.pairs), nil
	case kindZSet:
		return scoresJSON(c.pairs)
	case kindStream:
		return itemsJSON(c.items), nil
	case kindSet:
		slices.Sort(c.members)
		c.members = slices.Compact(c.members)
	}
	out := []byte{'['}
	for i, m := range c.members {
		out = comma(out, i)
		out = appendText(out, m)
	}
	return append(out, ']'), nil
}

func byName(a, b pair) int { return strings.Compare(a.name, b.name) }

func itemsJSON(items []item) []byte {
	out := []byte{'['}
	for i, e := range items {
		out = comma(out, i)
		out = append(out, `{"id":`...)
		out = appendText(out, e.id)
		out = append(out, `,"fields":`...)
		out = appendPairs(out, e.fields)
		out = append(out, '}')
	}
	return append(out, ']')
}

func scoresJSON(pairs []pair) ([]byte, error) {
	out := []byte{'['}
	for i, p := range pairs {
		score, err := strconv.ParseFloat(p.value, 64)
		if err != nil || math.IsNaN(score) {
			return nil, fmt.Errorf("%w: a score is no number", errReply)
		}
		out = comma(out, i)
		out = append(out, `{"member":`...)
		out = appendText(out, p.name)
		out = append(out, `,"score":`...)
		switch {
		case math.IsInf(score, 1):
			out = append(out, `"inf"`...)
		case math.IsInf(score, -1):
			out = append(out, `"-inf"`...)
		default:
			// Of the shortest digits that mean the same number.
			out = strconv.AppendFloat(out, score, 'g', -1, 64)
		}
		out = append(out, '}')
	}
	return append(out, ']'), nil
}

// appendPairs writes an object, or an array of pairs where an object would lose
// something.
func appendPairs(out []byte, pairs []pair) []byte {
	object := distinctText(pairs)
	open, shut := byte('['), byte(']')
	if object {
		open, shut = '{', '}'
	}
	out = append(out, open)
	for i, p := range pairs {
		out = comma(out, i)
		if object {
			out = append(appendText(out, p.name), ':')
			out = appendText(out, p.value)
			continue
		}
		out = append(appendText(append(out, '['), p.name), ',')
		out = append(appendText(out, p.value), ']')
	}
	return append(out, shut)
}

// distinctText reports whether all names are text and none comes twice.
func distinctText(pairs []pair) bool {
	seen := make(map[string]struct{}, len(pairs))
	for _, p := range pairs {
		if _, twice := seen[p.name]; twice || !utf8.ValidString(p.name) {
			return false
		}
		seen[p.name] = struct{}{}
	}
	return true
}

// appendText writes a string, or {"base64":"…"} where it is not UTF-8.
func appendText(out []byte, s string) []byte {
	if !utf8.ValidString(s) {
		out = append(out, `{"base64":"`...)
		out = base64.StdEncoding.AppendEncode(out, []byte(s))
		return append(out, `"}`...)
	}
	if plain(s) {
		out = append(append(out, '"'), s...)
		return append(out, '"')
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always has a JSON form
	}
	return append(out, strings.TrimSuffix(b.String(), "\n")...)
}

// plain reports whether a string is its own JSON form.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func comma(out []byte, i int) []byte {
	if i > 0 {
		return append(out, ',')
	}
	return out
}
