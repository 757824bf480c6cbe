package sqldb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/source"
)

// position is where an enumeration stands.
type position struct {
	// Key are the tokens of the last row's key columns, null for NULL.
	Key []*string `json:"key"`
	// Of are the key columns: a position serves no other order.
	Of []string `json:"of"`
}

// encodePosition writes the tokens of a key.
func encodePosition(keys []*column, tokens []any) (source.Position, error) {
	p := position{Of: columnNames(keys), Key: make([]*string, len(tokens))}
	for i, t := range tokens {
		if t == nil {
			continue
		}
		text, err := encodeToken(t)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", keys[i].name, err)
		}
		p.Key[i] = &text
	}
	return json.Marshal(p)
}

// decodePosition reads what encodePosition wrote; a nil position gives nil.
func decodePosition(keys []*column, from source.Position) ([]any, error) {
	if from == nil {
		return nil, nil
	}
	var p position
	if err := json.Unmarshal(from, &p); err != nil {
		return nil, fmt.Errorf("%w: it is not one of a database", source.ErrRestart)
	}
	if names := columnNames(keys); len(p.Key) != len(keys) || fmt.Sprint(p.Of) != fmt.Sprint(names) {
		return nil, fmt.Errorf("%w: it was made with other key columns", source.ErrRestart)
	}
	tokens := make([]any, len(keys))
	for i, text := range p.Key {
		if text == nil {
			continue
		}
		t, err := decodeToken(*text)
		if err != nil {
			return nil, fmt.Errorf("%w: column %s: %w", source.ErrRestart, keys[i].name, err)
		}
		tokens[i] = t
	}
	return tokens, nil
}

func columnNames(columns []*column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// encodeToken writes a value with its type, exactly: i, u, f, t for numbers and
// truth, s for text, x for text that is not UTF-8, b for bytes.
func encodeToken(v any) (string, error) {
	switch v := v.(type) {
	case int64:
		return "i:" + strconv.FormatInt(v, 10), nil
	case uint64:
		return "u:" + strconv.FormatUint(v, 10), nil
	case float64:
		return "f:" + strconv.FormatFloat(v, 'g', -1, 64), nil
	case bool:
		return "t:" + strconv.FormatBool(v), nil
	case string:
		if utf8.ValidString(v) {
			return "s:" + v, nil
		}
		return "x:" + base64.StdEncoding.EncodeToString([]byte(v)), nil
	case []byte:
		return "b:" + base64.StdEncoding.EncodeToString(v), nil
	}
	return "", fmt.Errorf("a value of type %T cannot be part of a position", v)
}

func decodeToken(text string) (any, error) {
	if len(text) < 2 || text[1] != ':' {
		return nil, errToken
	}
	v, err := decodeTyped(text[0], text[2:])
	if err != nil {
		return nil, errToken
	}
	return v, nil
}

var errToken = fmt.Errorf("not a value of a position")

func decodeTyped(tag byte, rest string) (any, error) {
	switch tag {
	case 'i':
		return strconv.ParseInt(rest, 10, 64)
	case 'u':
		return strconv.ParseUint(rest, 10, 64)
	case 'f':
		return strconv.ParseFloat(rest, 64)
	case 't':
		return strconv.ParseBool(rest)
	case 's':
		return rest, nil
	case 'x':
		b, err := base64.StdEncoding.DecodeString(rest)
		return string(b), err
	case 'b':
		return base64.StdEncoding.DecodeString(rest)
	}
	return nil, errToken
}

// tokenOf makes the token of a key column of what the driver gives for it.
func (c *column) tokenOf(v any) (any, error) {
	if v == nil || c.typed == nil {
		return plainToken(v), nil
	}
	return c.typed(v)
}

// plainToken makes a token of what a driver gives.
func plainToken(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case float32:
		return float64(v)
	case []byte:
		if v == nil {
			// As a parameter nil would be NULL.
			return []byte{}
		}
	}
	return v
}

// sameNumber takes numbers for the same whatever their type.
func sameNumber(v any) any {
	f, ok := v.(float64)
	if !ok || f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
		return v
	}
	return int64(f)
}
