package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// listCases are about listings.
var listCases = []blobCase{
	{"ListOfNothingIsEmpty", func(t *testing.T, f blobFixture) {
		f.wantList(t, "", nil)
	}},
	{"ListNamesSizesAndTimes", func(t *testing.T, f blobFixture) {
		f.put(t, "a", pattern(10, 0), store.Create)
		f.put(t, "b", pattern(100_000, 0), store.Create)
		infos := f.wantList(t, "/", []string{"/a", "/b"})
		if infos[0].Size != 10 || infos[1].Size != 100_000 {
			t.Fatalf("sizes are %d and %d", infos[0].Size, infos[1].Size)
		}
		for _, info := range infos {
			if age := time.Since(info.Modified); age < -time.Hour || age > time.Hour {
				t.Fatalf("blob %q was modified at %s", info.Name, info.Modified)
			}
		}
	}},
	{"ListIsByPrefixInBytewiseOrder", listOrder},
	{"ListForgetsTheDeleted", func(t *testing.T, f blobFixture) {
		for _, name := range []string{"a", "b", "c"} {
			f.put(t, name, nil, store.Create)
		}
		f.delete(t, "b")
		f.wantList(t, "/", []string{"/a", "/c"})
		f.put(t, "b", nil, store.Create)
		f.wantList(t, "/", []string{"/a", "/b", "/c"})
	}},
	{"ListOfManyNamesEachOnce", listMany},
	{"ListWhileBlobsComeAndGo", listDuringChanges},
	{"ListWithBadPrefixIsInvalid", func(t *testing.T, f blobFixture) {
		for _, prefix := range []string{"/", "/a", "a//b", "a b", "é", strings.Repeat("p", store.MaxKeyBytes+1)} {
			_, err := f.blobs.List(t.Context(), prefix, "")
			wantError(t, err, store.ErrInvalid)
		}
	}},
}

func listOrder(t *testing.T, f blobFixture) {
	names := []string{"/-", "/.a", "/A", "/B/x", "/a", "/a-b", "/a/1", "/a/2/3", "/a0", "/aa", "/b", "/~"}
	if !slices.IsSorted(names) {
		t.Fatal("the list of names is not in bytewise order")
	}
	for i := range names {
		f.put(t, strings.TrimPrefix(names[(i*5+2)%len(names)], "/"), nil, store.Create)
	}
	f.wantList(t, "", names)
	f.wantList(t, "/", names)
	f.wantList(t, "/a", []string{"/a", "/a-b", "/a/1", "/a/2/3", "/a0", "/aa"})
	f.wantList(t, "/a/", []string{"/a/1", "/a/2/3"})
	f.wantList(t, "/B", []string{"/B/x"})
	f.wantList(t, "/b/", nil)
	f.wantList(t, "/~~", nil)
}

func listMany(t *testing.T, f blobFixture) {
	want := make([]string, f.ListBlobs)
	f.inParallel(t, f.ListBlobs, func(i int) error {
		want[i] = "/" + rowKey(i)
		_, err := f.blobs.Put(t.Context(), f.dir+want[i], nil, store.Create)
		return err
	})
	f.wantList(t, "/", want)
}

// listDuringChanges lists while other blobs of the prefix are created and
// deleted: those that stay are named exactly once.
func listDuringChanges(t *testing.T, f blobFixture) {
	var stay []string
	for i := range 30 {
		stay = append(stay, "/stay"+rowKey(i))
		f.put(t, stay[i][1:], nil, store.Create)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < f.Rounds && err == nil; i++ {
			name := fmt.Sprintf("%s/go%d", f.dir, i)
			if _, err = f.blobs.Put(t.Context(), name, nil, store.Create); err == nil {
				err = f.blobs.Delete(t.Context(), name)
			}
		}
		done <- err
	}()
	for range 5 {
		var got []string
		for _, info := range f.list(t, "/") {
			if name := strings.TrimPrefix(info.Name, f.dir); strings.HasPrefix(name, "/stay") {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, stay) {
			t.Errorf("listing has %q, want %q", got, stay)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// inParallel calls fn for 0 to n-1 from as many goroutines as there are racers.
func (f blobFixture) inParallel(t *testing.T, n int, fn func(i int) error) {
	t.Helper()
	errs := make([]error, f.Racers)
	var wg sync.WaitGroup
	for racer := range f.Racers {
		wg.Go(func() {
			for i := racer; i < n && errs[racer] == nil; i += f.Racers {
				errs[racer] = fn(i)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// list reads every page of a listing and checks its order.
func (f blobFixture) list(t *testing.T, prefix string) []store.BlobInfo {
	t.Helper()
	var infos []store.BlobInfo
	marker := ""
	for range f.ListBlobs + 10 {
		page, err := f.blobs.List(t.Context(), f.dir+prefix, marker)
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		for _, info := range page.Blobs {
			if len(infos) > 0 && info.Name <= infos[len(infos)-1].Name {
				t.Fatalf("blob %q comes after blob %q", info.Name, infos[len(infos)-1].Name)
			}
			infos = append(infos, info)
		}
		if page.Next == "" {
			return infos
		}
		marker = page.Next
	}
	t.Fatalf("the listing of %q does not end", prefix)
	return nil
}

func (f blobFixture) wantList(t *testing.T, prefix string, want []string) []store.BlobInfo {
	t.Helper()
	infos := f.list(t, prefix)
	var got []string
	for _, info := range infos {
		got = append(got, strings.TrimPrefix(info.Name, f.dir))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("list %q has %q, want %q", prefix, got, want)
	}
	return infos
}
