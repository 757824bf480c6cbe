package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// raceCases are about concurrent callers.
var raceCases = []tableCase{
	{"ReplaceRaceHasOneWinner", func(t *testing.T, f fixture) {
		head := f.apply(t, store.Insert("~head", nil))[0]
		for range f.Rounds {
			winner, etags := f.race(t, store.ErrPrecondition, func(racer int) []store.Op {
				return []store.Op{store.Replace("~head", fmt.Append(nil, racer), head)}
			})
			head = f.wantRow(t, "~head", fmt.Append(nil, winner))
			if head != etags[0] {
				t.Fatalf("the winner was given ETag %q, the row has %q", etags[0], head)
			}
		}
	}},
	{"InsertRaceHasOneWinner", func(t *testing.T, f fixture) {
		for round := range f.Rounds {
			winner, _ := f.race(t, store.ErrExists, func(racer int) []store.Op {
				return []store.Op{store.Insert(rowKey(round), fmt.Append(nil, racer))}
			})
			f.wantRow(t, rowKey(round), fmt.Append(nil, winner))
		}
	}},
	{"DeleteRaceHasOneWinner", func(t *testing.T, f fixture) {
		for range f.Rounds {
			etag := f.apply(t, store.Insert("a", nil))[0]
			f.race(t, store.ErrPrecondition, func(int) []store.Op {
				return []store.Op{store.Delete("a", etag)}
			})
			f.wantNoRow(t, "a")
		}
	}},
	{"AppendRaceHasOneWinnerAndNoTraceOfLosers", appendRace},
	{"CounterUnderContentionLosesNothing", contendedCounter},
	{"ReadersSeeWholeRowsThatMoveForward", readersDuringWrites},
	{"WritersOfDifferentPartitionsDoNotDisturb", independentWriters},
}

// race lets the racers apply their transactions at once and demands exactly
// one winner, whose number and ETags it returns; losers fail with lost.
func (f fixture) race(t *testing.T, lost error, ops func(racer int) []store.Op) (int, []store.ETag) {
	t.Helper()
	errs, etags := make([]error, f.Racers), make([][]store.ETag, f.Racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for racer := range f.Racers {
		wg.Go(func() {
			mine := ops(racer)
			<-start
			etags[racer], errs[racer] = f.table.Apply(t.Context(), f.part, mine)
		})
	}
	close(start)
	wg.Wait()
	winner := -1
	for racer, err := range errs {
		switch {
		case err != nil:
			wantError(t, err, lost)
		case winner >= 0:
			t.Fatalf("racers %d and %d both won", winner, racer)
		default:
			winner = racer
		}
	}
	if winner < 0 {
		t.Fatalf("nobody won: %v", errs[0])
	}
	return winner, etags[winner]
}

// appendRace races appends to a log: losers may fail on the row or the head,
// and leave nothing behind, not even rows that nobody else wrote.
func appendRace(t *testing.T, f fixture) {
	head := f.apply(t, store.Insert("~head", nil))[0]
	for round := range f.Rounds {
		own := func(racer int) string { return fmt.Sprintf("own-%d-%d", round, racer) }
		winner, etags := f.race(t, store.ErrPrecondition, func(racer int) []store.Op {
			return []store.Op{store.Insert(own(racer), nil), store.Replace("~head", fmt.Append(nil, racer), head)}
		})
		head = etags[1]
		f.wantKeys(t, store.RangeQuery{From: fmt.Sprintf("own-%d-", round), To: fmt.Sprintf("own-%d-~", round)}, []string{own(winner)})
		f.wantRow(t, "~head", fmt.Append(nil, winner))
	}
}

// contendedCounter counts with read, replace and retry; no increment may get
// lost.
func contendedCounter(t *testing.T, f fixture) {
	f.apply(t, store.Insert("n", []byte("0")))
	errs := make([]error, f.Racers)
	var wg sync.WaitGroup
	for racer := range f.Racers {
		wg.Go(func() {
			for range f.Rounds {
				errs[racer] = errors.Join(errs[racer], f.increment(t))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	f.wantRow(t, "n", fmt.Append(nil, f.Racers*f.Rounds))
}

func (f fixture) increment(t *testing.T) error {
	// In each attempt that fails somebody else's succeeds, so the number of
	// attempts is bounded by the number of all increments.
	for range f.Racers*f.Rounds + 1 {
		row, err := f.table.Get(t.Context(), f.part, "n")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(row.Data))
		if err != nil {
			return err
		}
		_, err = f.table.Apply(t.Context(), f.part, []store.Op{store.Replace("n", fmt.Append(nil, n+1), row.ETag)})
		if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
	}
	return errors.New("increment was refused more often than others succeeded")
}

// readersDuringWrites reads a row and a range while a writer replaces rows in
// one transaction: each row read is whole, and none older than one read before.
func readersDuringWrites(t *testing.T, f fixture) {
	version := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, 5000) }
	etags := f.apply(t, store.Insert("a", version(0)), store.Insert("b", version(0)))
	writes := 5 * f.Rounds
	done := make(chan struct{})
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for reader := range errs {
		wg.Go(func() {
			last := map[string]byte{}
			for running := true; running && errs[reader] == nil; {
				select {
				case <-done:
					running = false
				default:
				}
				errs[reader] = f.readForward(t, last)
			}
		})
	}
	for n := 1; n <= writes; n++ {
		etags = f.apply(t, store.Replace("a", version(n), etags[0]), store.Replace("b", version(n), etags[1]))
	}
	close(done)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) readForward(t *testing.T, last map[string]byte) error {
	page, err := f.table.Range(t.Context(), f.part, store.RangeQuery{})
	if err != nil {
		return err
	}
	one, err := f.table.Get(t.Context(), f.part, "b")
	if err != nil {
		return err
	}
	if len(page.Rows) != 2 {
		return fmt.Errorf("range has %d rows", len(page.Rows))
	}
	for _, row := range append(page.Rows, one) {
		if len(row.Data) != 5000 || bytes.Count(row.Data, row.Data[:1]) != len(row.Data) {
			return fmt.Errorf("row %q is torn: %s", row.Key, brief(row.Data))
		}
		if row.Data[0] < last[row.Key] {
			return fmt.Errorf("row %q went back from %d to %d", row.Key, last[row.Key], row.Data[0])
		}
		last[row.Key] = row.Data[0]
	}
	return nil
}

// independentWriters appends to many partitions at once, and empties them, so
// that partitions come and go while others are used.
func independentWriters(t *testing.T, f fixture) {
	errs := make([]error, f.Racers)
	var wg sync.WaitGroup
	for racer := range f.Racers {
		wg.Go(func() {
			part := fmt.Sprintf("%s-%d", f.part, racer/2)
			key := fmt.Sprintf("row-%d", racer)
			for range f.Rounds {
				_, err := f.table.Apply(t.Context(), part, []store.Op{store.Insert(key, []byte(key))})
				errs[racer] = errors.Join(errs[racer], err)
				row, err := f.table.Get(t.Context(), part, key)
				errs[racer] = errors.Join(errs[racer], err)
				_, err = f.table.Apply(t.Context(), part, []store.Op{store.Delete(key, row.ETag)})
				errs[racer] = errors.Join(errs[racer], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
