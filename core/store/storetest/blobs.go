package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// blobCase is one statement about blob stores.
type blobCase struct {
	name string
	run  func(t *testing.T, f blobFixture)
}

// blobFixture is what a blob case works with.
type blobFixture struct {
	Config
	blobs store.BlobStore
	// dir is a fresh prefix, without the slash.
	dir string
}

// RunBlobs runs the suite for blob stores. open is called once.
func (c Config) RunBlobs(t *testing.T, open func(t *testing.T) store.BlobStore) {
	blobs := open(t)
	for _, bc := range slices.Concat(blobCases, listCases) {
		t.Run(bc.name, func(t *testing.T) {
			bc.run(t, blobFixture{Config: c.withDefaults(), blobs: blobs, dir: freshName("dir")})
		})
	}
}

var blobCases = []blobCase{
	{"GetReturnsWhatWasPut", func(t *testing.T, f blobFixture) {
		for i, size := range []int{0, 1, 255, 4096, 32 << 10, 32<<10 + 1, 64_000, 1 << 20} {
			name := fmt.Sprintf("size%d", i)
			etag := f.put(t, name, pattern(size, byte(i)), store.Create)
			if got := f.wantBlob(t, name, pattern(size, byte(i))); got != etag {
				t.Fatalf("get returned ETag %q, put %q", got, etag)
			}
		}
	}},
	{"LargeBlobSurvives", func(t *testing.T, f blobFixture) {
		data := pattern(f.LargeBlob, 7)
		f.put(t, "large", data, store.Create)
		f.wantBlob(t, "large", data)
		f.wantRange(t, "large", data, int64(len(data)/2), 1000)
		f.wantRange(t, "large", data, int64(len(data)-1000), 2000)
	}},
	{"BlobOverTheLimitIsTooLarge", func(t *testing.T, f blobFixture) {
		_, err := f.blobs.Put(t.Context(), f.dir+"/a", make([]byte, store.MaxBlobBytes+1), store.Create)
		wantError(t, err, store.ErrTooLarge)
		f.wantNoBlob(t, "a")
	}},
	{"MissingBlobIsNotFound", func(t *testing.T, f blobFixture) {
		f.wantNoBlob(t, "a")
		_, _, err := f.blobs.GetRange(t.Context(), f.dir+"/a", 0, 1)
		wantError(t, err, store.ErrNotFound)
		wantError(t, f.blobs.Delete(t.Context(), f.dir+"/a"), store.ErrNotFound)
	}},
	{"CreateOverExistingIsExists", func(t *testing.T, f blobFixture) {
		etag := f.put(t, "a", []byte("one"), store.Create)
		f.refuse(t, "a", []byte("two"), store.Create, store.ErrExists)
		if got := f.wantBlob(t, "a", []byte("one")); got != etag {
			t.Fatalf("failed put changed the ETag from %q to %q", etag, got)
		}
	}},
	{"PutIfMatchReplacesOnlyThatVersion", func(t *testing.T, f blobFixture) {
		first := f.put(t, "a", []byte("one"), store.Create)
		second := f.put(t, "a", []byte("two"), store.IfMatch(first))
		if first == second {
			t.Fatalf("two versions have the ETag %q", first)
		}
		f.refuse(t, "a", []byte("three"), store.IfMatch(first), store.ErrPrecondition)
		if got := f.wantBlob(t, "a", []byte("two")); got != second {
			t.Fatalf("get returned ETag %q, put %q", got, second)
		}
	}},
	{"PutIfMatchOfMissingBlobIsPrecondition", func(t *testing.T, f blobFixture) {
		etag := f.put(t, "a", nil, store.Create)
		f.refuse(t, "b", nil, store.IfMatch(etag), store.ErrPrecondition)
		f.wantNoBlob(t, "b")
		f.delete(t, "a")
		f.refuse(t, "a", nil, store.IfMatch(etag), store.ErrPrecondition)
		f.wantNoBlob(t, "a")
	}},
	{"PutAlwaysReplacesAnything", func(t *testing.T, f blobFixture) {
		first := f.put(t, "a", []byte("one"), store.Always)
		second := f.put(t, "a", []byte("a longer second"), store.Always)
		f.put(t, "a", []byte("3"), store.Always)
		f.wantBlob(t, "a", []byte("3"))
		f.refuse(t, "a", nil, store.IfMatch(second), store.ErrPrecondition)
		f.refuse(t, "a", nil, store.IfMatch(first), store.ErrPrecondition)
	}},
	{"ETagOfARecreatedBlobIsNew", func(t *testing.T, f blobFixture) {
		first := f.put(t, "a", []byte("same"), store.Create)
		f.delete(t, "a")
		f.put(t, "a", []byte("same"), store.Create)
		f.refuse(t, "a", []byte("late"), store.IfMatch(first), store.ErrPrecondition)
		f.wantBlob(t, "a", []byte("same"))
	}},
	{"PutWithoutConditionIsInvalid", func(t *testing.T, f blobFixture) {
		f.refuse(t, "a", nil, store.PutCondition{}, store.ErrInvalid)
		f.refuse(t, "a", nil, store.PutCondition{Mode: store.PutIfMatch}, store.ErrInvalid)
		f.refuse(t, "a", nil, store.PutCondition{Mode: 99}, store.ErrInvalid)
		f.wantNoBlob(t, "a")
	}},
	{"GetRangeReturnsThePartAsked", getRange},
	{"DeleteRemoves", func(t *testing.T, f blobFixture) {
		f.put(t, "a", []byte("one"), store.Create)
		f.put(t, "ab", []byte("two"), store.Create)
		f.delete(t, "a")
		f.wantNoBlob(t, "a")
		f.wantBlob(t, "ab", []byte("two"))
		wantError(t, f.blobs.Delete(t.Context(), f.dir+"/a"), store.ErrNotFound)
	}},
	{"BlobDataIsCopiedBothWays", func(t *testing.T, f blobFixture) {
		given := []byte("given")
		f.put(t, "a", given, store.Create)
		given[0] = 'X'
		whole, _, err := f.blobs.Get(t.Context(), f.dir+"/a")
		if err != nil {
			t.Fatal(err)
		}
		whole[1] = 'X'
		part, _, err := f.blobs.GetRange(t.Context(), f.dir+"/a", 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		part[0] = 'X'
		f.wantBlob(t, "a", []byte("given"))
	}},
	{"ForbiddenNamesAreInvalid", forbiddenNames},
	{"AwkwardNamesAreDistinct", awkwardNames},
	{"EndedContextHasNoEffectOnBlobs", endedBlobContext},
	{"CreateRaceHasOneWinner", createRace},
	{"ReadersSeeWholeBlobs", wholeBlobs},
}

func getRange(t *testing.T, f blobFixture) {
	data := pattern(100_000, 5)
	f.put(t, "a", data, store.Create)
	for _, r := range [][2]int64{{0, 1}, {0, 100_000}, {0, 100_001}, {1, 10}, {50_000, 1}, {99_999, 1}, {99_999, 1 << 40}, {64_000, 36_000}} {
		f.wantRange(t, "a", data, r[0], r[1])
	}
	f.put(t, "empty", nil, store.Create)
	for _, r := range [][2]int64{{-1, 1}, {0, 0}, {0, -1}, {100_000, 1}, {100_001, 1}, {1 << 40, 1}} {
		_, _, err := f.blobs.GetRange(t.Context(), f.dir+"/a", r[0], r[1])
		wantError(t, err, store.ErrInvalid)
	}
	_, _, err := f.blobs.GetRange(t.Context(), f.dir+"/empty", 0, 1)
	wantError(t, err, store.ErrInvalid)
}

func forbiddenNames(t *testing.T, f blobFixture) {
	for _, name := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a.", "a b", "a\\b", "a?b", "a#b", "a%b",
		"é", "a\x00", strings.Repeat("n", store.MaxKeyBytes+1)} {
		_, err := f.blobs.Put(t.Context(), name, nil, store.Always)
		wantError(t, err, store.ErrInvalid)
		_, _, err = f.blobs.Get(t.Context(), name)
		wantError(t, err, store.ErrInvalid)
		_, _, err = f.blobs.GetRange(t.Context(), name, 0, 1)
		wantError(t, err, store.ErrInvalid)
		wantError(t, f.blobs.Delete(t.Context(), name), store.ErrInvalid)
	}
}

