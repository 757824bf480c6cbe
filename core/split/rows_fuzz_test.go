package split

import (
	"errors"
	"reflect"
	"testing"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// FuzzRows feeds payloads in a proper envelope, and raw bytes, to the readers of
// the three rows: what they take they write back the same, the rest is corrupt.
func FuzzRows(f *testing.F) {
	f.Add([]byte(`{"at":5,"counts":{"1":{"r":3,"w":4,"at":5}},"split":{"1":7},"published":true}`))
	f.Add([]byte(`{"id":"x","start":2,"target":4,"begun":1,"started":9}`))
	f.Add([]byte(`{"id":"x","target":99999}`))
	f.Add([]byte(`{"footprints":{"a":{"inFlight":1,"granted":2,"expires":3,"observedOnly":true}}}`))
	f.Add([]byte(`{"footprints":{"a":{"inFlight":-1}}}`))
	f.Add([]byte(`{"unknown":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, raw := range []bool{true, false} {
			wrap := func(fm frame.Format) store.Row {
				if raw || len(body) > fm.MaxSize {
					return store.Row{Key: "k", Data: body}
				}
				return store.Row{Key: "k", Data: fm.Seal(body)}
			}
			m, err := decodeMonitor("t", wrap(monitorFormat))
			again(t, monitorFormat, m, err, func(r store.Row) (*MonitorState, error) { return decodeMonitor("t", r) })
			r, err := decodeReshard("t", wrap(reshardFormat))
			again(t, reshardFormat, r, err, func(r store.Row) (*Reshard, error) { return decodeReshard("t", r) })
			if err == nil && (r.Target < 1 || r.Target > keyspace.Slots) {
				t.Fatalf("target %d was taken", r.Target)
			}
			g, err := decodeGate(wrap(gateFormat))
			again(t, gateFormat, g, err, decodeGate)
		}
	})
}

func again[T any](t *testing.T, f frame.Format, doc *T, err error, decode func(store.Row) (*T, error)) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("refused, but not as corrupt: %v", err)
		}
		return
	}
	data, err := sealJSON(f, "document", doc)
	if errors.Is(err, store.ErrTooLarge) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	back, err := decode(store.Row{Key: "k", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	one, _ := sealJSON(f, "document", doc)
	two, _ := sealJSON(f, "document", back)
	if !reflect.DeepEqual(one, two) {
		t.Fatalf("%+v came back as %+v", doc, back)
	}
}
