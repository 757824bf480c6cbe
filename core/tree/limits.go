package tree

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
)

// shownKeyBytes is how much of an overlong key an error repeats.
const shownKeyBytes = 64

// WithAdmission returns a context whose reads ask admit, with a size in bytes,
// before they bring a large value into memory, and tell it with the size below zero
// if they could not. Its error refuses the read, and is what the read ends with. It
// is called from several goroutines at once.
func WithAdmission(ctx context.Context, admit func(n int64) error) context.Context {
	return shard.WithAdmission(ctx, admit)
}

// checkKey refuses what cannot be a key: *ArgumentError, or *LimitError when it
// is too long.
func (db *DB) checkKey(field, key string) error {
	switch {
	case key == "":
		return &ArgumentError{Field: field, Reason: "must not be empty"}
	case !utf8.ValidString(key):
		return &ArgumentError{Field: field, Reason: "must be valid UTF-8"}
	case len(key) > db.opts.MaxKeyLength:
		return &LimitError{What: "key", Key: cut(key), Size: int64(len(key)), Limit: int64(db.opts.MaxKeyLength)}
	}
	return nil
}

// cut shortens a key to whole characters.
func cut(key string) string {
	n := min(len(key), shownKeyBytes)
	for n > 0 && n < len(key) && !utf8.RuneStart(key[n]) {
		n--
	}
	return key[:n]
}

func (db *DB) checkValue(key string, size int) error {
	if int64(size) > db.opts.MaxValueSizeBytes {
		return &LimitError{What: "value", Key: cut(key), Size: int64(size), Limit: db.opts.MaxValueSizeBytes}
	}
	return nil
}

// checkQualifiers validates what qualifies a put.
func checkQualifiers(prefix string, ttl time.Duration, ifAbsent, getOrSet bool, ifVersion clock.Version) error {
	switch {
	case ttl < 0:
		return &ArgumentError{Field: prefix + "ttl", Reason: "must not be negative"}
	case ifAbsent && !ifVersion.IsZero():
		return &ArgumentError{Field: prefix + "ifVersion", Reason: "cannot be combined with ifAbsent"}
	case getOrSet && (ifAbsent || !ifVersion.IsZero()):
		return &ArgumentError{Field: prefix + "mode", Reason: "get-or-set takes no condition"}
	}
	return nil
}

func operation(i int) string { return "operations[" + strconv.Itoa(i) + "]." }
