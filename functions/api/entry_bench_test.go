package api

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// someItems are entries with values of a size.
func someItems(n, size int) []tree.Item {
	items := make([]tree.Item, n)
	for i := range items {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte('a' + (i+j)%26)
		}
		items[i] = tree.Item{Key: fmt.Sprintf("user/%08d", i), Value: value, Version: clock.Version{Time: clock.HLC(i + 1), Writer: 7}}
	}
	return items
}

func BenchmarkEntries(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		for _, f := range []form{formBase64, formText} {
			items := someItems(10, size)
			b.Run(fmt.Sprintf("stream/%d/%s", size, f), func(b *testing.B) {
				s := newServer(Config{Clock: newFakeDB().clock, Options: testOptions(), MaxBufferedBytes: 1 << 30}, newFakeDB())
				w := httptest.NewRecorder()
				w.Body = nil
				out := s.newStream(w, f, false)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := out.entry(&items[i%len(items)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	items := someItems(1000, 100)
	b.Run("page/1000x100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p := entriesPage(items, formBase64, false, "x")
			p.render(p.size())
		}
	})
}
