package sqldb

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/migrate/source"
)

// example is a table with a composite key, of which the second column may be
// NULL.
func example(kind, first, second string) (traits, *dataset) {
	var t traits
	var a, b, v *column
	switch kind {
	case "postgres":
		d := &postgres{}
		t = d.traits()
		a, b, v = &column{name: "a", engine: first}, &column{name: "b", engine: second}, &column{name: `v"`, engine: "date"}
		d.form(a, postgresType{name: first, kind: "b"})
		d.form(b, postgresType{name: second, kind: "b"})
		d.form(v, postgresType{name: "date", kind: "b"})
	case "sqlserver":
		d := &sqlServer{}
		t = d.traits()
		a, b, v = d.column("a", first), d.column("b", second), d.column("v]", "datetime2(7)")
	case "sqlite":
		d := &sqlite{}
		t = d.traits()
		a, b, v = d.column("a", first, `"a"`), d.column("b", second, `"b"`), d.column(`v"`, "date", `"v"""`)
	case "mysql":
		d := &mySQL{}
		t = d.traits()
		a, b, v = d.form("a", "VARCHAR", 0, 0), d.form("b", "BIGINT", 0, 0), d.form("v`", "DATETIME", 0, 0)
	}
	return t, &dataset{subject: subject{from: "t"}, columns: []*column{a, b, v}, keys: []*column{a, b}, change: v}
}

