package api

import (
	"encoding/json"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

const (
	textType = "text/plain; charset=utf-8"
	opSet    = "set"
	opDelete = "delete"
)

// batchRequest is the body of POST …/batch.
type batchRequest struct {
	ops    []tree.BatchOp
	atomic bool
	// operationID names an atomic batch; it is empty if none was given.
	operationID string
}

// parseBatch reads and checks a batch as a whole: one bad operation and
// nothing is written.
func (s *Server) parseBatch(body []byte) (batchRequest, error) {
	var req batchRequest
	given, named := false, false
	size := sizer{limit: s.opts.MaxBatchBytes}
	err := parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (known bool, err error) {
			switch name {
			case "operations":
				given = true
				return true, p.array(name, func(path string) error {
					return s.parseOperation(p, path, &req, &size)
				})
			case "atomic":
				req.atomic, err = p.boolean(name)
				return true, err
			case "operationId":
				named = true
				req.operationID, err = p.text(name)
				return true, err
			}
			return false, nil
		})
	})
	if err == nil && !given {
		err = argument("operations", "missing")
	}
	if err != nil {
		return batchRequest{}, err
	}
	return req, checkAtomic(&req, named)
}

// checkAtomic refuses an operation id that would mean nothing.
func checkAtomic(req *batchRequest, named bool) error {
	switch {
	case named && req.operationID == "":
		return argument("operationId", "must not be empty")
	case named && !req.atomic:
		return argument("operationId", "is for atomic batches, whose outcome is one for all operations; add \"atomic\":true")
	}
	return nil
}

func (s *Server) parseOperation(p *parser, path string, req *batchRequest, size *sizer) error {
	if err := s.checkOperations(len(req.ops) + 1); err != nil {
		return err
	}
	d := &draft{path: path}
	if err := p.object(path, func(name string) (bool, error) { return d.field(p, name) }); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	if err := checkKeyForm(path+".key", d.op.Key); err != nil {
		return err
	}
	req.ops = append(req.ops, d.op)
	return size.add(len(d.op.Key) + len(d.op.Value))
}

// draft is one operation while it is read.
type draft struct {
	path string
	kind string
	op   tree.BatchOp
	// values names the value fields given.
	values []string
	// setOnly names the fields given that a delete cannot have.
	setOnly []string
}

func (d *draft) field(p *parser, name string) (known bool, err error) {
	at := join(d.path, name)
	switch name {
	case "op":
		d.kind, err = p.text(at)
	case "key":
		d.op.Key, err = p.text(at)
	case "ifVersion":
		d.op.IfVersion, err = p.version(at)
	case "ifAbsent":
		d.setOnly = append(d.setOnly, name)
		d.op.IfAbsent, err = p.boolean(at)
	case "ttl":
		d.setOnly = append(d.setOnly, name)
		d.op.TTL, err = p.ttl(at)
	case "value", "text", "json":
		d.setOnly = append(d.setOnly, name)
		d.values = append(d.values, name)
		err = d.value(p, at, name)
	default:
		return false, nil
	}
	return true, err
}

func (d *draft) value(p *parser, at, name string) (err error) {
	switch name {
	case "value":
		d.op.Type = defaultType
		d.op.Value, err = p.bytes(at)
	case "text":
		d.op.Type = textType
		var text string
		text, err = p.text(at)
		d.op.Value = []byte(text)
	case "json":
		d.op.Type = jsonType
		var doc []byte
		if doc, err = p.raw(at); err == nil {
			d.op.Value, err = compactJSON(doc)
		}
	}
	return err
}

// check holds the fields against each other.
func (d *draft) check() error {
	switch d.kind {
	case opDelete:
		d.op.Delete = true
		if len(d.setOnly) > 0 {
			return argument(join(d.path, d.setOnly[0]), "does not go with op delete")
		}
	case opSet:
		if len(d.values) != 1 {
			return argument(d.path, "exactly one of value, text and json is needed, not %d", len(d.values))
		}
		if d.op.IfAbsent && !d.op.IfVersion.IsZero() {
			return argument(join(d.path, "ifAbsent"), "does not go with ifVersion")
		}
	default:
		return argument(join(d.path, "op"), "must be set or delete")
	}
	return nil
}

// version reads a version, which every answer gives in one form only.
func (p *parser) version(path string) (clock.Version, error) {
	s, err := p.text(path)
	if err != nil {
		return clock.Version{}, err
	}
	v, err := clock.ParseVersion(s)
	if err != nil || v.IsZero() || v.String() != s {
		return clock.Version{}, argument(path, "not a version")
	}
	return v, nil
}

// ttl reads a time to live: a string or a number of seconds.
func (p *parser) ttl(path string) (time.Duration, error) {
	text, err := p.durationText(path)
	if err != nil {
		return 0, err
	}
	return parseTTL(path, string(text))
}

// durationText reads what is to be a duration: a string, or the digits of a
// number.
func (p *parser) durationText(path string) ([]byte, error) {
	raw, err := p.raw(path)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	if raw[0] == '"' && json.Unmarshal(raw, &text) != nil {
		return nil, argument(path, "must be a duration or a number of seconds")
	}
	return []byte(text), nil
}
