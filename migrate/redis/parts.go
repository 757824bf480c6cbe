package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// commander runs a command: a client, or a connection that watches a key.
type commander interface {
	Do(ctx context.Context, args ...any) *goredis.Cmd
	Pipeline() goredis.Pipeliner
}

// inParts reads a large collection piece by piece. WATCH tells if anybody wrote
// it meanwhile; then it is errChanged.
func (s *Source) inParts(ctx context.Context, e *entry) (payload []byte, expiry time.Time, err error) {
	var c *collection
	read := func(conn commander) error {
		c = &collection{kind: e.kind}
		return s.gather(ctx, conn, e, c)
	}
	err = s.retry(ctx, func() error {
		if !s.caps.transactions {
			if err := read(s.client); err != nil {
				return err
			}
			expiry, err = s.expiryNow(ctx, s.client, e.key)
			return err
		}
		return s.client.Watch(ctx, func(tx *goredis.Tx) error {
			if err := read(tx); err != nil {
				return err
			}
			var cmds []*goredis.Cmd
			_, err := tx.TxPipelined(ctx, func(p goredis.Pipeliner) error {
				cmds = s.askExpiry(ctx, p, e.key)
				return nil
			})
			if err != nil {
				return err
			}
			expiry, err = s.caps.expiry(valuesOf(cmds))
			return err
		}, e.key)
	})
	switch _, said := reply(err); {
	case errors.Is(err, goredis.TxFailedErr):
		return nil, time.Time{}, errChanged
	case err != nil && !said && !outcome(err):
		return nil, time.Time{}, s.explain(err)
	case err != nil:
		return nil, time.Time{}, err
	}
	if payload, err = c.json(); err == nil {
		err = s.fits(int64(len(payload)))
	}
	return payload, expiry, err
}

// outcome reports whether err is something found out about a key.
func outcome(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, errChanged) || errors.Is(err, errTooLarge)
}

func (s *Source) expiryNow(ctx context.Context, conn commander, key string) (time.Time, error) {
	p := conn.Pipeline()
	cmds := s.askExpiry(ctx, p, key)
	if _, err := p.Exec(ctx); err != nil {
		return time.Time{}, err
	}
	return s.caps.expiry(valuesOf(cmds))
}

func valuesOf(cmds []*goredis.Cmd) []any {
	out := make([]any, len(cmds))
	for i, c := range cmds {
		out[i] = c.Val()
	}
	return out
}

// window is how many elements a piece has: about wholeBytes of them.
func (e *entry) window() int64 {
	const unknown = 100
	if e.memory <= 0 || e.size <= 0 {
		return unknown
	}
	return min(max(wholeBytes/max(e.memory/e.size, 1), 1), wholeCount)
}

// gather reads all pieces into c.
func (s *Source) gather(ctx context.Context, conn commander, e *entry, c *collection) error {
	next := s.pieces(e)
	for args := next(nil); args != nil; {
		reply, err := conn.Do(ctx, args...).Slice()
		if err != nil {
			return err
		}
		elements := reply
		if e.kind == kindHash || e.kind == kindSet {
			if len(reply) != 2 {
				return errReply
			}
			var ok bool
			if elements, ok = reply[1].([]any); !ok {
				return errReply
			}
		}
		if err := c.add(elements); err != nil {
			return err
		}
		// HSCAN and SSCAN may repeat elements; the exact size is known at the end.
		if c.bytes > 2*s.opts.MaxValueBytes {
			return fmt.Errorf("%w: it has more than %d bytes, --max-value-bytes is %d", errTooLarge, c.bytes, s.opts.MaxValueBytes)
		}
		args = next(reply)
	}
	return nil
}

// pieces returns the commands that read e: each call is given the last reply,
// nil at first, and returns nil at the end.
func (s *Source) pieces(e *entry) func(last []any) []any {
	n := e.window()
	switch e.kind {
	case kindHash:
		return cursorPieces("HSCAN", e.key, n)
	case kindSet:
		return cursorPieces("SSCAN", e.key, n)
	case kindStream:
		return streamPieces(e.key, n)
	}
	start := int64(0)
	return func(last []any) []any {
		if last != nil && len(last) == 0 {
			return nil
		}
		from, to := start, start+n-1
		start += n
		if e.kind == kindZSet {
			return []any{"ZRANGE", e.key, from, to, "WITHSCORES"}
		}
		return []any{"LRANGE", e.key, from, to}
	}
}

func cursorPieces(command, key string, n int64) func(last []any) []any {
	return func(last []any) []any {
		cursor := "0"
		if last != nil {
			cursor, _ = last[0].(string)
			if cursor == "0" || cursor == "" {
				return nil
			}
		}
		return []any{command, key, cursor, "COUNT", n}
	}
}

func streamPieces(key string, n int64) func(last []any) []any {
	return func(last []any) []any {
		from := "-"
		if last != nil {
			if len(last) == 0 {
				return nil
			}
			entry, _ := last[len(last)-1].([]any) // its form was checked as it was added
			id, _ := entry[0].(string)
			if from = successor(id); from == "" {
				return nil
			}
		}
		return []any{"XRANGE", key, from, "+", "COUNT", n}
	}
}

// successor is the smallest id of a stream's entry above id, or "" if there is
// none.
func successor(id string) string {
	head, tail, _ := strings.Cut(id, "-")
	ms, err1 := strconv.ParseUint(head, 10, 64)
	seq, err2 := strconv.ParseUint(tail, 10, 64)
	if err1 != nil || err2 != nil {
		return ""
	}
	if seq++; seq == 0 {
		if ms++; ms == 0 {
			return ""
		}
	}
	return fmt.Sprintf("%d-%d", ms, seq)
}

// clockReply reads a reply of TIME: seconds and microseconds.
func clockReply(v any) (time.Time, error) {
	parts, ok := v.([]any)
	if !ok || len(parts) != 2 {
		return time.Time{}, errReply
	}
	sec, ok1 := parts[0].(string)
	usec, ok2 := parts[1].(string)
	if !ok1 || !ok2 {
		return time.Time{}, errReply
	}
	a, err1 := strconv.ParseInt(sec, 10, 64)
	b, err2 := strconv.ParseInt(usec, 10, 64)
	if err1 != nil || err2 != nil {
		return time.Time{}, errReply
	}
	return time.Unix(a, b*int64(time.Microsecond)), nil
}
