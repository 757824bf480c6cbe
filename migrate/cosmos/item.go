package cosmos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// system are the properties that the service adds.
var system = []string{"_rid", "_self", "_etag", "_attachments", "_ts"}

const (
	stamp = "_ts"
	ttl   = "ttl"
)

// property is a member of an item, both parts as they were written.
type property struct {
	name string
	raw  json.RawMessage
}

// properties divides an item, keeping order and digits.
func properties(item []byte) ([]property, error) {
	dec := json.NewDecoder(bytes.NewReader(item))
	open, err := dec.Token()
	if err != nil || open != json.Delim('{') {
		return nil, errors.New("the item is no JSON object")
	}
	var out []property
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("the item is no JSON object: %w", err)
		}
		p := property{}
		p.name, _ = name.(string) // the name of a member is a string
		if err := dec.Decode(&p.raw); err != nil {
			return nil, fmt.Errorf("the item is no JSON object: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// record makes the record of an item, or says why it cannot.
func (s *Source) record(item []byte) (source.Record, *source.Fault) {
	props, err := properties(item)
	if err != nil {
		return source.Record{}, &source.Fault{Origin: "an item of " + s.opts.Container, Reason: err.Error()}
	}
	id, ok := scalar(find(props, "id")).(string)
	if !ok {
		return source.Record{}, &source.Fault{Origin: "an item of " + s.opts.Container, Reason: "the item has no id"}
	}
	r := source.Record{Type: "application/json"}
	r.Fields = append(r.Fields, source.Field{Name: "id", Value: id})
	var where []string
	for i, name := range s.shape.names() {
		raw := at(props, s.shape.paths[i])
		r.Fields = append(r.Fields, source.Field{Name: name, Value: scalar(raw)})
		where = append(where, partition(raw))
		if len(s.shape.paths[i]) > 1 {
			r.Fields = append(r.Fields, source.Field{Name: strings.Join(s.shape.paths[i], "."), Value: scalar(raw)})
		}
	}
	r.Origin = fmt.Sprintf("item %q of partition %s", id, strings.Join(where, "/"))
	if r.Expiry, err = s.shape.expiry(props); err != nil {
		return source.Record{}, &source.Fault{Origin: r.Origin, Reason: err.Error()}
	}
	r.Fields = s.addFields(r.Fields, props)
	r.Payload = s.payload(props)
	return r, nil
}

// addFields adds the properties whose names are not taken.
func (s *Source) addFields(fields []source.Field, props []property) []source.Field {
	taken := make(map[string]bool, len(fields)+len(props))
	for _, f := range fields {
		taken[f.Name] = true
	}
	for _, p := range props {
		if !taken[p.name] && (s.opts.KeepSystem || p.name == stamp || !slices.Contains(system, p.name)) {
			taken[p.name] = true
			fields = append(fields, source.Field{Name: p.name, Value: scalar(p.raw)})
		}
	}
	return fields
}

// payload is the item again, less the system's properties.
func (s *Source) payload(props []property) []byte {
	out := []byte{'{'}
	for _, p := range props {
		if !s.opts.KeepSystem && slices.Contains(system, p.name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, quote(p.name)...)
		out = append(out, ':')
		out = append(out, p.raw...)
	}
	return append(out, '}')
}

func quote(name string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(name); err != nil {
		panic(err) // a string always has a JSON form
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

func find(props []property, name string) json.RawMessage {
	for _, p := range props {
		if p.name == name {
			return p.raw
		}
	}
	return nil
}

// at follows a path into an item; nil if it leads nowhere.
func at(props []property, path []string) json.RawMessage {
	raw := find(props, path[0])
	for _, step := range path[1:] {
		inner, err := properties(raw)
		if err != nil {
			return nil
		}
		raw = find(inner, step)
	}
	return raw
}

// partition names a partition key's value for people: one that is missing is
// another than null.
func partition(raw json.RawMessage) string {
	if raw == nil {
		return "none"
	}
	return string(raw)
}

// scalar is a value as a field has it: integers and decimals in all their
// digits, objects and arrays as JSON.
func scalar(raw json.RawMessage) any {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	switch raw[0] {
	case '"':
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text
		}
	case 't', 'f':
		return raw[0] == 't'
	case '{', '[':
		return raw
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return n
	}
	return source.Number(raw)
}

// expiry is when an item ceases to exist: _ts plus its own time to live, or the
// container's, all in seconds. An item's own counts only where the container
// has the feature on.
func (sh shape) expiry(props []property) (time.Time, error) {
	if sh.timeToLive == nil {
		return time.Time{}, nil
	}
	seconds := int64(*sh.timeToLive)
	if own, ok := scalar(find(props, ttl)).(int64); ok && (own > 0 || own == -1) {
		seconds = own
	}
	if seconds <= 0 {
		return time.Time{}, nil
	}
	const most = 1 << 31 // seconds: what the service allows
	written, ok := scalar(find(props, stamp)).(int64)
	if !ok || seconds > most {
		return time.Time{}, errors.New("the item has a time to live, but no usable _ts: when it expires is not known")
	}
	return time.Unix(written+seconds, 0).UTC(), nil
}
