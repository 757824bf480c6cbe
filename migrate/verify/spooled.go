package verify

import (
	"context"
	"iter"
	"time"

	"github.com/latticekv/lattice/migrate/spool"
)

// Spooled yields the entries of a spool that holds values, as a migration
// leaves it. A record that was read twice, which its origin tells, counts as it
// was read last; other records of the same key are counted and not compared.
func Spooled(s *spool.Spool) Entries {
	return collapsed(s, func(it *Item, e *spool.Entry) error {
		it.Size, it.Digest = int64(len(e.Value)), DigestOf(e.Value)
		return nil
	})
}

// packed yields the entries of a spool that holds digests in place of values.
func packed(s *spool.Spool) Entries {
	return collapsed(s, func(it *Item, e *spool.Entry) error { return it.Unpack(e.Value) })
}

func collapsed(s *spool.Spool, value func(*Item, *spool.Entry) error) Entries {
	return func(ctx context.Context, after string) iter.Seq2[Item, error] {
		return func(yield func(Item, error) bool) {
			var held Item
			for e, err := range s.Sorted(ctx, after) {
				it := Item{}
				if err == nil {
					it = Item{Key: e.Key, Origin: e.Origin, Expiry: moment(e.Expiry)}
					err = value(&it, e)
				}
				if err != nil {
					yield(Item{}, err)
					return
				}
				switch {
				case held.Key == "":
					held = it
				case held.Key != it.Key:
					if !yield(held, nil) {
						return
					}
					held = it
				case held.Origin == it.Origin:
					it.Others, it.Other = held.Others, held.Other
					held = it
				default:
					held.Others++
					held.Other = it.Origin
				}
			}
			if held.Key != "" {
				yield(held, nil)
			}
		}
	}
}

// moment is a time of a spool.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// spooledKeys yields each key of a spool once.
func spooledKeys(s *spool.Spool) Keys {
	return func(ctx context.Context, after string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			last := ""
			for e, err := range s.Sorted(ctx, after) {
				if err != nil {
					yield("", err)
					return
				}
				if e.Key == last {
					continue
				}
				if last = e.Key; !yield(last, nil) {
					return
				}
			}
		}
	}
}
