package verify

import (
	"context"
	"iter"
	"time"

	"github.com/latticekv/lattice/migrate/spool"
)

// Sorted yields entries behind a key, ascending by key and then in the order in
// which they were read, as a spool does.
type Sorted func(ctx context.Context, after string) iter.Seq2[*spool.Entry, error]

// Spooled yields entries that have their values. Of those of one key it takes
// what a migration takes: of a record that was read twice, which its origin
// tells, the later reading; of several records the first, and others that hold
// something else are counted.
func Spooled(s Sorted) Entries {
	return collapsed(s, func(it *Item, e *spool.Entry) error {
		it.Size, it.Digest = int64(len(e.Value)), DigestOf(e.Value)
		return nil
	})
}

// packed yields the entries of a spool that holds digests in place of values.
func packed(s Sorted) Entries {
	return collapsed(s, func(it *Item, e *spool.Entry) error { return it.Unpack(e.Value) })
}

func collapsed(s Sorted, value func(*Item, *spool.Entry) error) Entries {
	return func(ctx context.Context, after string) iter.Seq2[Item, error] {
		return func(yield func(Item, error) bool) {
			var held Item
			for e, err := range s(ctx, after) {
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
				case held.Size != it.Size || held.Digest != it.Digest || !held.Expiry.Equal(it.Expiry):
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
func spooledKeys(s Sorted) Keys {
	return func(ctx context.Context, after string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			last := ""
			for e, err := range s(ctx, after) {
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
