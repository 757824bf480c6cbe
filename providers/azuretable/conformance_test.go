package azuretable_test

import (
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/tests/azurite"
)

// The table does not exist when the suite begins.
func TestTableOnAzuriteKeepsTheContract(t *testing.T) {
	e := azurite.Shared(t)
	storetest.RunTable(t, func(t *testing.T) store.Table { return lazy(t, e, e.TableName(t)) })
}

func lazy(t testing.TB, e *azurite.Emulator, name string) *azuretable.Table {
	t.Helper()
	table, err := azuretable.New(t.Context(), azuretable.Options{ConnectionString: e.ConnectionString(), TableName: name, Lazy: true})
	if err != nil {
		t.Fatalf("open table: %v", err)
	}
	return table
}

func open(t testing.TB, e *azurite.Emulator) *azuretable.Table {
	t.Helper()
	table, err := azuretable.New(t.Context(), azuretable.Options{
		ConnectionString: e.ConnectionString(),
		TableName:        e.TableName(t),
	})
	if err != nil {
		t.Fatalf("open table: %v", err)
	}
	return table
}
