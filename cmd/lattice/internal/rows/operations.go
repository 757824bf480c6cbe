package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/delimited"
)

// Operation is one operation of a batch, and the line it stands on, from 1.
type Operation struct {
	client.Op
	Line int64
}

// wireOperation is a line.
type wireOperation struct {
	Op        json.RawMessage `json:"op"`
	Key       json.RawMessage `json:"key"`
	Value     json.RawMessage `json:"value"`
	Text      json.RawMessage `json:"text"`
	JSON      json.RawMessage `json:"json"`
	TTL       json.RawMessage `json:"ttl"`
	IfVersion json.RawMessage `json:"ifVersion"`
	IfAbsent  *bool           `json:"ifAbsent"`
}

// Operations reads all lines of the form {"op":"set", "key": …, "value": base64 |
// "text": … | "json": …, "ttl"?, "ifVersion"?, "ifAbsent"?} and {"op":"delete",
// "key": …, "ifVersion"?}: up to maxOps of them, and maxBytes in all. Empty lines
// are skipped. A *Fault tells what is wrong with the first bad line.
func Operations(r io.Reader, maxOps, maxBytes int) ([]Operation, error) {
	lines := delimited.NewLines(r, maxBytes)
	var ops []Operation
	for size := 0; ; {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return ops, nil
		}
		if size += len(line); errors.Is(err, delimited.ErrLong) || err == nil && size > maxBytes {
			return nil, &Fault{Line: lines.Number(), Reason: fmt.Sprintf("the operations are longer than %d bytes", maxBytes)}
		}
		if err != nil {
			return nil, err
		}
		if line = delimited.Chomp(line); len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		op, err := decodeOperation(line)
		if err != nil {
			return nil, &Fault{Line: lines.Number(), Key: op.Key, Reason: err.Error()}
		}
		if ops = append(ops, Operation{op, lines.Number()}); len(ops) > maxOps {
			return nil, &Fault{Line: lines.Number(), Reason: fmt.Sprintf("more than %d operations", maxOps)}
		}
	}
}

func decodeOperation(line []byte) (op client.Op, err error) {
	if !utf8.Valid(line) {
		return op, errors.New("not UTF-8")
	}
	var w wireOperation
	d := json.NewDecoder(bytes.NewReader(bytes.Clone(line)))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return op, fmt.Errorf("malformed JSON: %w", plain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return op, errors.New("malformed JSON: more than one value on the line")
	}
	kind, err := text("op", w.Op)
	if err != nil {
		return op, err
	}
	if op.Key, err = text("key", w.Key); err != nil {
		return op, err
	}
	if op.Key == "" {
		return op, errors.New("the key is empty")
	}
	if w.IfVersion != nil {
		if op.IfVersion, err = text("ifVersion", w.IfVersion); err != nil {
			return op, err
		}
	}
	switch kind {
	case "set":
		return op, w.set(&op)
	case "delete":
		op.Delete = true
		return op, w.remove()
	}
	return op, fmt.Errorf(`"op" must be "set" or "delete", not %q`, kind)
}

func (w *wireOperation) set(op *client.Op) error {
	if err := (&wireRow{Value: w.Value, Text: w.Text, JSON: w.JSON}).value(op); err != nil {
		return err
	}
	op.IfAbsent = w.IfAbsent != nil && *w.IfAbsent
	if op.IfAbsent && op.IfVersion != "" {
		return errors.New(`"ifAbsent" and "ifVersion" exclude each other`)
	}
	if w.TTL == nil {
		return nil
	}
	ttl, err := ParseTTL(strings.Trim(string(w.TTL), `"`))
	op.TTL = ttl
	return err
}

// remove refuses what a delete cannot have.
func (w *wireOperation) remove() error {
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{"value", w.Value}, {"text", w.Text}, {"json", w.JSON}, {"ttl", w.TTL}} {
		if f.raw != nil {
			return fmt.Errorf("%q does not go with a delete", f.name)
		}
	}
	if w.IfAbsent != nil {
		return errors.New(`"ifAbsent" does not go with a delete`)
	}
	return nil
}
