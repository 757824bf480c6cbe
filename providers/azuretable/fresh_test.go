package azuretable_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/tests/azurite"
)

// TestFirstWritersOfAFreshAccountAllSucceed: several instances that know nothing
// of each other, with several writers each, find no table.
func TestFirstWritersOfAFreshAccountAllSucceed(t *testing.T) {
	e := azurite.Shared(t)
	name := e.TableName(t)
	const instances, writers = 4, 16
	tables := make([]*azuretable.Table, instances)
	for i := range tables {
		tables[i] = lazy(t, e, name)
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, table := range tables {
		for w := range writers {
			wg.Go(func() {
				<-start
				ops := []store.Op{store.Insert(fmt.Sprintf("%d-%02d", i, w), []byte("1"))}
				if w%2 == 1 {
					ops = append(ops, store.Insert(fmt.Sprintf("%d-%02d-b", i, w), nil))
				}
				if _, err := table.Apply(t.Context(), "part", ops); err != nil {
					t.Errorf("instance %d, writer %d: %v", i, w, err)
				}
			})
		}
	}
	close(start)
	wg.Wait()
	page, err := tables[0].Range(t.Context(), "part", store.RangeQuery{})
	if want := instances * writers * 3 / 2; err != nil || len(page.Rows) != want {
		t.Fatalf("%d rows, want %d: %v", len(page.Rows), want, err)
	}
}

// TestCredentialThatMayNotCreateUsesWhatIsThere: a signature that permits neither
// write nor create, only what is done with entities.
func TestCredentialThatMayNotCreateUsesWhatIsThere(t *testing.T) {
	e := azurite.Shared(t)
	name := e.TableName(t)
	limited := azuretable.Options{ServiceURL: e.TableURL(), SAS: signature(t, "rdlau"), TableName: name, Lazy: true}
	table, err := azuretable.New(t.Context(), limited)
	if err != nil {
		t.Fatal(err)
	}
	insert := []store.Op{store.Insert("key", nil)}
	if _, err := table.Get(t.Context(), "part", "key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("read before: %v", err)
	}
	_, err = table.Apply(t.Context(), "part", insert)
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("write: %v", err)
	}
	for _, want := range []string{"may not create it", "az storage table create --name " + name, "Storage Table Data Contributor"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell %q", err, want)
		}
	}
	limited.Lazy = false
	if _, err := azuretable.New(t.Context(), limited); err == nil || !strings.Contains(err.Error(), "may not create it") {
		t.Errorf("opening: %v", err)
	}
	// Somebody creates it, and the same instance serves.
	open := azuretable.Options{ConnectionString: e.ConnectionString(), TableName: name}
	if _, err := azuretable.New(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Apply(t.Context(), "part", insert); err != nil {
		t.Fatal(err)
	}
	if _, err := azuretable.New(t.Context(), limited); err != nil {
		t.Errorf("opening what is there: %v", err)
	}
}
