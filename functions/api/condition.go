package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// maxConditionAttempts bounds the read-then-write loop of conditions that core
// has no form for. Each lost round means that another write to the key won.
const maxConditionAttempts = 16

// condition is what If-Match and If-None-Match demand (RFC 9110, section 13).
type condition struct {
	match, noneMatch *tagList
}

func parseCondition(h http.Header) (condition, error) {
	match, err := parseTags("If-Match", h.Values("If-Match"))
	if err != nil {
		return condition{}, err
	}
	noneMatch, err := parseTags("If-None-Match", h.Values("If-None-Match"))
	return condition{match, noneMatch}, err
}

func (c condition) empty() bool { return c.match == nil && c.noneMatch == nil }

// needsKey reports whether the condition can hold only if the key exists.
func (c condition) needsKey() bool { return c.match != nil }

// holds evaluates the condition against the state of a key; current is zero
// when the key is absent.
func (c condition) holds(current clock.Version) bool {
	exists := !current.IsZero()
	if c.match != nil && !(exists && c.match.matchStrong(current)) {
		return false
	}
	return c.noneMatch == nil || !exists || !c.noneMatch.matchWeak(current)
}

// native returns the condition in the form that core evaluates by itself,
// where it has one.
func (c condition) native() (ifAbsent bool, ifVersion clock.Version, ok bool) {
	switch {
	case c.empty():
		return false, clock.Version{}, true
	case c.match == nil && c.noneMatch.any:
		return true, clock.Version{}, true
	case c.match != nil && c.noneMatch == nil:
		v, single := c.match.single()
		return false, v, single
	}
	return false, clock.Version{}, false
}

// put writes under the condition. What core cannot express becomes a loop: a
// linearizable read, the evaluation, and a write over exactly what was read.
func (c condition) put(ctx context.Context, t handle, key string, value []byte, o tree.PutOptions) (tree.PutResult, error) {
	if ifAbsent, ifVersion, ok := c.native(); ok {
		o.IfAbsent, o.IfVersion = ifAbsent, ifVersion
		return t.Put(ctx, key, value, o)
	}
	var res tree.PutResult
	err := c.loop(ctx, t, key, func(current clock.Version) error {
		o.IfAbsent, o.IfVersion = current.IsZero(), current
		var err error
		res, err = t.Put(ctx, key, value, o)
		return err
	})
	return res, err
}

// delete removes under the condition and reports whether the key existed.
func (c condition) delete(ctx context.Context, t handle, key string) (bool, error) {
	if ifAbsent, ifVersion, ok := c.native(); ok && !ifAbsent {
		return t.Delete(ctx, key, ifVersion)
	}
	existed := false
	err := c.loop(ctx, t, key, func(current clock.Version) error {
		if current.IsZero() {
			return nil
		}
		var err error
		existed, err = t.Delete(ctx, key, current)
		return err
	})
	return existed, err
}

func (c condition) loop(ctx context.Context, t handle, key string, write func(clock.Version) error) error {
	for range maxConditionAttempts {
		item, found, err := t.Get(ctx, key, tree.ReadOptions{})
		if err != nil {
			return err
		}
		if !found {
			item.Version = clock.Version{}
		}
		if !c.holds(item.Version) {
			return &tree.MismatchError{Current: item.Version}
		}
		err = write(item.Version)
		if mismatch := (*tree.MismatchError)(nil); !errors.As(err, &mismatch) {
			return err
		}
	}
	f := failf(CodeUnavailable, "other writes to the key came first %d times; try again", maxConditionAttempts)
	f.RetryAfter = time.Second
	return f
}
