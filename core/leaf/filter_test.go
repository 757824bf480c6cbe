package leaf

import (
	"fmt"
	"testing"
)

func hashes(prefix string, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = Hash(fmt.Sprint(prefix, i))
	}
	return out
}

func TestFilterHoldsEveryKeyAndFewOthers(t *testing.T) {
	for _, n := range []int{0, 1, 7, 100, 20_000} {
		present := hashes("in", n)
		f := NewFilter(present)
		for _, h := range present {
			if !f.MayHold(h) {
				t.Fatalf("filter of %d keys lost one", n)
			}
		}
		wrong := 0
		for _, h := range hashes("out", 20_000) {
			if f.MayHold(h) {
				wrong++
			}
		}
		if wrong > 400 {
			t.Errorf("filter of %d keys errs for %d of 20000 absent ones", n, wrong)
		}
		if bits := (len(f) - 2) * 8; bits > n*10+8 {
			t.Errorf("filter of %d keys takes %d bits", n, bits)
		}
	}
}

func TestMissingFilterExcludesNothing(t *testing.T) {
	if !Filter(nil).MayHold(1) {
		t.Error("no filter excluded a key")
	}
}

func TestMalformedFilterIsRefused(t *testing.T) {
	for _, b := range [][]byte{{7}, {0, 0}, {17, 0}} {
		if CheckFilter(b) == nil {
			t.Errorf("filter %v was accepted", b)
		}
	}
	for _, b := range [][]byte{nil, NewFilter(nil), NewFilter(hashes("k", 50))} {
		if err := CheckFilter(b); err != nil {
			t.Errorf("filter of %d bytes: %v", len(b), err)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	f := NewFilter(hashes("in", 2000))
	probes := hashes("out", 1024)
	for i := 0; b.Loop(); i++ {
		f.MayHold(probes[i%1024])
	}
}
