package sqldb

import (
	"testing"

	"github.com/latticekv/lattice/migrate/source"
)

// TestMomentsThatAreNoDaysAreLosses: of every type of moments, and told by
// column.
func TestMomentsThatAreNoDaysAreLosses(t *testing.T) {
	kinds := map[string]column{
		"timestamptz": {change: changeInstant, convert: toInstant("2006-01-02 15:04:05.999999-07")},
		"TIMESTAMP":   {change: changeInstant, convert: toInstant("2006-01-02 15:04:05.999999")},
		"timestamp":   {change: changeLocal, convert: toText}, "DATETIME": {change: changeLocal, convert: toText},
		"date": {change: changeDate, convert: toText}, "DATE": {change: changeDate, convert: toText}, "text": {convert: toText},
	}
	for _, c := range []struct {
		engine, given string
		lost          bool
	}{
		{"timestamptz", "infinity", true}, {"timestamptz", "-infinity", true},
		{"timestamptz", "0044-03-15 00:00:00+00 BC", true}, {"timestamptz", "20260-01-01 00:00:00+00", true},
		{"timestamptz", "2026-01-02 03:04:05+00", false},
		{"timestamp", "infinity", true}, {"date", "0001-01-01 BC", true},
		{"date", "2026-01-02", false}, {"text", "infinity", false},
		{"TIMESTAMP", "0000-00-00 00:00:00", true}, {"DATETIME", "2026-00-10 00:00:00", true},
		{"DATE", "2026-01-00", true}, {"DATE", "2026-01-31", false}, {"DATETIME", "9999-12-31 23:59:59.999999", false},
	} {
		col := kinds[c.engine]
		col.name = "c"
		rows := newCollector(&dataset{label: "t", columns: []*column{&col}, keys: []*column{&col}})
		rows.values[0], rows.tokens = c.given, []any{c.given}
		r, fault, _ := rows.record()
		if fault != nil || len(r.Losses) > 1 || (len(r.Losses) == 1) != c.lost || c.lost && r.Losses[0] != (source.Loss{Field: "c", What: noDay}) {
			t.Errorf("%s %s: %+v, %v", c.engine, c.given, r.Losses, fault)
		}
	}
}
