package ledger_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/ledger"
)

func folder(t *testing.T) *durable.Dir {
	t.Helper()
	d, err := durable.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// owned asks of some versions.
func owned(t *testing.T, d *durable.Dir, versions map[string]string, want map[string]bool) {
	t.Helper()
	got, err := ledger.Owned(d, versions)
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
}

func add(t *testing.T, l *ledger.Ledger, kv ...string) {
	t.Helper()
	for i := 0; i < len(kv); i += 2 {
		if err := l.Add(kv[i], kv[i+1]); err != nil {
			t.Fatal(err)
		}
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestTheLastEntryOfAKeyCounts(t *testing.T) {
	d := folder(t)
	if _, err := ledger.Owned(d, nil); !errors.Is(err, ledger.ErrNone) {
		t.Fatal(err)
	}
	l := must[*ledger.Ledger](t)(ledger.Append(d))
	add(t, l, "a", "v1", "b", "v2", "a", "v3")
	must[int64](t)(l.Sync())
	owned(t, d, map[string]string{"a": "v3", "b": "v2", "c": "v3"}, map[string]bool{"a": true, "b": true, "c": false})
	owned(t, d, map[string]string{"a": "v1", "b": "v3"}, map[string]bool{"a": false, "b": false})
}

func TestOneIsReplacedWhenTheNextIsInForce(t *testing.T) {
	d := folder(t)
	first := must[*ledger.Ledger](t)(ledger.Append(d))
	add(t, first, "a", "v1", "kept", "v0")
	must[int64](t)(first.Sync())
	next := must[*ledger.Ledger](t)(ledger.Begin(d))
	add(t, next, "a", "v2")
	size := must[int64](t)(next.Sync())
	owned(t, d, map[string]string{"a": "v1"}, map[string]bool{"a": true})
	add(t, next, "a", "v9")
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	again := must[*ledger.Ledger](t)(ledger.Resume(d, next.Generation(), size))
	for range 2 {
		if err := again.Enforce(d); err != nil {
			t.Fatal(err)
		}
	}
	owned(t, d, map[string]string{"a": "v2", "kept": "v0"}, map[string]bool{"a": true, "kept": true})
	if _, err := os.Stat(d.Join("ledger-1")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the ledger before is still there:", err)
	}
}

func TestATornEndIsCutOff(t *testing.T) {
	d := folder(t)
	l := must[*ledger.Ledger](t)(ledger.Append(d))
	versions, want := map[string]string{}, map[string]bool{}
	for i := range 10_000 {
		k, v := fmt.Sprint(i), fmt.Sprint("v", i)
		add(t, l, k, v)
		versions[k], want[k] = v, true
	}
	size := must[int64](t)(l.Sync())
	if err := os.Truncate(d.Join("ledger-1"), size-5); err != nil {
		t.Fatal(err)
	}
	want["9999"] = false
	owned(t, d, versions, want)
	l = must[*ledger.Ledger](t)(ledger.Append(d))
	add(t, l, "9999", "v9999")
	must[int64](t)(l.Sync())
	want["9999"] = true
	owned(t, d, versions, want)
}
