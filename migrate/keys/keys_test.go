package keys

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/migrate/source"
)

func record(pairs ...any) *source.Record {
	r := &source.Record{}
	for i := 0; i < len(pairs); i += 2 {
		r.Fields = append(r.Fields, source.Field{Name: pairs[i].(string), Value: pairs[i+1]})
	}
	return r
}

func parse(t interface {
	Helper()
	Fatal(...any)
}, text string, o Options) *Template {
	t.Helper()
	tm, err := Parse(text, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return tm
}

func TestKeys(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 3, 4_000_000, time.FixedZone("", 3600))
	r := record("tenant", "acme", "id", int64(42), "neg", int64(-7), "u", uint64(math.MaxUint64), "b", []byte{0xff, 0},
		"at", at, "day", at.Truncate(24*time.Hour), "yes", true, "n", source.Number("12.00"), "f", 2.5, "key", "a/b",
		"j", json.RawMessage(`"x\u0041"`), "a:b", "colon", "é", "é", "text", "017")
	for template, want := range map[string]string{
		"order/{tenant}/{id:019d}": "order/acme/0000000000000000042",
		"{id:5}":                   "00042",
		"{neg:+3d}|{id:+3d}":       "0992|1042",
		"{u:20}":                   "18446744073709551615",
		"{b:hex}/{b:b64}":          "ff00/_wA",
		"{at:rfc3339}":             "2026-11-30T00:02:03.004000000Z",
		"{at}":                     "2026-11-30T00:02:03.004000000Z",
		"{at:unixms}":              "001795996923004",
		"{day:date}{id:3}":         "2026-11-30042",
		"{{{tenant}}}":             "{acme}",
		"{yes}/{n}/{f}":            "true/12.00/2.5",
		"{n:4}":                    "0012",
		"k/{key:raw}":              "k/a/b",
		"{key}":                    "a/b",
		"{j}":                      "xA",
		"{text:4}":                 "0017",
		"{é}→{tenant}":             "é→acme",
	} {
		if got, err := parse(t, template, Options{}).Key(r); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", template, got, err, want)
		}
	}
	tm, err := Parse("{a:b}", []string{"a:b"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tm.Key(r); err != nil || got != "colon" {
		t.Errorf("a name with a colon: %q, %v", got, err)
	}
}

func TestFaultsOfARow(t *testing.T) {
	at := time.Date(1969, 1, 1, 0, 0, 0, 1, time.UTC)
	r := record("slash", "a/b", "empty", "", "null", nil, "big", int64(12345), "neg", int64(-1), "half", 1.5, "bytes", []byte{0xff},
		"at", at, "long", strings.Repeat("x", 1100), "nan", math.NaN(), "obj", json.RawMessage(`{}`), "word", "12a", "dash", "a-b",
		"nil", json.RawMessage(`null`), "year", time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC), "dec", source.Number("1.50"), "huge", 1e300)
	for template, want := range map[string]string{
		"x/{slash}":      `holds the separator '/'`,
		"{slash}/x":      `holds the separator '/'`,
		"{dash}-{big}":   `holds the separator '-'`,
		"{big:4}":        "number of 5 digits, and its width is 4",
		"{big:+4}":       "number of 5 digits, and its width is 4",
		"a/{empty}":      "is empty",
		"a/{null}":       "is NULL; --null-segment",
		"a/{nil}":        "is NULL; --null-segment",
		"{neg:4}":        "is below zero; {…:+4}",
		"{half:4}":       "no whole number",
		"{huge:400}":     "",
		"{huge:100}":     "no whole number that a float holds exactly",
		"{word:4}":       "no whole number",
		"{dec:4}":        "no whole number",
		"{bytes}":        "is not UTF-8",
		"{at:date}":      "more than a day",
		"{at:unix}":      "finer than a second",
		"{at:unixms}":    "finer than a millisecond",
		"{year:rfc3339}": "lies in the year 12345",
		"{long}":         "the key has 1100 bytes and may have 1024",
		"{nan}":          "no finite number",
		"{obj}":          "JSON object or array",
		"{gone}":         `no field "gone"`,
		"{big:hex}":      "neither bytes nor text",
		"{big:date}":     "is no time",
	} {
		tm, err := Parse(template, nil, Options{})
		if want == "" {
			if err == nil {
				t.Errorf("%s is accepted", template)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		key, err := tm.Key(r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", template, key, err, want)
		}
	}
	before := record("at", time.Unix(-1, 0))
	if _, err := parse(t, "{at:unix}", Options{}).Key(before); err == nil || !strings.Contains(err.Error(), "before 1970") {
		t.Error(err)
	}
}

func TestNullSegment(t *testing.T) {
	tm := parse(t, "{a}/{id:4}", Options{NullSegment: "~"})
	if got, err := tm.Key(record("a", nil, "id", nil)); err != nil || got != "~/~" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := tm.Key(record("a", "~", "id", int64(1))); err == nil || !strings.Contains(err.Error(), "stands for NULL") {
		t.Fatalf("a value like the sentinel: %v", err)
	}
	tm = parse(t, "{id:4}", Options{NullSegment: "0001"})
	if _, err := tm.Key(record("id", int64(1))); err == nil {
		t.Fatal("a number like the sentinel is accepted")
	}
}

func TestParseErrorsNameThePlace(t *testing.T) {
	for _, c := range []struct {
		template string
		o        Options
		offset   int
		want     string
	}{
		{"order/{id", Options{}, 6, "not closed"},
		{"order}", Options{}, 5, "was not opened"},
		{"x", Options{}, 0, "names no field"},
		{"a/{}", Options{}, 2, "hold no name"},
		{"a/{id:fancy}", Options{}, 6, "is no form"},
		{"a/{id:0}", Options{}, 6, "a width is 1 to 100"},
		{"a/{id:-3}", Options{}, 6, "is no form"},
		{"{a}{b}", Options{}, 3, "run together"},
		{"{a:4}{b}", Options{NullSegment: "x"}, 5, "run together"},
		{"{a:raw}/{b}", Options{}, 0, "only the last segment"},
		{"{a:b64}-{b}", Options{}, 7, "cannot separate"},
		{"{a:4}0{b}", Options{NullSegment: "x"}, 5, "cannot separate"},
		{"{a}/{b}", Options{NullSegment: "a/b"}, 0, "holds the separator"},
		{"{a:4}/{b}", Options{NullSegment: "/"}, 0, "holds the separator"},
		{"a\xff{b}", Options{}, 1, "not UTF-8"},
	} {
		_, err := Parse(c.template, nil, c.o)
		var p *ParseError
		if !errors.As(err, &p) || p.Offset != c.offset || !strings.Contains(p.Error(), c.want) {
			t.Errorf("%q: %v at %+v; want %d, %q", c.template, err, p, c.offset, c.want)
		}
	}
	_, err := Parse("é/{idd}", []string{"id", "name"}, Options{})
	if err == nil || err.Error() != `key template "é/{idd}", character 4: there is no field "idd"; there are: id, name` {
		t.Error(err)
	}
}

func TestWarnings(t *testing.T) {
	if w := parse(t, "order:{tenant}:{id:9}", Options{}).Warnings(); len(w) != 1 || !strings.Contains(w[0], "sorts above digits") {
		t.Errorf("%q", w)
	}
	for _, quiet := range []string{"order/{tenant}/{id:9}", "{id:9}:{x:9}", "a:{x}"} {
		if w := parse(t, quiet, Options{}).Warnings(); len(w) != 0 {
			t.Errorf("%s: %q", quiet, w)
		}
	}
	if w := parse(t, "{x:b64}", Options{}).Warnings(); len(w) != 1 {
		t.Errorf("%q", w)
	}
}

// The order of padded numbers is that of the numbers, over all of int64.
func TestNumbersKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		ka, erra := parse(t, "n/{x:+19d}", Options{}).Key(record("x", a))
		kb, errb := parse(t, "n/{x:+19d}", Options{}).Key(record("x", source.Number(big.NewInt(b).String())))
		if erra != nil || errb != nil || (a < b) != (ka < kb) || (a == b) != (ka == kb) {
			t.Fatalf("%d → %q, %v; %d → %q, %v", a, ka, erra, b, kb, errb)
		}
		ua, ub := rapid.Uint64().Draw(t, "ua"), rapid.Uint64().Draw(t, "ub")
		ka, erra = parse(t, "{x:20}", Options{}).Key(record("x", ua))
		kb, errb = parse(t, "{x:20}", Options{}).Key(record("x", ub))
		if erra != nil || errb != nil || (ua < ub) != (ka < kb) || (ua == ub) != (ka == kb) {
			t.Fatalf("%d → %q, %v; %d → %q, %v", ua, ka, erra, ub, kb, errb)
		}
	})
}

