package store

import (
	"context"
	"fmt"
	"strings"
)

// CheckContext returns nil while ctx lives. After that it returns an
// ErrUnavailable that wraps ctx's cause: the call had no effect. Providers use
// it before they begin.
func CheckContext(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
}

// CheckGet validates the arguments of a Get against the contract.
func CheckGet(partition, key string) error {
	if err := CheckKey("partition", partition); err != nil {
		return err
	}
	return CheckKey("row key", key)
}

// CheckRange validates a range query against the contract. Bounds may hold
// '!', which no key does, so that NextKey can stand in one; they may be in any
// order: a range that ends before it begins is empty.
func CheckRange(partition string, q RangeQuery) error {
	if err := CheckKey("partition", partition); err != nil {
		return err
	}
	if q.Limit < 0 || q.Limit > MaxPageRows {
		return fmt.Errorf("range limit %d, 0 to %d allowed: %w", q.Limit, MaxPageRows, ErrInvalid)
	}
	if err := checkBound("range start", q.From); err != nil {
		return err
	}
	return checkBound("range end", q.To)
}

func checkBound(what, bound string) error {
	if len(bound) > MaxKeyBytes+1 {
		return fmt.Errorf("%s of %d bytes, at most %d: %w", what, len(bound), MaxKeyBytes+1, ErrInvalid)
	}
	for i := 0; i < len(bound); i++ {
		if bound[i] != '!' && !keyByte(bound[i]) {
			return fmt.Errorf("%s %q holds byte %#02x: %w", what, bound, bound[i], ErrInvalid)
		}
	}
	return nil
}

// CheckBlobRange validates the arguments of a GetRange, as far as they can be
// without the blob.
func CheckBlobRange(name string, offset, length int64) error {
	if err := CheckBlobName(name); err != nil {
		return err
	}
	if offset < 0 || length <= 0 {
		return fmt.Errorf("blob %q: range of %d bytes from %d: %w", name, length, offset, ErrInvalid)
	}
	return nil
}

// CheckBlobPrefix refuses what cannot be the beginning of a blob name. The
// empty prefix is the beginning of all.
func CheckBlobPrefix(prefix string) error {
	if len(prefix) > MaxKeyBytes {
		return fmt.Errorf("blob prefix of %d bytes, at most %d: %w", len(prefix), MaxKeyBytes, ErrInvalid)
	}
	if strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//") {
		return fmt.Errorf("blob prefix %q has an empty segment: %w", prefix, ErrInvalid)
	}
	for i := 0; i < len(prefix); i++ {
		if prefix[i] != '/' && !keyByte(prefix[i]) {
			return fmt.Errorf("blob prefix %q holds byte %#02x: %w", prefix, prefix[i], ErrInvalid)
		}
	}
	return nil
}
