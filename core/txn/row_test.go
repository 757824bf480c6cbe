package txn

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// full is a row with every field set.
func full() *Row {
	r := &Row{
		ID: ID{1, 2, 3}, First: 7, Attempt: 9, State: Committed, Start: clock.At(1000), Deadline: 2000, Floor: clock.At(500),
		Version: clock.Version{Time: clock.At(1500), Writer: 4}, Shards: []keyspace.ShardID{0, 8}, Operation: "op", Fingerprint: "f",
		Results: []Result{{Existed: true}, {}, {Mismatch: true, Current: "00"}}, Told: true, Updated: 1501, Nonce: "n",
	}
	r.Slots.Add(0)
	r.Slots.Add(keyspace.Slots - 1)
	return r
}

func stored(t testing.TB, r *Row) store.Row {
	t.Helper()
	data, err := encode(treeID, r)
	if err != nil {
		t.Fatal(err)
	}
	return store.Row{Key: rowKey(r.ID), Data: data, ETag: "e"}
}

func TestRowsComeBackAsTheyWere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		r := full()
		if i > 0 {
			*r = Row{ID: ID{byte(i)}, First: rng.Uint32(), Attempt: rng.Uint32(), State: []State{Pending, Aborted}[i%2], Final: i%2 == 1}
			for range i {
				r.Slots.Add(uint16(rng.IntN(keyspace.Slots)))
				r.Results = append(r.Results, Result{Existed: rng.IntN(2) == 0})
			}
		}
		got, err := decode(treeID, r.ID, stored(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if got.etag != "e" {
			t.Errorf("etag %q", got.etag)
		}
		got.etag = ""
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%+v\nbecame\n%+v", r, got)
		}
	}
}

func TestDamagedRowsAreRefused(t *testing.T) {
	good := stored(t, full())
	seal := func(body string) []byte { return rowFormat.Seal([]byte(body)) }
	for name, data := range map[string][]byte{
		"nothing": nil, "cut": good.Data[:len(good.Data)-1], "a bit": append([]byte{good.Data[0] ^ 1}, good.Data[1:]...),
		"no JSON": seal("{"), "an unknown field": seal(`{"id":"010203000000000000000000","state":"pending","nonsense":1}`),
		"an unknown state": seal(`{"id":"010203000000000000000000","state":"perhaps"}`),
		"no version":       seal(`{"id":"010203000000000000000000","state":"committed"}`),
		"final, pending":   seal(`{"id":"010203000000000000000000","state":"pending","final":true}`),
		"of another":       seal(`{"id":"010203000000000000000001","state":"pending"}`),
		"an id too short":  seal(`{"id":"0102","state":"pending"}`),
	} {
		if r, err := decode(treeID, full().ID, store.Row{Data: data}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// The largest batch there is fits, with an outcome for each key; what does not is
// refused before anything is stored.
func TestSizesOfRows(t *testing.T) {
	r := full()
	for slot := uint16(0); slot < keyspace.Slots; slot += 2 {
		r.Slots.Add(slot)
	}
	mismatch := Result{Existed: true, Mismatch: true, Current: strings.Repeat("f", 24)}
	r.Results = nil
	for range 10_000 {
		r.Results = append(r.Results, mismatch)
	}
	if _, err := encode(treeID, r); err != nil {
		t.Errorf("10,000 keys: %v", err)
	}
	for range 10_000 {
		r.Results = append(r.Results, mismatch)
	}
	if _, err := encode(treeID, r); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("20,000 keys: %v", err)
	}
}

func TestVoidAttemptsAreBoundedAndWrapAround(t *testing.T) {
	r := Row{First: 1<<32 - 2, Attempt: 1}
	if got := r.Void(); len(got) != 3 || got[0] != txOf(r.ID, 0) || got[1] != txOf(r.ID, 1<<32-1) || got[2] != txOf(r.ID, 1<<32-2) {
		t.Errorf("%x", got)
	}
	r = Row{First: 0, Attempt: 1000}
	if got := r.Void(); len(got) != maxVoid || got[0] != txOf(r.ID, 999) {
		t.Errorf("%d void attempts", len(got))
	}
	if id, attempt := split(txOf(ID{5, 11: 9}, 77)); id != (ID{5, 11: 9}) || attempt != 77 {
		t.Errorf("%x, %d", id, attempt)
	}
}

// Whatever bytes are stored, they are refused as damaged or read as a row that
// comes back as it is.
func FuzzRow(f *testing.F) {
	f.Add(full().ID[:], []byte(`{"id":"010203000000000000000000","state":"pending"}`))
	good, err := encode(treeID, full())
	if err != nil {
		f.Fatal(err)
	}
	body, err := rowFormat.Open("", good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full().ID[:], body)
	f.Fuzz(func(t *testing.T, id, body []byte) {
		var want ID
		copy(want[:], id)
		for _, data := range [][]byte{body, rowFormat.Seal(body)} {
			r, err := decode(treeID, want, store.Row{Data: data})
			if err != nil {
				if !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			again, err := decode(treeID, want, stored(t, r))
			if err != nil {
				t.Fatal(err)
			}
			again.etag = r.etag
			if !reflect.DeepEqual(r, again) {
				t.Fatalf("%+v became %+v", r, again)
			}
		}
	})
}
