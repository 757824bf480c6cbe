package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/source"
)

// The types, as TYPE names them.
const (
	kindString = "string"
	kindHash   = "hash"
	kindList   = "list"
	kindSet    = "set"
	kindZSet   = "zset"
	kindStream = "stream"
	kindJSON   = "ReJSON-RL"
	kindNone   = "none"
)

// kinds are the types that can be read.
var kinds = []string{kindString, kindHash, kindList, kindSet, kindZSet, kindStream, kindJSON}

const (
	// batchBytes and batchKeys bound what one exchange reads.
	batchBytes = 8 << 20
	batchKeys  = 1000
	// wholeCount and wholeBytes bound a collection that is read by one command.
	wholeCount = 1000
	wholeBytes = 1 << 20
	// maxRounds is how often a key is read that changes meanwhile.
	maxRounds = 5
)

// entry is a key on its way to a record.
type entry struct {
	key  string
	kind string
	// size is the length of a string, in bytes; the elements of a collection.
	size int64
	// memory is what the key takes on the server, -1 if it does not tell.
	memory int64
}

// whole reports whether one command may read the value.
func (e *entry) whole() bool {
	switch e.kind {
	case kindString, kindJSON:
		return true
	}
	return e.size <= wholeCount && e.memory <= wholeBytes
}

// bytes is about what reading the value costs.
func (e *entry) bytes() int64 {
	if e.kind == kindString {
		return e.size
	}
	return max(e.memory, e.size)
}

// fetch reads keys and emits their records, in one page or several. The last
// one is told to be it; there is always one.
func (s *Source) fetch(ctx context.Context, keys []string, emit func(p source.Page, last bool) error) error {
	var page source.Page
	entries := make([]*entry, len(keys))
	for i, k := range keys {
		entries[i] = &entry{key: k}
	}
	for round := 1; len(entries) > 0; round++ {
		if err := s.describe(ctx, entries, &page); err != nil {
			return err
		}
		var again []*entry
		for batch := range batches(present(entries)) {
			if len(page.Records)+len(page.Faults) > 0 {
				if err := emit(page, false); err != nil {
					return err
				}
				page = source.Page{}
			}
			changed, err := s.values(ctx, batch, &page)
			if err != nil {
				return err
			}
			again = append(again, changed...)
		}
		if round == maxRounds {
			for _, e := range again {
				s.fault(&page, e.key, "the key changes faster than it can be read; run again when it is quieter")
			}
			break
		}
		entries = again
	}
	return emit(page, true)
}

// present are the entries that are still to be read.
func present(entries []*entry) []*entry {
	var found []*entry
	for _, e := range entries {
		if e.kind != kindNone {
			found = append(found, e)
		}
	}
	return found
}

// batches groups entries so that each group costs about batchBytes. A
// collection that is read in parts is a group of its own.
func batches(entries []*entry) func(yield func([]*entry) bool) {
	return func(yield func([]*entry) bool) {
		for start := 0; start < len(entries); {
			end, cost := start, int64(0)
			for end < len(entries) && end-start < batchKeys && (end == start || entries[end].whole() && cost+entries[end].bytes() <= batchBytes) {
				cost += entries[end].bytes()
				end++
				if !entries[end-1].whole() {
					break
				}
			}
			if !yield(entries[start:end]) {
				return
			}
			start = end
		}
	}
}

// describe learns type and size of keys. An entry that needs no reading any
// more is left with kindNone, its outcome in the page.
func (s *Source) describe(ctx context.Context, entries []*entry, page *source.Page) error {
	cmds, err := s.pipeline(ctx, len(entries), func(p goredis.Pipeliner, i int) {
		p.Type(ctx, entries[i].key)
	})
	if err != nil {
		return err
	}
	for i, e := range entries {
		kind, err := cmds[i].(*goredis.StatusCmd).Result()
		e.kind, e.memory = kind, -1
		switch {
		case err != nil:
			s.faultOf(page, e, err)
		case kind == kindNone:
			page.Expired++
		case !s.wants(kind):
			e.kind = kindNone
		case sizeCommands[kind] == "" && kind != kindJSON:
			s.fault(page, e.key, fmt.Sprintf("values of type %s cannot be carried; leave them out with --type", strconv.Quote(kind)))
			e.kind = kindNone
		}
		if e.kind != kindNone {
			s.nameable(page, e)
		}
	}
	return s.measure(ctx, present(entries), page)
}

// nameable refuses a key that has no text.
func (s *Source) nameable(page *source.Page, e *entry) {
	if _, ok := s.opts.BinaryKeys.text(e.key); !ok {
		s.fault(page, e.key, "the key is not UTF-8; --binary-keys=percent (or hex, base64url) carries it in letters")
		e.kind = kindNone
	}
}

