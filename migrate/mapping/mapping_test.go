package mapping

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func mapper(t testing.TB, change func(*Options)) *Mapper {
	t.Helper()
	template, err := keys.Parse("k/{id}", nil, keys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Template: template, Start: now, Now: func() time.Time { return now }}
	if change != nil {
		change(&o)
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func row(pairs ...any) *source.Record {
	r := &source.Record{Origin: "row 1", Fields: []source.Field{{Name: "id", Value: int64(1)}}}
	for i := 0; i < len(pairs); i += 2 {
		r.Fields = append(r.Fields, source.Field{Name: pairs[i].(string), Value: pairs[i+1]})
	}
	return r
}

func TestRowsAsJSON(t *testing.T) {
	m := mapper(t, func(o *Options) { o.Base64Text = true })
	at := time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600))
	var e spool.Entry
	err := m.Map(row("least", int64(math.MinInt64), "most", uint64(math.MaxUint64), "dec", source.Number("-12.50"), "wide", source.Number("1e400"),
		"f", 0.1, "tiny", 5e-324, "huge", math.MaxFloat64, "nan", math.NaN(), "inf", math.Inf(-1), "numnan", source.Number("NaN"), "odd", source.Number("007"),
		"b", []byte{0, 255}, "empty", "", "null", nil, "nobytes", []byte{}, "at", at, "old", time.Date(-43, 3, 15, 0, 0, 0, 0, time.UTC),
		"late", time.Date(294276, 12, 31, 23, 59, 59, 999999000, time.UTC), "first", time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		"yes", true, "raw", json.RawMessage(`{ "a" : [1, 2.0] }`), "text", "é\"\\\n\x01<", "bad", "a\xff"), &e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":1,"least":-9223372036854775808,"most":18446744073709551615,"dec":-12.50,"wide":1e400,` +
		`"f":0.1,"tiny":5e-324,"huge":1.7976931348623157e+308,"nan":"NaN","inf":"-Infinity","numnan":"NaN","odd":"007",` +
		`"b":"AP8=","empty":"","null":null,"nobytes":"","at":"2026-01-02T03:04:05.000000006Z","old":"-0043-03-15T00:00:00Z",` +
		`"late":"+294276-12-31T23:59:59.999999Z","first":"0001-01-01T00:00:00Z","yes":true,"raw":{"a":[1,2.0]},"text":"é\"\\\n\u0001<","bad":"Yf8="}`
	if string(e.Value) != want || e.Type != "application/json" || e.Key != "k/1" || e.Origin != "row 1" || !json.Valid(e.Value) {
		t.Fatalf("%+v\n%s\nwant\n%s", e, e.Value, want)
	}
	var lossy []string
	for _, l := range Losses(m.Lossy()) {
		lossy = append(lossy, l.Field)
	}
	if got := strings.Join(lossy, " "); got != "bad inf late nan numnan odd old" {
		t.Fatalf("lossy: %s", got)
	}
}

func TestColumns(t *testing.T) {
	var e spool.Entry
	m := mapper(t, func(o *Options) { o.Columns = []string{"b", "a"} })
	if err := m.Map(row("a", int64(1), "b", "x", "c", nil), &e); err != nil || string(e.Value) != `{"b":"x","a":1}` {
		t.Fatalf("%s, %v", e.Value, err)
	}
	for want, v := range map[string]any{"text/plain; charset=utf-8|x": "x", "|\xff": "\xff", "|\x00": []byte{0}, "text/plain; charset=utf-8|-5": int64(-5),
		"text/plain; charset=utf-8|1.50": source.Number("1.50"), "text/plain; charset=utf-8|true": true, "application/json|{}": json.RawMessage("{}"),
		"text/plain; charset=utf-8|2026-11-30T12:00:00Z": now, "text/plain; charset=utf-8|NaN": math.NaN(), "text/plain; charset=utf-8|": ""} {
		m := mapper(t, func(o *Options) { o.Value = "column:v" })
		if err := m.Map(row("v", v), &e); err != nil || e.Type+"|"+string(e.Value) != want {
			t.Errorf("%v: %q %q, %v; want %q", v, e.Type, e.Value, err, want)
		}
	}
	m = mapper(t, func(o *Options) { o.Value = "column:v"; o.NullValue = true })
	if err := m.Map(row("v", nil), &e); err != nil || e.Value == nil || len(e.Value) != 0 {
		t.Fatalf("%v, %v", e.Value, err)
	}
}

func TestPayloads(t *testing.T) {
	r := row("kind", "string")
	r.Payload, r.Type = []byte{}, "image/png"
	var e spool.Entry
	if err := mapper(t, nil).Map(r, &e); err != nil || e.Value == nil || len(e.Value) != 0 || e.Type != "image/png" {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := mapper(t, func(o *Options) { o.Value = ValueJSON }).Map(r, &e); err != nil || string(e.Value) != `{"id":1,"kind":"string"}` {
		t.Fatalf("%s, %v", e.Value, err)
	}
}

func TestFaults(t *testing.T) {
	for want, c := range map[string]struct {
		change func(*Options)
		r      *source.Record
	}{
		"not UTF-8; --invalid-text":            {nil, row("s", "a\xff")},
		"two fields are called":                {nil, row("id", "x")},
		"JSON that is malformed":               {nil, row("j", json.RawMessage("{"))},
		"JSON that is not UTF-8":               {nil, row("j", json.RawMessage("\"\xff\""))},
		"that has no JSON":                     {nil, row("x", struct{}{})},
		"the value has 8 bytes and may have 7": {func(o *Options) { o.MaxValueBytes = 7 }, row()},
		"is NULL; --null-value":                {func(o *Options) { o.Value = "column:v" }, row("v", nil)},
		`no field "v"`:                         {func(o *Options) { o.Columns = []string{"v"} }, row()},
		"holds the separator":                  {nil, &source.Record{Fields: []source.Field{{Name: "id", Value: "a/b"}}}},
	} {
		var e spool.Entry
		if err := mapper(t, c.change).Map(c.r, &e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestOptionsThatContradict(t *testing.T) {
	template, err := keys.Parse("{id}", nil, keys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"needs a key template":        {},
		"json or column:NAME":         {Template: template, Value: "xml"},
		"a list of columns exclude":   {Template: template, Value: "column:a", Columns: []string{"b"}},
		"one of moments exclude":      {Template: template, TTLColumn: "a", ExpiresColumn: "b", TTLUnit: Seconds},
		"needs a unit":                {Template: template, TTLColumn: "a"},
		"a unit of time is s or ms":   {Template: template, TTLUnit: "m"},
		"a value is json or column:N": {Template: template, Value: "column:"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// What is a time to live of N units at the source is one of N units here,
// whatever the unit and the type; what has none keeps none; what has expired is
// neither loaded nor a fault.
func TestTimeToLiveKeepsItsUnit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		unit := rapid.SampledFrom([]Unit{Seconds, Milliseconds}).Draw(rt, "unit")
		size := map[Unit]int64{Seconds: 1000, Milliseconds: 1}[unit]
		n := rapid.Int64Range(1, 1_000_000_000).Draw(rt, "n")
		form := func(n int64) any {
			return rapid.SampledFrom([]any{n, uint64(n), float64(n), source.Number(big.NewInt(n).String()), big.NewInt(n).String()}).Draw(rt, "form")
		}
		var e spool.Entry
		ttl := mapper(t, func(o *Options) { o.TTLColumn, o.TTLUnit = "t", unit })
		if err := ttl.Map(row("t", form(n)), &e); err != nil || e.Expiry != now.UnixMilli()+n*size {
			rt.Fatalf("a time to live of %d %s: %d, %v", n, unit, e.Expiry-now.UnixMilli(), err)
		}
		moment := mapper(t, func(o *Options) { o.ExpiresColumn, o.TTLUnit = "t", unit })
		at := now.UnixMilli()/size + n
		if err := moment.Map(row("t", form(at)), &e); err != nil || e.Expiry != at*size {
			rt.Fatalf("a moment %d %s from now: %d, %v", n, unit, e.Expiry-now.UnixMilli(), err)
		}
		for _, m := range []*Mapper{ttl, moment} {
			if err := m.Map(row("t", nil), &e); err != nil || e.Expiry != 0 {
				rt.Fatalf("no expiry: %d, %v", e.Expiry, err)
			}
		}
		past := now.UnixMilli()/size - n%1_000_000
		if err := moment.Map(row("t", form(past)), &e); !errors.Is(err, ErrExpired) {
			rt.Fatalf("a moment in the past: %v", err)
		}
		other := map[Unit]int64{Seconds: now.UnixMilli() + n, Milliseconds: now.Unix() + n}[unit]
		if err := moment.Map(row("t", form(other)), &e); err == nil || !strings.Contains(err.Error(), "is the unit right?") {
			rt.Fatalf("the other unit is taken: %d, %v", e.Expiry, err)
		}
	})
}

func TestExpiry(t *testing.T) {
	var e spool.Entry
	r := row()
	r.Expiry = now.Add(1500 * time.Microsecond)
	if err := mapper(t, nil).Map(r, &e); err != nil || e.Expiry != now.UnixMilli()+1 {
		t.Fatal(e.Expiry, err)
	}
	r.Expiry = now
	if err := mapper(t, nil).Map(r, &e); !errors.Is(err, ErrExpired) || e.Key != "k/1" {
		t.Fatal(err)
	}
	r.Expiry = time.Unix(0, 0)
	if err := mapper(t, nil).Map(r, &e); !errors.Is(err, ErrExpired) {
		t.Fatalf("the first moment of 1970 is never: %v", err)
	}
	m := mapper(t, func(o *Options) { o.ExpiresColumn = "t" })
	if err := m.Map(row("t", "2030-01-01T00:00:00+01:00"), &e); err != nil || e.Expiry != time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC).UnixMilli() {
		t.Fatal(e.Expiry, err)
	}
	for want, v := range map[string]any{"needs --ttl-unit": now.Unix(), "neither a time nor a number": "soon", "beyond the year 9999": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if err := m.Map(row("t", v), &e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", v, err)
		}
	}
	m = mapper(t, func(o *Options) { o.TTLColumn, o.TTLUnit = "t", Seconds })
	for want, v := range map[string]any{"not positive": int64(0), "beyond the year": int64(math.MaxInt64), "neither": true} {
		if err := m.Map(row("t", v), &e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// Whatever the text and bytes are, a reader of the JSON gets them back.
func TestJSONGivesBackWhatWentIn(t *testing.T) {
	m := mapper(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		s, raw := rapid.String().Draw(rt, "s"), rapid.SliceOf(rapid.Byte()).Draw(rt, "raw")
		i, f := rapid.Int64().Draw(rt, "i"), rapid.Float64().Draw(rt, "f")
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(rt, "at"), rapid.Int64Range(0, 999_999_999).Draw(rt, "ns"))
		var e spool.Entry
		if err := m.Map(row("s", s, "raw", raw, "i", i, "f", f, "at", at), &e); err != nil {
			rt.Fatal(err)
		}
		var back struct {
			S   string
			Raw string
			I   int64
			F   float64
			At  time.Time
		}
		if err := json.Unmarshal(e.Value, &back); err != nil {
			rt.Fatal(err)
		}
		b, err := base64.StdEncoding.DecodeString(back.Raw)
		if err != nil || !bytes.Equal(b, raw) || back.S != s || back.I != i || back.F != f || !back.At.Equal(at) {
			rt.Fatalf("%s: %+v", e.Value, back)
		}
	})
}