// TestStatements: the text of a page in each engine's own words.
func TestStatements(t *testing.T) {
	for _, c := range []struct {
		kind, first, second string
		nullable            bool
		after               []any
		changed             *since
		where, want         string
		args                int
	}{
		{kind: "postgres", first: "text", second: "int8", after: []any{"x", "7"},
			want: `SELECT "a"::text AS x0, "b" AS x1, "v"""::text AS x2, "a"::text AS xk0, "b"::text AS xk1 FROM t WHERE ("a"::text COLLATE "C", "b") > ($1::text COLLATE "C", $2::text::int8) ORDER BY "a"::text COLLATE "C", "b" LIMIT 3`, args: 2},
		{kind: "postgres", first: "int4", second: "numeric", nullable: true, after: []any{"1", "7.0"},
			want: `SELECT "a" AS x0, "b"::text AS x1, "v"""::text AS x2, "a"::text AS xk0, "b"::text AS xk1 FROM t WHERE ("a" >= $1::text::int4 AND (("a" > $2::text::int4) OR ("a" = $3::text::int4 AND ("b" > $4::text::numeric OR "b" IS NULL)))) ORDER BY "a", "b" LIMIT 3`, args: 4},
		{kind: "postgres", first: "int4", second: "uuid", nullable: true, after: []any{"1", nil}, where: "a < 9 -- end",
			want: `SELECT "a" AS x0, "b"::text AS x1, "v"""::text AS x2, "a"::text AS xk0, "b"::text AS xk1 FROM t WHERE (` + "\na < 9 -- end\n" + `) AND ("a" >= $1::text::int4 AND (("a" > $2::text::int4) OR ("a" = $3::text::int4 AND 1 = 0))) ORDER BY "a", "b" LIMIT 3`, args: 3},
		{kind: "mysql", nullable: true, after: []any{"x", nil},
			want: "SELECT `a` AS x0, `b` AS x1, `v``` AS x2, CAST(CONVERT(`a` USING utf8mb4) AS BINARY) AS xk0, `b` AS xk1 FROM t WHERE (CAST(CONVERT(`a` USING utf8mb4) AS BINARY) >= CAST(? AS BINARY) AND ((CAST(CONVERT(`a` USING utf8mb4) AS BINARY) > CAST(? AS BINARY)) OR (CAST(CONVERT(`a` USING utf8mb4) AS BINARY) = CAST(? AS BINARY) AND `b` IS NOT NULL))) ORDER BY CAST(CONVERT(`a` USING utf8mb4) AS BINARY), `b` LIMIT 3", args: 3},
		{kind: "mysql", changed: &since{cut: "2026-01-01"},
			want: "SELECT `a` AS x0, `b` AS x1, `v``` AS x2, CAST(CONVERT(`a` USING utf8mb4) AS BINARY) AS xk0, `b` AS xk1 FROM t WHERE (`v``` >= ? OR `v``` IS NULL) ORDER BY CAST(CONVERT(`a` USING utf8mb4) AS BINARY), `b` LIMIT 3", args: 1},
		{kind: "postgres", first: "int4", second: "int8", after: []any{"1", "7"},
			want: `SELECT "a" AS x0, "b" AS x1, "v"""::text AS x2, "a"::text AS xk0, "b"::text AS xk1 FROM t WHERE ("a", "b") > ($1::text::int4, $2::text::int8) ORDER BY "a", "b" LIMIT 3`, args: 2},
		{kind: "sqlite", first: "text", second: "integer", after: []any{"x", int64(7)},
			want: `SELECT +"a" AS x0, +"b" AS x1, +"v""" AS x2, +"a" AS xk0, +"b" AS xk1 FROM t WHERE ("a" COLLATE BINARY, "b" COLLATE BINARY) > (?, ?) ORDER BY "a" COLLATE BINARY, "b" COLLATE BINARY LIMIT 3`, args: 2},
		{kind: "sqlserver", first: "varchar(20)", second: "decimal(20,4)", after: []any{"x", "7.0000"}, changed: &since{cut: "2026-01-01"},
			want: `SELECT TOP (3) CONVERT(nvarchar(max), [a]) AS x0, CONVERT(varchar(50), [b]) AS x1, CONVERT(varchar(40), [v]]], 121) AS x2, CONVERT(nvarchar(4000), [a]) AS xk0, CONVERT(varchar(50), [b]) AS xk1 FROM t WHERE ([v]]] >= CONVERT(datetime2(7), @p1, 121) OR [v]]] IS NULL) AND (CONVERT(nvarchar(4000), [a]) COLLATE Latin1_General_100_BIN2 >= CONVERT(nvarchar(4000), @p2) AND ((CONVERT(nvarchar(4000), [a]) COLLATE Latin1_General_100_BIN2 > CONVERT(nvarchar(4000), @p3)) OR (CONVERT(nvarchar(4000), [a]) COLLATE Latin1_General_100_BIN2 = CONVERT(nvarchar(4000), @p4) AND [b] > CAST(@p5 AS decimal(20,4))))) ORDER BY CONVERT(nvarchar(4000), [a]) COLLATE Latin1_General_100_BIN2, [b]`, args: 5},
		{kind: "sqlserver", first: "uniqueidentifier", second: "bit", nullable: true, after: []any{"x", nil},
			want: `SELECT TOP (3) LOWER(CONVERT(char(36), [a])) AS x0, [b] AS x1, CONVERT(varchar(40), [v]]], 121) AS x2, LOWER(CONVERT(char(36), [a])) AS xk0, [b] AS xk1 FROM t WHERE ([a] >= CAST(@p1 AS uniqueidentifier) AND (([a] > CAST(@p2 AS uniqueidentifier)) OR ([a] = CAST(@p3 AS uniqueidentifier) AND [b] IS NOT NULL))) ORDER BY [a], [b]`, args: 3},
	} {
		tr, ds := example(c.kind, c.first, c.second)
		ds.keys[1].nullable, ds.where = c.nullable, c.where
		text, args := ds.page(tr, c.after, c.changed, 3)
		if text != c.want || len(args) != c.args {
			t.Errorf("%s:\n got %s (%d parameters)\nwant %s", c.kind, text, len(args), c.want)
		}
	}
}

