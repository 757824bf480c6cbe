package delta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/source"
)

const (
	// batchOps and batchBytes bound a batch.
	batchOps   = 1_000
	batchBytes = 3 << 20
	// flights is how many requests are on their way at once.
	flights   = 4
	basePause = 100 * time.Millisecond
	maxPause  = 10 * time.Second
)

const (
	typeBytes = "application/octet-stream"
	typeText  = "text/plain; charset=utf-8"
	typeJSON  = "application/json"
)

// change is an entry to be written.
type change struct {
	op client.Op
	// expiry is when it ceases to exist, zero for never.
	expiry time.Time
	// kind is the media type of one that is written alone, because a batch has
	// no room or no such type for it.
	kind   string
	origin string
}

// newChange copies an entry.
func newChange(key string, value []byte, kind string, expiry time.Time, origin string) change {
	value = append([]byte{}, value...)
	c := change{op: client.Op{Key: key, Value: value}, expiry: expiry, origin: origin}
	switch {
	case kind == "" || kind == typeBytes:
	case kind == typeText && utf8.Valid(value):
		c.op.Text = true
	case kind == typeJSON && compactJSON(value):
		c.op.Value, c.op.JSON = nil, value
	default:
		c.kind = kind
	}
	if c.op.Size() > batchBytes && c.kind == "" {
		c.op = client.Op{Key: key, Value: value}
		if c.kind = kind; kind == "" {
			c.kind = typeBytes
		}
	}
	return c
}

// compactJSON reports whether the service would keep the bytes as they are.
func compactJSON(v []byte) bool {
	var b bytes.Buffer
	return utf8.Valid(v) && json.Compact(&b, v) == nil && bytes.Equal(b.Bytes(), v)
}

// at gives a change the time to live that is left. An entry that has expired
// meanwhile still replaces what the tree has, and vanishes at once.
func (c *change) at(now time.Time) client.Op {
	op := c.op
	if !c.expiry.IsZero() {
		op.TTL = max(c.expiry.Sub(now), time.Millisecond)
	}
	return op
}

// write writes changes of different keys; on return they are durable, or
// rejected.
func (p *pass) write(ctx context.Context, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	if err := p.touch(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(flights)
	size, from := 0, 0
	batch := make([]change, 0, min(len(changes), batchOps))
	flush := func() {
		if part := batch[from:]; len(part) > 0 {
			g.Go(func() error { return p.send(ctx, part) })
		}
		from, size = len(batch), 0
	}
	for i := range changes {
		c := &changes[i]
		if c.kind != "" {
			g.Go(func() error { return p.sendAlone(ctx, c) })
			continue
		}
		if n := c.op.Size(); len(batch)-from == batchOps || size+n > batchBytes {
			flush()
		}
		size += c.op.Size()
		batch = append(batch, *c)
	}
	flush()
	return g.Wait()
}

// send writes a batch. What the service could not do just now is tried again.
func (p *pass) send(ctx context.Context, left []change) error {
	return p.patiently(ctx, func() error {
		now := p.Now()
		b := client.Batch{Ops: make([]client.Op, len(left))}
		for i := range left {
			b.Ops[i] = left[i].at(now)
		}
		results, err := p.Tree.Batch(ctx, b)
		if refused(err) {
			return p.split(ctx, left, err)
		}
		if err != nil {
			return err
		}
		left, err = p.settle(left, results)
		return err
	})
}

// split finds what a request was refused for.
func (p *pass) split(ctx context.Context, left []change, err error) error {
	if len(left) == 1 {
		return p.reject(left[0], err)
	}
	half := len(left) / 2
	if err := p.send(ctx, left[:half]); err != nil {
		return err
	}
	return p.send(ctx, left[half:])
}

// settle accounts for each result and returns what is left.
func (p *pass) settle(sent []change, results []client.OpResult) (left []change, busy error) {
	for i := range sent {
		err := results[i].Err()
		switch {
		case err == nil:
			err = p.wrote(results[i].Key, results[i].Version)
		case passing(err):
			left = append(left, sent[i])
			busy = &client.Error{Status: http.StatusServiceUnavailable, Code: client.Code(results[i].Status), Detail: results[i].Detail}
			continue
		default:
			err = p.reject(sent[i], err)
		}
		if err != nil {
			return nil, err
		}
	}
	return left, busy
}

// sendAlone writes one entry in a request of its own.
func (p *pass) sendAlone(ctx context.Context, c *change) error {
	return p.patiently(ctx, func() error {
		op := c.at(p.Now())
		r, err := p.Tree.Set(ctx, op.Key, op.Value, client.SetOptions{ContentType: c.kind, TTL: op.TTL})
		if refused(err) {
			return p.reject(*c, err)
		}
		if err != nil {
			return err
		}
		return p.wrote(op.Key, r.Version)
	})
}

// wrote records a durable write.
func (p *pass) wrote(key, version string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.st.Counts.Written++
	p.Progress.Written.Add(1)
	return p.ledger.Add(key, version)
}

// reject records an entry that the service will never take.
func (p *pass) reject(c change, why error) error {
	reason := why.Error()
	var e *client.Error
	if errors.As(why, &e) && e.Code != "" {
		reason = string(e.Code) + ": " + e.Detail
	}
	return p.fault(source.Fault{Origin: c.origin, Key: c.op.Key, Reason: reason})
}

// fault records a record that cannot be written.
func (p *pass) fault(f source.Fault) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.st.Counts.Rejected++
	p.Progress.Rejected.Add(1)
	if err := p.rejects.Line(map[string]string{"origin": f.Origin, "key": f.Key, "reason": f.Reason}); err != nil {
		return err
	}
	if n := p.st.Counts.Rejected; p.MaxRejects >= 0 && n > p.MaxRejects {
		return fmt.Errorf("%w: %d, and %d are allowed (--max-rejects); the last one: %s: %s", ErrTooManyRejects, n, p.MaxRejects, source.Short(f.Origin), f.Reason)
	}
	return nil
}

// passing reports whether one key's refusal is a passing trouble.
func passing(err error) bool {
	for _, c := range []client.Code{client.ErrStorageThrottled, client.ErrRoutingUnstable, client.ErrTopologyUnstable, client.ErrUnavailable} {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

// refused reports whether a request was refused for what is in it.
func refused(err error) bool {
	if errors.Is(err, client.ErrInvalidKey) || errors.Is(err, client.ErrInvalidRequest) {
		return true
	}
	var e *client.Error
	return errors.As(err, &e) && (e.Status == http.StatusBadRequest || e.Status == http.StatusRequestEntityTooLarge || e.Status == http.StatusUnprocessableEntity)
}

// patiently makes a call until it succeeds, fails for good, or the service was
// in trouble for too long.
func (p *pass) patiently(ctx context.Context, call func() error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := call()
		if err == nil || ctx.Err() != nil || !client.Retryable(err) {
			return err
		}
		wait := client.Pause(n, basePause, maxPause, err)
		if time.Since(start)+wait > p.RetryFor {
			return fmt.Errorf("%w: %w", ErrPatience, err)
		}
		p.Progress.waits.Add(1)
		err = pause(ctx, wait)
		p.Progress.waits.Add(-1)
		if err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
