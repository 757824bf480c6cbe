package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/latticekv/lattice/migrate/source"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func pack(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// read returns the rows and faults of a file as lines, and the positions.
func read(t *testing.T, o Options, from source.Position) (rows []string, positions []source.Position, err error) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		return nil, nil, err
	}
	if _, err := s.Inspect(t.Context()); err != nil {
		return nil, nil, err
	}
	for p, err := range s.Read(t.Context(), from) {
		if err != nil {
			return rows, positions, err
		}
		for _, r := range p.Records {
			line := r.Origin
			for _, f := range r.Fields {
				line += fmt.Sprintf("|%s=%T:%v", f.Name, f.Value, f.Value)
				if raw, ok := f.Value.(json.RawMessage); ok {
					line = strings.TrimSuffix(line, fmt.Sprint(f.Value)) + string(raw)
				}
			}
			rows = append(rows, line)
		}
		for _, f := range p.Faults {
			rows = append(rows, f.Origin+"!"+f.Reason)
		}
		positions = append(positions, p.Next)
	}
	return rows, positions, nil
}

func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		o       Options
		want    []string
	}{
		"csv": {"\xef\xbb\xbfid,name\r\n1,\"a\r\n\"\"b\"\"\"\r\n\r\n2\n3,\xff\n", Options{Format: CSV},
			[]string{"f:2|id=string:1|name=string:a\r\n\"b\"", "f:6|id=string:3|name=string:\xff", "f:5!1 fields, 2 expected"}},
		"numbers and null": {"a,b,c\n007,-1.50,\n1e3,\\N,x\n", Options{Format: CSV, Numbers: true, Null: `\N`, HasNull: true},
			[]string{"f:2|a=string:007|b=source.Number:-1.50|c=string:", "f:3|a=source.Number:1e3|b=<nil>:<nil>|c=string:x"}},
		"tsv without header and quotes": {"a\"\tb\n", Options{Format: TSV, NoHeader: true, NoQuotes: true}, []string{"f:1|1=string:a\"|2=string:b"}},
		"ndjson": {`{"s":"x","n":12345678901234567890.10,"o":{"a": 1},"l":[],"z":null,"t":true,"f":false}` + "\n\n" + `[1]` + "\n" + `{"a":1} {}` + "\n" + `{"a":"\ud800"}` + "\n{\"a\":\"\xff\"}\n{\"a\":", Options{Format: NDJSON},
			[]string{`f:1|s=string:x|n=source.Number:12345678901234567890.10|o=json.RawMessage:{"a": 1}|l=json.RawMessage:[]|z=<nil>:<nil>|t=bool:true|f=bool:false`,
				"f:3!no JSON object", "f:4!more than one value on the line", "f:5!it has an unpaired surrogate", "f:6!not UTF-8", "f:7!malformed JSON"}},
		"a long line": {"{\"a\":1}\n{\"a\":\"" + strings.Repeat("x", 100) + "\"}\n{\"a\":2}\n", Options{Format: NDJSON, MaxRecord: 50},
			[]string{"f:1|a=source.Number:1", "f:3|a=source.Number:2", "f:2!longer than 50 bytes"}},
		"empty": {"", Options{Format: NDJSON}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, content := range []string{c.content, pack(t, c.content)} {
				c.o.Path = write(t, "f", content)
				got, _, err := read(t, c.o, nil)
				if err != nil || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
					t.Fatalf("%v\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			}
		})
	}
}

// From every position the rest of the rows is read, with the same origins.
func TestPositions(t *testing.T) {
	var csv, ndjson strings.Builder
	csv.WriteString("id,text\n")
	for i := range 3500 {
		fmt.Fprintf(&csv, "%d,\"line\n%d\"\n", i, i)
		fmt.Fprintf(&ndjson, "{\"id\":%d}\n", i)
	}
	for format, content := range map[Format]string{CSV: csv.String(), NDJSON: ndjson.String()} {
		for _, content := range []string{content, pack(t, content)} {
			o := Options{Path: write(t, "f", content), Format: format}
			all, positions, err := read(t, o, nil)
			if err != nil || len(all) != 3500 || len(positions) != 4 || positions[3] != nil {
				t.Fatalf("%s: %d rows, positions %s, %v", format, len(all), positions, err)
			}
			for i, p := range positions[:3] {
				rest, _, err := read(t, o, p)
				if err != nil || strings.Join(rest, "\n") != strings.Join(all[1000*(i+1):], "\n") {
					t.Fatalf("%s from %s: %d rows, %v", format, p, len(rest), err)
				}
			}
		}
	}
}

func TestInspect(t *testing.T) {
	for _, c := range []struct {
		name, content string
		o             Options
		template, err string
	}{
		{"csv", "id,key\n1,2\n", Options{Format: CSV}, "{key}", ""},
		{"ndjson", `{"b":1,"a":2}`, Options{Format: NDJSON}, "{b}", ""},
		{"empty csv", "", Options{Format: CSV}, "", "the header row is missing"},
		{"twice", "a,a\n", Options{Format: CSV}, "", "occurs twice"},
		{"nameless", "a,\n", Options{Format: CSV}, "", "column 2 of"},
		{"open quote", "\"a\n", Options{Format: CSV}, "", "a quoted field does not end"},
		{"format", "", Options{Format: "xml"}, "", "ndjson, csv or tsv"},
		{"comma", "", Options{Format: CSV, Comma: '"'}, "", "cannot separate"},
	} {
		c.o.Path = write(t, "f", c.content)
		s, err := New(c.o)
		var info source.Info
		if err == nil {
			info, err = s.Inspect(t.Context())
		}
		if c.err == "" && (err != nil || info.KeyTemplate != c.template || info.Estimate < 1 && c.name == "csv") {
			t.Errorf("%s: %+v, %v", c.name, info, err)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s, err := New(Options{Path: t.TempDir(), Format: CSV})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
}

func TestAChangedFileIsAnotherOne(t *testing.T) {
	path := write(t, "f", "{}\n")
	identity := func() string {
		s, err := New(Options{Path: path, Format: NDJSON})
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Identity
	}
	before := identity()
	if again := identity(); again != before {
		t.Fatalf("%q, then %q", before, again)
	}
	if err := os.WriteFile(path, []byte("{}\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if identity() == before {
		t.Fatal("a longer file has the same identity")
	}
}

func TestACutOffArchiveIsNoEnd(t *testing.T) {
	content := pack(t, strings.Repeat("{\"id\":1}\n", 5000))
	o := Options{Path: write(t, "f", content[:len(content)-6]), Format: NDJSON}
	if rows, _, err := read(t, o, nil); err == nil || !strings.Contains(err.Error(), "cut off or damaged") {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
}
