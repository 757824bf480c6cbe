package shard

import "testing"

// An excess is of the estimates that it was found in, and not of those that a
// migration has divided since.
func TestExcessIsNotTakenFromDividedEstimates(t *testing.T) {
	x := excess{live: 60, bytes: 600, ended: []string{"m1"}}
	for name, c := range map[string]struct {
		ended []string
		live  int64
	}{
		"the same migrations are over": {[]string{"m1"}, 40},
		"another has ended":            {[]string{"m1", "m2"}, 100},
	} {
		h := Head{Live: 100, Bytes: 1000}
		if err := h.setMeta(Meta{Ended: c.ended}); err != nil {
			t.Fatal(err)
		}
		x.takeFrom(&h)
		if h.Live != c.live || h.Bytes != 10*c.live {
			t.Errorf("%s: %d live of %d bytes, want %d", name, h.Live, h.Bytes, c.live)
		}
	}
}
