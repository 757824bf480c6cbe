package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/client"
)

const (
	// maxBreaks is how often in a row a stream may break off without yielding
	// anything new.
	maxBreaks = 8
	baseWait  = 200 * time.Millisecond
	maxWait   = 10 * time.Second
)

// Stream yields the entries of a tree that begin with a prefix, behind a key.
// Where the service's stream breaks off it is opened again behind the last key;
// if there is nothing new for maxBreaks times in a row, the error is yielded.
// Waiting is set meanwhile.
func Stream(ctx context.Context, t *client.Tree, prefix, after string, keysOnly bool, waiting *atomic.Bool) iter.Seq2[client.Entry, error] {
	return func(yield func(client.Entry, error) bool) {
		defer waiting.Store(false)
		for breaks := 1; ; breaks++ {
			last, more, err := pass(ctx, t, prefix, after, keysOnly, func(e client.Entry) bool {
				waiting.Store(false)
				return yield(e, nil)
			})
			if last != after {
				breaks, after = 1, last
			}
			switch {
			case !more:
				return
			case ctx.Err() != nil || !client.Retryable(err) || breaks > maxBreaks:
				yield(client.Entry{}, fmt.Errorf("read tree: %w", err))
				return
			}
			waiting.Store(true)
			if err := pause(ctx, client.Pause(breaks, baseWait, maxWait, err)); err != nil {
				yield(client.Entry{}, err)
				return
			}
		}
	}
}

// pass reads one stream and returns the last key, and whether there is more
// because of err.
func pass(ctx context.Context, t *client.Tree, prefix, after string, keysOnly bool, yield func(client.Entry) bool) (string, bool, error) {
	q := client.Query{Range: client.Range{Start: max(prefix, after), End: prefixEnd(prefix)}, KeysOnly: keysOnly}
	start := after
	for e, err := range t.Scan(ctx, q) {
		switch {
		case err != nil:
			return after, true, err
		case e.Key == start && after == start:
			continue // known from the stream before
		case e.Key <= after:
			return after, true, fmt.Errorf("%w: key %q follows %q", client.ErrProtocol, e.Key, after)
		case !strings.HasPrefix(e.Key, prefix):
			return after, false, nil
		}
		if after = e.Key; !yield(e) {
			return after, false, nil
		}
	}
	return after, false, nil
}

// prefixEnd is the least text greater than all that begin with a prefix; empty
// if there is none. Keys order by code points, so that counting up the last
// character will do.
func prefixEnd(prefix string) string {
	for prefix != "" {
		r, n := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-n]
		switch {
		case r == utf8.MaxRune:
			continue
		case r == 0xD7FF:
			r = 0xDFFF // the surrogates are no characters
		}
		return prefix + string(r+1)
	}
	return ""
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

// Fetch reads entries with their values, in any order; keys that do not exist
// are left out. What does not fit into one answer is
// read by halves; the value of a single one may be as large as values get.
func Fetch(ctx context.Context, t *client.Tree, keys []string, each func(client.Entry)) error {
	es, err := t.GetMany(ctx, keys, client.ReadOptions{})
	switch {
	case err == nil:
		for _, e := range es {
			each(e)
		}
		return nil
	case !tooLarge(err):
		return fmt.Errorf("read values: %w", err)
	case len(keys) > 1:
		half := len(keys) / 2
		if err := Fetch(ctx, t, keys[:half], each); err != nil {
			return err
		}
		return Fetch(ctx, t, keys[half:], each)
	}
	e, err := t.Get(ctx, keys[0], client.ReadOptions{})
	if errors.Is(err, client.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read values: %w", err)
	}
	each(e)
	return nil
}

func tooLarge(err error) bool {
	return errors.Is(err, client.ErrAnswerTooLarge) || errors.Is(err, client.ErrRequestTooLarge) || errors.Is(err, client.ErrValueTooLarge)
}