// awkwardNames includes names that are a directory of another's, and names
// that differ in case only.
func awkwardNames(t *testing.T, f blobFixture) {
	names := []string{"a", "a/b", "a/b/c", "A", "A/b", "a/B", "a~", "~", "-", "_", ".a", "a.b", "..a", "0", "00", "con", "NUL", "a/" + strings.Repeat("n", 400)}
	for _, name := range names {
		f.put(t, name, []byte(name), store.Create)
	}
	for _, name := range names {
		f.wantBlob(t, name, []byte(name))
	}
	f.delete(t, "a")
	f.wantBlob(t, "a/b", []byte("a/b"))
	f.wantBlob(t, "A", []byte("A"))
}

func endedBlobContext(t *testing.T, f blobFixture) {
	f.put(t, "a", []byte("one"), store.Create)
	ctx, name := cancelled(t), f.dir+"/a"
	_, err := f.blobs.Put(ctx, name, []byte("two"), store.Always)
	wantEnded(t, err)
	_, _, err = f.blobs.Get(ctx, name)
	wantEnded(t, err)
	_, _, err = f.blobs.GetRange(ctx, name, 0, 1)
	wantEnded(t, err)
	_, err = f.blobs.List(ctx, f.dir, "")
	wantEnded(t, err)
	wantEnded(t, f.blobs.Delete(ctx, name))
	f.wantBlob(t, "a", []byte("one"))
}