// TestColumnsOfSQLServer: how its types are read, and which can be keys.
func TestColumnsOfSQLServer(t *testing.T) {
	d := &sqlServer{}
	for _, c := range []struct {
		engine, read, param string
		given, want         any
		lossy               bool
	}{
		{engine: "bigint", read: "[c]", param: "?", given: int64(math.MaxInt64), want: int64(math.MaxInt64)},
		{engine: "bit", read: "[c]", param: "CAST(? AS bit)", given: true, want: true},
		{engine: "money", read: "CONVERT(varchar(50), [c], 2)", param: "CAST(? AS money)", given: "-922337203685477.5808", want: source.Number("-922337203685477.5808")},
		{engine: "numeric(38,2)", read: "CONVERT(varchar(50), [c])", param: "CAST(? AS numeric(38,2))", given: "-.50", want: source.Number("-0.50")},
		{engine: "real", read: "[c]", param: "CAST(? AS real)", given: float64(float32(0.1)), want: 0.1},
		{engine: "nvarchar(max)", read: "CONVERT(nvarchar(max), [c])", given: "", want: ""},
		{engine: "date", read: "CONVERT(varchar(40), [c], 121)", param: "CONVERT(date, ?, 121)", given: "0001-01-01", want: "0001-01-01"},
		{engine: "xml", read: "CONVERT(nvarchar(max), [c])", given: "<a/>", want: "<a/>"},
		{engine: "geography", read: "[c].ToString()", given: "POINT (1 2)", want: "POINT (1 2)", lossy: true},
		{engine: "sql_variant", read: "CONVERT(nvarchar(max), [c])", given: "1", want: "1", lossy: true},
		{engine: "timestamp", read: "[c]", param: "?", given: []byte{0, 7}, want: []byte{0, 7}},
	} {
		col := d.column("c", c.engine)
		got, err := col.convert(c.given)
		if col.read != c.read || err != nil || !reflect.DeepEqual(got, c.want) || (col.lossy != "") != c.lossy {
			t.Errorf("%s: %s gives %v (%v), lossy %q", c.engine, col.read, got, err, col.lossy)
		}
		if (col.order == "") != (c.param == "") || col.order != "" && col.param != c.param {
			t.Errorf("%s: ordered by %q, parameter %q", c.engine, col.order, col.param)
		}
	}
}

// TestColumnsOfMySQL: how its types are compared. MySQL takes a bare text that
// is compared with a number for a floating-point one; MariaDB does not.
func TestColumnsOfMySQL(t *testing.T) {
	d := &mySQL{}
	for _, c := range []struct {
		engine, order, token, param string
		given, want                 any
	}{
		{"DECIMAL", "`c`", "CAST(`c` AS CHAR)", "CAST(? AS DECIMAL(20, 4))", []byte("1.5000"), []byte("1.5000")},
		{"UNSIGNED BIGINT", "`c`", "`c`", "?", []byte("18446744073709551615"), uint64(math.MaxUint64)},
		{"UNSIGNED BIGINT", "`c`", "`c`", "?", int64(5), int64(5)},
		{"FLOAT", "`c`", "`c`", "?", float32(0.1), float64(float32(0.1))},
		{"BIT", "`c` + 0", "`c` + 0", "?", []byte("257"), int64(257)},
		{"DATETIME", "`c`", "CAST(`c` AS CHAR)", "?", []byte("0000-00-00"), []byte("0000-00-00")},
		{"ENUM", "CAST(CONVERT(`c` USING utf8mb4) AS BINARY)", "CAST(CONVERT(`c` USING utf8mb4) AS BINARY)", "CAST(? AS BINARY)", []byte("x"), []byte("x")},
		{"GEOMETRY", "", "`c`", "?", []byte{}, []byte{}},
	} {
		col := d.form("c", c.engine, 20, 4)
		got, err := col.tokenOf(c.given)
		if col.order != c.order || col.token != c.token || col.param != c.param || err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: ordered by %s, token %s gives %v (%v), parameter %s", c.engine, col.order, col.token, got, err, col.param)
		}
	}
}

var tokens = rapid.OneOf(
	rapid.Just[any](nil),
	rapid.Map(rapid.Int64(), func(v int64) any { return v }),
	rapid.Map(rapid.Uint64(), func(v uint64) any { return v }),
	rapid.Map(rapid.Float64(), func(v float64) any { return v }),
	rapid.Map(rapid.Bool(), func(v bool) any { return v }),
	rapid.Map(rapid.String(), func(v string) any { return v }),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(v []byte) any { return v }),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(v []byte) any { return string(v) }),
)

// TestPositionRoundTrip: a position gives back its values, of the same types
// and to the last bit.
func TestPositionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(tokens, 1, 4).Draw(t, "key")
		columns := make([]*column, len(key))
		for i := range columns {
			columns[i] = &column{name: fmt.Sprint("c", i)}
		}
		p, err := encodePosition(columns, key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodePosition(columns, p)
		if err != nil || !reflect.DeepEqual(got, key) {
			t.Fatalf("%#v came back as %#v by %s (%v)", key, got, p, err)
		}
	})
}