var sizeCommands = map[string]string{
	kindString: "STRLEN", kindHash: "HLEN", kindList: "LLEN", kindSet: "SCARD", kindZSet: "ZCARD", kindStream: "XLEN",
}

// measure learns the size of values before they are read.
func (s *Source) measure(ctx context.Context, entries []*entry, page *source.Page) error {
	sizes := make([]*goredis.Cmd, len(entries))
	memory := make([]*goredis.Cmd, len(entries))
	_, err := s.pipeline(ctx, len(entries), func(p goredis.Pipeliner, i int) {
		e := entries[i]
		if command := sizeCommands[e.kind]; command != "" {
			sizes[i] = p.Do(ctx, command, e.key)
		}
		if e.kind != kindString && s.caps.memory {
			memory[i] = p.Do(ctx, "MEMORY", "USAGE", e.key, "SAMPLES", wholeCount)
		}
	})
	if err != nil {
		return err
	}
	for i, e := range entries {
		if memory[i] != nil {
			if n, err := memory[i].Int64(); err == nil {
				e.memory = n
			}
		}
		if sizes[i] != nil {
			n, err := sizes[i].Int64()
			if err != nil && !wrongType(err) { // a changed type shows as the value is read
				s.faultOf(page, e, err)
				continue
			}
			e.size = n
		}
		s.bounded(page, e)
	}
	return nil
}

// overhead is how many times the bytes of its JSON form a collection takes on
// the server, at most.
const overhead = 64

// bounded refuses a value that is too large before it is read. A collection
// is only measured roughly; one that might do is measured again as it is read.
func (s *Source) bounded(page *source.Page, e *entry) {
	most := s.opts.MaxValueBytes
	switch {
	case e.kind == kindString && e.size > most:
		s.fault(page, e.key, tooLarge(e.size, most))
	case e.kind != kindString && e.kind != kindJSON && e.size > most:
		s.fault(page, e.key, fmt.Sprintf("the value has %d elements, more than --max-value-bytes=%d can hold", e.size, most))
	case e.kind != kindString && e.memory/overhead > most:
		s.fault(page, e.key, fmt.Sprintf("the value takes %d bytes on the server, far more than --max-value-bytes=%d", e.memory, most))
	default:
		return
	}
	e.kind = kindNone
}

func tooLarge(size, most int64) string {
	return fmt.Sprintf("the value has %d bytes, more than --max-value-bytes=%d", size, most)
}

// pipeline sends commands in one exchange and returns them with their replies.
// It fails where the exchange did; what the server says to a single command is
// left in it.
func (s *Source) pipeline(ctx context.Context, n int, add func(p goredis.Pipeliner, i int)) (cmds []goredis.Cmder, err error) {
	if n == 0 {
		return nil, nil
	}
	err = s.retry(ctx, func() error {
		p := s.client.Pipeline()
		for i := range n {
			add(p, i)
		}
		if cmds, err = p.Exec(ctx); err == nil {
			return nil
		}
		for _, c := range cmds {
			err := c.Err()
			if _, ok := reply(err); err != nil && (!ok || transient(err)) && !errors.Is(err, goredis.Nil) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.explain(err)
	}
	for _, c := range cmds {
		if moved(c.Err()) {
			return nil, errReshaped
		}
	}
	return cmds, nil
}

func wrongType(err error) bool { return says(err, "WRONGTYPE") }

// fault records a key that cannot be carried.
func (s *Source) fault(page *source.Page, key, reason string) {
	text, _ := s.opts.BinaryKeys.text(key)
	page.Faults = append(page.Faults, source.Fault{Origin: s.origin(key), Reason: reason, Key: text})
}

// faultOf records a key about which the server says no.
func (s *Source) faultOf(page *source.Page, e *entry, err error) {
	reason := err.Error()
	if text, ok := reply(err); ok {
		reason = sentence(text)
	}
	s.fault(page, e.key, reason)
	e.kind = kindNone
}

func (s *Source) origin(key string) string {
	return fmt.Sprintf("key %s of db %d", strconv.Quote(key), s.dial.DB)
}

// record makes the record of a key.
func (s *Source) record(e *entry, payload []byte, expiry time.Time) source.Record {
	text, _ := s.opts.BinaryKeys.text(e.key)
	r := source.Record{
		Origin: s.origin(e.key), Payload: payload, Type: "application/json", Expiry: expiry,
		Fields: []source.Field{{Name: "key", Value: text}, {Name: "type", Value: e.kind}, {Name: "db", Value: int64(s.dial.DB)}},
	}
	if e.kind == kindString {
		r.Type = "application/octet-stream"
	}
	return r
}
