package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/source"
)

// What is found out about a key when its value is read.
var (
	// errGone: it has expired, or was deleted, since it was listed.
	errGone = errors.New("the key is gone")
	// errChanged: it was written between two parts of the reading.
	errChanged = errors.New("the key has changed")
	// errTooLarge: its value exceeds the limit.
	errTooLarge = errors.New("the value is too large")
)

// values reads a batch in one exchange, or its only entry in parts, and adds
// the records to the page. It returns the entries to be read again.
func (s *Source) values(ctx context.Context, batch []*entry, page *source.Page) ([]*entry, error) {
	if len(batch) == 1 && !batch[0].whole() {
		payload, expiry, err := s.inParts(ctx, batch[0])
		return s.settle(page, batch[0], payload, expiry, err)
	}
	reads := make([]*reading, len(batch))
	_, err := s.pipeline(ctx, len(batch), func(p goredis.Pipeliner, i int) {
		reads[i] = s.ask(ctx, p, batch[i])
	})
	if err != nil {
		return nil, err
	}
	var changed []*entry
	for i, e := range batch {
		value, expiry, err := reads[i].result()
		var payload []byte
		if err == nil {
			payload, err = s.convert(e, value)
		}
		again, err := s.settle(page, e, payload, expiry, err)
		if err != nil {
			return nil, err
		}
		changed = append(changed, again...)
	}
	return changed, nil
}

// settle records what became of an entry.
func (s *Source) settle(page *source.Page, e *entry, payload []byte, expiry time.Time, err error) ([]*entry, error) {
	_, answered := reply(err)
	switch {
	case err == nil:
		page.Records = append(page.Records, s.record(e, payload, expiry))
	case errors.Is(err, errGone):
		page.Expired++
	case errors.Is(err, errChanged), wrongType(err):
		return []*entry{e}, nil
	case errors.Is(err, errTooLarge):
		s.fault(page, e.key, err.Error())
	case moved(err):
		return nil, errReshaped
	case answered:
		s.faultOf(page, e, err)
	default:
		return nil, err
	}
	return nil, nil
}

// convert makes the payload of a value as a command returned it.
func (s *Source) convert(e *entry, value any) ([]byte, error) {
	var payload []byte
	switch e.kind {
	case kindString, kindJSON:
		text, ok := value.(string)
		if !ok {
			return nil, errReply
		}
		payload = []byte(text)
	default:
		c := collection{kind: e.kind}
		if err := c.add(value); err != nil {
			return nil, err
		}
		var err error
		if payload, err = c.json(); err != nil {
			return nil, err
		}
	}
	return payload, s.fits(int64(len(payload)))
}

func (s *Source) fits(size int64) error {
	if size > s.opts.MaxValueBytes {
		return fmt.Errorf("%w: it has %d bytes, --max-value-bytes is %d", errTooLarge, size, s.opts.MaxValueBytes)
	}
	return nil
}

// reading is the commands that read a value with its expiry, and their replies.
type reading struct {
	// queued are the commands inside a transaction that exec ends; without one,
	// exec is nil and queued is expiry, value, expiry.
	queued []*goredis.Cmd
	exec   *goredis.Cmd
	caps   capabilities
}

// ask puts the commands that read e into a pipeline.
func (s *Source) ask(ctx context.Context, p goredis.Pipeliner, e *entry) *reading {
	r := &reading{caps: s.caps}
	if s.caps.transactions {
		p.Do(ctx, "MULTI")
		r.queued = append(r.queued, p.Do(ctx, readCommand(e)...))
		r.queued = append(r.queued, s.askExpiry(ctx, p, e.key)...)
		r.exec = p.Do(ctx, "EXEC")
		return r
	}
	r.queued = append(r.queued, s.askExpiry(ctx, p, e.key)...)
	r.queued = append(r.queued, p.Do(ctx, readCommand(e)...))
	r.queued = append(r.queued, s.askExpiry(ctx, p, e.key)...)
	return r
}

// readCommand reads a value whole.
func readCommand(e *entry) []any {
	switch e.kind {
	case kindHash:
		return []any{"HGETALL", e.key}
	case kindList:
		return []any{"LRANGE", e.key, 0, -1}
	case kindSet:
		return []any{"SMEMBERS", e.key}
	case kindZSet:
		return []any{"ZRANGE", e.key, 0, -1, "WITHSCORES"}
	case kindStream:
		return []any{"XRANGE", e.key, "-", "+"}
	case kindJSON:
		return []any{"JSON.GET", e.key}
	}
	return []any{"GET", e.key}
}

// askExpiry asks when a key expires: as a moment, or as the time that is left
// with the server's clock.
func (s *Source) askExpiry(ctx context.Context, p goredis.Pipeliner, key string) []*goredis.Cmd {
	switch {
	case s.caps.expireTime:
		return []*goredis.Cmd{p.Do(ctx, "PEXPIRETIME", key)}
	case s.caps.clock:
		return []*goredis.Cmd{p.Do(ctx, "PTTL", key), p.Do(ctx, "TIME")}
	}
	return []*goredis.Cmd{p.Do(ctx, "PTTL", key)}
}

// result is the value, and the expiry that belongs to it.
func (r *reading) result() (any, time.Time, error) {
	if r.exec != nil {
		return r.committed()
	}
	replies := make([]any, len(r.queued))
	for i, c := range r.queued {
		v, err := c.Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, time.Time{}, err
		}
		replies[i] = v
	}
	middle := len(replies) / 2
	before, err := r.caps.expiry(replies[:middle])
	if err != nil {
		return nil, time.Time{}, err
	}
	after, err := r.caps.expiry(replies[middle+1:])
	if err != nil {
		return nil, time.Time{}, err
	}
	if !sameExpiry(before, after) || replies[middle] == nil {
		return nil, time.Time{}, errChanged
	}
	return replies[middle], after, nil
}

func (r *reading) committed() (any, time.Time, error) {
	replies, err := r.exec.Slice()
	if err != nil {
		for _, c := range r.queued {
			if cause := c.Err(); cause != nil {
				return nil, time.Time{}, cause // why the transaction was refused
			}
		}
		return nil, time.Time{}, err
	}
	if len(replies) != len(r.queued) {
		return nil, time.Time{}, errReply
	}
	if err, failed := replies[0].(error); failed {
		return nil, time.Time{}, err
	}
	expiry, err := r.caps.expiry(replies[1:])
	if err != nil {
		return nil, time.Time{}, err
	}
	return replies[0], expiry, nil
}

// expirySlack is how far two looks at one expiry may differ where it is the time
// left, in whole milliseconds, plus a clock.
const expirySlack = 50 * time.Millisecond

func sameExpiry(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= expirySlack
}

// The replies of PEXPIRETIME and PTTL that are no time.
const (
	expiresNever = -1
	expiresGone  = -2
)

// expiry reads the replies to askExpiry. All times are in milliseconds, but for
// the two parts of TIME.
func (c capabilities) expiry(replies []any) (time.Time, error) {
	ms, ok := replies[0].(int64)
	if !ok {
		if err, failed := replies[0].(error); failed {
			return time.Time{}, err
		}
		return time.Time{}, errReply
	}
	switch {
	case ms == expiresGone:
		return time.Time{}, errGone
	case ms == expiresNever:
		return time.Time{}, nil
	case c.expireTime:
		return time.UnixMilli(ms).UTC(), nil
	case !c.clock:
		return time.Now().Add(time.Duration(ms) * time.Millisecond).UTC(), nil
	}
	now, err := clockReply(replies[1])
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(now.UnixMilli() + ms).UTC(), nil
}
