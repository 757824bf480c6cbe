package mapping

import (
	"testing"

	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// What a source says of its conversions is counted by field, if the field is
// part of the value.
func TestLossesOfTheSourceAreCounted(t *testing.T) {
	template, err := keys.Parse("{id}", nil, keys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at, other := source.Loss{Field: "at", What: "became text"}, source.Loss{Field: "other", What: "became text"}
	for name, c := range map[string]struct {
		o    Options
		want map[Loss]int64
	}{
		"all":         {Options{Value: ValueJSON}, map[Loss]int64{losing(at): 2, losing(other): 2}},
		"some":        {Options{Value: ValueJSON, Columns: []string{"id", "at"}}, map[Loss]int64{losing(at): 2}},
		"one":         {Options{Value: ColumnPrefix + "other"}, map[Loss]int64{losing(other): 2}},
		"none of all": {Options{Value: ColumnPrefix + "id"}, map[Loss]int64{}},
	} {
		c.o.Template = template
		m, err := New(c.o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r := source.Record{Fields: []source.Field{{Name: "id", Value: "1"}, {Name: "at", Value: "infinity"}, {Name: "other", Value: "x"}}, Losses: []source.Loss{at, other}}
			var e spool.Entry
			if err := m.Map(&r, &e); err != nil {
				t.Fatal(name, err)
			}
		}
		got := m.Lossy()
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", name, got)
		}
		for l, n := range c.want {
			if got[l] != n {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}

func losing(l source.Loss) Loss { return Loss{Field: l.Field, What: l.What} }