// TestFloatsOfPositions: the numbers that JSON has no words for.
func TestFloatsOfPositions(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.SmallestNonzeroFloat64, math.MaxFloat64} {
		text, err := encodeToken(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeToken(text)
		if err != nil || math.Float64bits(got.(float64)) != math.Float64bits(f) {
			t.Errorf("%v came back as %v (%v)", f, got, err)
		}
	}
}

// TestNames: names with dots, quotes and schemas.
func TestNames(t *testing.T) {
	for text, want := range map[string][2]string{
		"t": {"", "t"}, "s.t": {"s", "t"}, `"a.b".c`: {"a.b", "c"}, `"a""b"`: {"", `a"b`}, `s."t x"`: {"s", "t x"},
	} {
		schema, name, err := splitName(text)
		if err != nil || schema != want[0] || name != want[1] {
			t.Errorf("%s is %q and %q (%v)", text, schema, name, err)
		}
	}
	for _, text := range []string{"", ".", "a.", ".b", "a.b.c", `"a`, `"a"b`} {
		if schema, name, err := splitName(text); err == nil {
			t.Errorf("%q is %q and %q", text, schema, name)
		}
	}
}

// TestTooOld: servers that are too old are told from others.
func TestTooOld(t *testing.T) {
	for version, want := range map[string][2]bool{
		"8.0.36": {false, true}, "5.7.44-log": {false, true}, "5.6.51": {false, false}, "10.11.6-MariaDB-0+deb12u1": {true, true},
		"5.5.5-10.4.1-MariaDB": {true, true}, "10.2.44-MariaDB": {true, false}, "9.1.0": {false, true}, "odd": {false, true},
	} {
		maria, err := supported(version)
		if maria != want[0] || (err == nil) != want[1] {
			t.Errorf("%s: MariaDB %t, %v", version, maria, err)
		}
	}
}

// TestEqualKeys: what an engine takes for equal is the same.
func TestEqualKeys(t *testing.T) {
	for _, c := range []struct {
		same func(any) any
		a, b any
	}{
		{sameDecimal, "1.50", "1.5"}, {sameDecimal, "10", "10.00"}, {sameDecimal, "-0.0", "0"},
		{sameNumber, int64(2), 2.0}, {samePadded, "a  ", "a"}, {sameZeros, []byte{1, 0}, []byte{1}},
	} {
		if !reflect.DeepEqual(c.same(c.a), c.same(c.b)) {
			t.Errorf("%v and %v are told apart", c.a, c.b)
		}
	}
	for _, c := range []struct {
		same func(any) any
		a, b any
	}{{sameDecimal, "100", "1"}, {sameNumber, 0.5, int64(0)}, {sameNumber, math.Inf(1), int64(math.MaxInt64)}} {
		if reflect.DeepEqual(c.same(c.a), c.same(c.b)) {
			t.Errorf("%v and %v are not told apart", c.a, c.b)
		}
	}
}

// TestWholeOfMySQL: but by its primary key a table is read by one statement,
// since MySQL may sort all rows for each page of another index.
func TestWholeOfMySQL(t *testing.T) {
	s := sourceOf(t, MySQL, "mysql://u:p@h/d")
	d := s.d.(*mySQL)
	sh := shape{
		columns: []*column{d.form("a", "INT", 0, 0), d.form("b", "BIGINT", 0, 0), d.form("c", "VARCHAR", 0, 0)},
		indexes: []index{{columns: []string{"a", "b"}, primary: true}, {columns: []string{"b", "a"}}},
	}
	for _, c := range []struct {
		keys          []string
		whole, sorted bool
	}{{nil, false, false}, {[]string{"a"}, false, false}, {[]string{"b", "a"}, true, false}, {[]string{"c"}, true, true}, {[]string{"a", "c"}, true, true}} {
		s.o.KeyColumns = c.keys
		set, err := s.dataset(subject{}, sh)
		if err != nil || set.whole != c.whole || set.sorted != c.sorted {
			t.Errorf("by %v: %+v, %v", c.keys, set, err)
		}
	}
}