// Moments keep their order in every form of time.
func TestTimesKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := map[string]time.Duration{"rfc3339": 1, "unixms": time.Millisecond, "unix": time.Second}
		for form, u := range unit {
			last := int64(253402300799)
			a := time.Unix(rapid.Int64Range(0, last).Draw(t, "a"), 0).Add(time.Duration(rapid.Int64Range(0, int64(time.Second)-1).Draw(t, "na")).Truncate(u))
			b := time.Unix(rapid.Int64Range(0, last).Draw(t, "b"), 0).Add(time.Duration(rapid.Int64Range(0, int64(time.Second)-1).Draw(t, "nb")).Truncate(u))
			tm := parse(t, "{x:"+form+"}", Options{})
			ka, erra := tm.Key(record("x", a))
			kb, errb := tm.Key(record("x", b))
			if erra != nil || errb != nil || a.Before(b) != (ka < kb) || a.Equal(b) != (ka == kb) {
				t.Fatalf("%s: %s → %q, %v; %s → %q, %v", form, a, ka, erra, b, kb, errb)
			}
		}
	})
}

// Two rows with other fields never make the same key: they make another one, or
// one of them is a fault. All short rows over an awkward alphabet are tried.
func TestDifferentRowsMakeDifferentKeys(t *testing.T) {
	texts := []any{nil, ""}
	for i := range 6 {
		for j := range 7 {
			texts = append(texts, strings.TrimSpace("ax/-:0"[i:i+1]+"ax/-:0 "[j:j+1]))
		}
	}
	numbers := []any{nil, int64(-1), int64(0), int64(1), int64(10), int64(100), int64(101)}
	for _, template := range []string{"{a}/{b}/{n:4}", "{a}::{b}-{n:+4}", "{n:4}{a}/{b:raw}", "x{a}x{b}x{n}", "{a:hex}/{b:b64}/{n}", "{a}--{b}/{n}", "{n:2}0{a}/{b}", "{a}-{n:+2}{b}"} {
		for _, null := range []string{"", "~", "00", "000"} {
			tm, err := Parse(template, nil, Options{NullSegment: null})
			if err != nil {
				continue // this sentinel does not go with this template
			}
			made := map[string][3]any{}
			for _, a := range texts {
				for _, b := range texts {
					for _, n := range numbers {
						row := [3]any{a, b, n}
						key, err := tm.Key(record("a", a, "b", b, "n", n))
						if err != nil {
							continue
						}
						if other, twice := made[key]; twice {
							t.Fatalf("%s, NULL as %q: %q and %q make %q", template, null, other, row, key)
						}
						made[key] = row
					}
				}
			}
			if len(made) < 100 {
				t.Fatalf("%s, NULL as %q: only %d rows make a key", template, null, len(made))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("order/{tenant}/{id:019d}", "~")
	f.Add("{{{a:hex}}}", "")
	f.Fuzz(func(t *testing.T, text, null string) {
		tm, err := Parse(text, nil, Options{NullSegment: null})
		if err != nil {
			var p *ParseError
			if !errors.As(err, &p) || p.Offset < 0 || p.Offset > len(text) || p.Error() == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		r := &source.Record{}
		for _, name := range tm.Fields() {
			r.Fields = append(r.Fields, source.Field{Name: name, Value: "1"})
		}
		_, _ = tm.Key(r)
		_ = tm.Warnings()
	})
}