// createRace also races conditional overwrites: in both exactly one wins.
func createRace(t *testing.T, f blobFixture) {
	for round := range f.Rounds {
		name := fmt.Sprintf("round%d", round)
		etag := f.raceBlob(t, name, store.Create, store.ErrExists)
		f.raceBlob(t, name, store.IfMatch(etag), store.ErrPrecondition)
	}
}

func (f blobFixture) raceBlob(t *testing.T, name string, cond store.PutCondition, lost error) store.ETag {
	t.Helper()
	errs, etags := make([]error, f.Racers), make([]store.ETag, f.Racers)
	var wg sync.WaitGroup
	for racer := range f.Racers {
		wg.Go(func() {
			etags[racer], errs[racer] = f.blobs.Put(t.Context(), f.dir+"/"+name, fmt.Append(nil, racer), cond)
		})
	}
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
	if got := f.wantBlob(t, name, fmt.Append(nil, winner)); got != etags[winner] {
		t.Fatalf("the winner was given ETag %q, the blob has %q", etags[winner], got)
	}
	return etags[winner]
}

// wholeBlobs overwrites a blob with others of different sizes, on both sides
// of any threshold a provider may have, while readers demand whole ones.
func wholeBlobs(t *testing.T, f blobFixture) {
	version := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, 1+n%4*30_000) }
	f.put(t, "a", version(0), store.Create)
	done := make(chan struct{})
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for reader := range errs {
		wg.Go(func() {
			for running := true; running && errs[reader] == nil; {
				select {
				case <-done:
					running = false
				default:
				}
				got, _, err := f.blobs.Get(t.Context(), f.dir+"/a")
				if err == nil && (len(got) == 0 || !bytes.Equal(got, version(int(got[0])))) {
					err = fmt.Errorf("torn blob: %s", brief(got))
				}
				errs[reader] = err
			}
		})
	}
	for n := 1; n <= 2*f.Rounds; n++ {
		f.put(t, "a", version(n%250), store.Always)
	}
	close(done)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// put writes a blob, which must succeed.
func (f blobFixture) put(t *testing.T, name string, data []byte, cond store.PutCondition) store.ETag {
	t.Helper()
	etag, err := f.blobs.Put(t.Context(), f.dir+"/"+name, data, cond)
	if err != nil || etag == "" {
		t.Fatalf("put %q: ETag %q, error %v", name, etag, err)
	}
	return etag
}

// refuse writes a blob, which must fail.
func (f blobFixture) refuse(t *testing.T, name string, data []byte, cond store.PutCondition, want error) {
	t.Helper()
	etag, err := f.blobs.Put(t.Context(), f.dir+"/"+name, data, cond)
	wantError(t, err, want)
	if etag != "" {
		t.Fatalf("failed put returned ETag %q", etag)
	}
}

func (f blobFixture) delete(t *testing.T, name string) {
	t.Helper()
	if err := f.blobs.Delete(t.Context(), f.dir+"/"+name); err != nil {
		t.Fatalf("delete %q: %v", name, err)
	}
}

func (f blobFixture) wantBlob(t *testing.T, name string, data []byte) store.ETag {
	t.Helper()
	got, etag, err := f.blobs.Get(t.Context(), f.dir+"/"+name)
	if err != nil {
		t.Fatalf("get %q: %v", name, err)
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("blob %q holds %s, want %s", name, brief(got), brief(data))
	}
	return etag
}

func (f blobFixture) wantNoBlob(t *testing.T, name string) {
	t.Helper()
	_, _, err := f.blobs.Get(t.Context(), f.dir+"/"+name)
	wantError(t, err, store.ErrNotFound)
}

func (f blobFixture) wantRange(t *testing.T, name string, data []byte, offset, length int64) {
	t.Helper()
	got, etag, err := f.blobs.GetRange(t.Context(), f.dir+"/"+name, offset, length)
	if err != nil || etag == "" {
		t.Fatalf("range of %d from %d: ETag %q, error %v", length, offset, etag, err)
	}
	if want := data[offset:min(offset+length, int64(len(data)))]; !bytes.Equal(got, want) {
		t.Fatalf("range of %d from %d holds %s, want %s", length, offset, brief(got), brief(want))
	}
}
