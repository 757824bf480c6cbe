package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/client"
)

// read drains a source into lines such as `3: key=value` and `4! reason`.
func read(t *testing.T, src Source) (out []string, err error) {
	t.Helper()
	for {
		row, err := src.Next()
		var f *Fault
		switch {
		case errors.As(err, &f):
			out = append(out, fmt.Sprintf("%d! %s", f.Line, f.Reason))
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		default:
			out = append(out, fmt.Sprintf("%d: %s=%s", row.Line, row.Op.Key, valueOf(row.Op)))
		}
	}
}

func valueOf(op client.Op) string {
	if op.JSON != nil {
		return "json:" + string(op.JSON)
	}
	return string(op.Value)
}

// expect compares what was read; a reason is compared by its beginning.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("read\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range got {
		if got[i] != want[i] && !(strings.Contains(want[i], "!") && strings.HasPrefix(got[i], want[i])) {
			t.Errorf("row %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestNDJSON(t *testing.T) {
	for _, tc := range []struct{ name, line, want string }{
		{"base64", `{"key":"a","value":"AP8="}`, "1: a=\x00\xff"},
		{"empty value", `{"key":"a","value":""}`, "1: a="},
		{"text", `{"key":"a","text":"grüße\n"}`, "1: a=grüße\n"},
		{"json", `{"key":"a","json":{"x": [1, 2]}}`, `1: a=json:{"x": [1, 2]}`},
		{"json null", `{"key":"a","json":null}`, `1: a=json:null`},
		{"awkward key", `{"key":"a/b//..%\u0000🙂\ud83d\ude42","text":"v"}`, "1: a/b//..%\x00🙂🙂=v"},
		{"spaces", "  {\"key\" : \"a\" , \"text\":\"v\"}  \r", "1: a=v"},
		{"version ignored", `{"key":"a","text":"v","version":"x"}`, "1: a=v"},
		{"byte order mark", "\xef\xbb\xbf" + `{"key":"a","text":"v"}`, "1: a=v"},
		{"no key", `{"text":"v"}`, `1! "key" is missing`},
		{"empty key", `{"key":"","text":"v"}`, "1! the key is empty"},
		{"key no string", `{"key":5,"text":"v"}`, `1! "key" is not a string`},
		{"key null", `{"key":null,"text":"v"}`, `1! "key" is not a string`},
		{"no value", `{"key":"a"}`, "1! exactly one of"},
		{"two values", `{"key":"a","text":"v","value":""}`, "1! exactly one of"},
		{"bad base64", `{"key":"a","value":"hello"}`, `1! "value" is not base64`},
		{"text no string", `{"key":"a","text":5}`, `1! "text" is not a string`},
		{"unknown field", `{"key":"a","text":"v","vlaue":1}`, "1! malformed JSON: unknown field"},
		{"not JSON", `hello`, "1! malformed JSON"},
		{"cut off", `{"key":"a","te`, "1! malformed JSON: the line ends too early"},
		{"array", `[]`, "1! malformed JSON: an object is expected, this is of type array"},
		{"end is text", `{"key":"a","text":"","end":"x"}`, `1! malformed JSON: "end" cannot be of type string`},
		{"two objects", `{"key":"a","text":"v"}{"key":"b","text":"v"}`, "1! malformed JSON: more than one"},
		{"not UTF-8", "{\"key\":\"\xff\",\"text\":\"v\"}", "1! not UTF-8"},
		{"lone surrogate in key", `{"key":"\ud800","text":"v"}`, `1! "key" has an unpaired surrogate`},
		{"lone low surrogate in text", `{"key":"a","text":"x\udc00"}`, `1! "text" has an unpaired surrogate`},
		{"surrogate before other", `{"key":"\ud83dx","text":"v"}`, `1! "key" has an unpaired surrogate`},
		{"two high surrogates", `{"key":"\ud83d\ud83d","text":"v"}`, `1! "key" has an unpaired surrogate`},
		{"escaped backslash before u", `{"key":"\\ud800","text":"v"}`, `1: \ud800=v`},
		{"bad ttl", `{"key":"a","text":"v","ttl":"soon"}`, `1! ttl "soon"`},
		{"zero ttl", `{"key":"a","text":"v","ttl":0}`, `1! ttl "0"`},
		{"negative ttl", `{"key":"a","text":"v","ttl":"-5s"}`, `1! ttl "-5s"`},
		{"endless ttl", `{"key":"a","text":"v","ttl":1e99}`, `1! ttl "1e99"`},
		{"bad moment", `{"key":"a","text":"v","expiresAt":"tomorrow"}`, `1! expiresAt "tomorrow"`},
		{"ttl and moment", `{"key":"a","text":"v","ttl":5,"expiresAt":"2030-01-01T00:00:00Z"}`, "1! \"ttl\" and \"expiresAt\""},
		{"bad content type", `{"key":"a","text":"v","contentType":"a\nb"}`, `1! "contentType" is no media type`},
		{"key in an end line", `{"key":"a","text":"v","end":true}`, `1! "end" and "count"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := read(t, NDJSON(strings.NewReader(tc.line+"\n"), 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, got, []string{tc.want})
		})
	}
}

func TestNDJSONKeepsGoing(t *testing.T) {
	in := "{\"key\":\"a\",\"text\":\"1\"}\n\n   \nbad\n" + `{"key":"` + strings.Repeat("x", 300) + "\"}\n" + `{"key":"b","text":"2"}`
	got, err := read(t, NDJSON(strings.NewReader(in), 200))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, []string{"1: a=1", "4! malformed JSON", "5! longer than 200 bytes", "6: b=2"})
}

func TestExpiry(t *testing.T) {
	src := NDJSON(strings.NewReader(`{"key":"a","text":"","ttl":"1m30s"}
{"key":"a","text":"","ttl":1.5}
{"key":"a","text":"","expiresAt":"2030-01-02T03:04:05.678Z"}
{"key":"a","text":"","expiresAt":null,"contentType":"image/png"}`), 1000)
	var ttls []time.Duration
	var last Row
	for {
		row, err := src.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		ttls = append(ttls, row.Op.TTL)
		if !row.ExpiresAt.IsZero() && !row.ExpiresAt.Equal(time.Date(2030, 1, 2, 3, 4, 5, 678e6, time.UTC)) {
			t.Errorf("expires at %v", row.ExpiresAt)
		}
		last = row
	}
	if !slices.Equal(ttls, []time.Duration{90 * time.Second, 1500 * time.Millisecond, 0, 0}) || last.ContentType != "image/png" {
		t.Fatalf("times to live %v, last row %+v", ttls, last)
	}
}

func TestEndLine(t *testing.T) {
	row := `{"key":"a","text":"v"}` + "\n"
	got, err := read(t, NDJSON(strings.NewReader(row+`{"end":true,"count":1}`+"\n"+row+row+`{"end":true,"count":2}`), 1000))
	if err != nil || len(got) != 3 {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = read(t, NDJSON(strings.NewReader(row+`{"end":true,"count":2}`), 1000))
	if !errors.Is(err, ErrShort) {
		t.Fatalf("a cut stream: %v", err)
	}
}

func TestCSV(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		o        CSVOptions
		want     []string
	}{
		{"key and value", "key,value\na,1\nb,\n", CSVOptions{}, []string{"2: a=1", "3: b="}},
		{"whole row", "id,name\n7,Ann\n", CSVOptions{}, []string{`2: 7=json:{"id":"7","name":"Ann"}`}},
		{"whole row by column", "id,name\n7,A<n>n\n", CSVOptions{Key: "name"}, []string{`2: A<n>n=json:{"id":"7","name":"A<n>n"}`}},
		{"value column", "id,name,x\n7,Ann,z\n", CSVOptions{Value: "x"}, []string{"2: 7=z"}},
		{"key column among others", "x,key\n1,k\n", CSVOptions{}, []string{`2: k=json:{"x":"1","key":"k"}`}},
		{"tabs", "key\tvalue\na\tx,y\n", CSVOptions{Comma: '\t'}, []string{"2: a=x,y"}},
		{"semicolons", "key;value\na;1\n", CSVOptions{Comma: ';'}, []string{"2: a=1"}},
		{"no header", "a,1\nb,2\n", CSVOptions{NoHeader: true, Value: "2"}, []string{"1: a=1", "2: b=2"}},
		{"no header, whole row", "a,1\n", CSVOptions{NoHeader: true}, []string{`1: a=json:["a","1"]`}},
		{"no header, key two", "a,1\n", CSVOptions{NoHeader: true, Key: "2", Value: "1"}, []string{"1: 1=a"}},
		{"template", "day,nr,v\n2026-01-02,42,x\n", CSVOptions{KeyTemplate: "o/{day}/{nr:5}", Value: "v"}, []string{"2: o/2026-01-02/00042=x"}},
		{"template with braces", "a,v\nx,y\n", CSVOptions{KeyTemplate: "{{{a}}}", Value: "v"}, []string{"2: {x}=y"}},
		{"template, empty part", "a,v\n,y\nz,y\n", CSVOptions{KeyTemplate: "k{a}", Value: "v"}, []string{`2! column "a", part of the key, is empty`, "3: kz=y"}},
		{"template, too wide", "a,v\n123,y\n1x,y\n", CSVOptions{KeyTemplate: "{a:2}", Value: "v"}, []string{`2! column "a", part of the key, is no number`, `3! column "a", part of the key, is no number`}},
		{"base64", "key,value\na,AP8=\nb,!\n", CSVOptions{Base64: true}, []string{"2: a=\x00\xff", "3! the value is not base64"}},
		{"bytes", "key,value\na,\xff\n", CSVOptions{}, []string{"2: a=\xff"}},
		{"bytes in a whole row", "id,x\na,\xff\n", CSVOptions{}, []string{"2! column 2 is not UTF-8"}},
		{"bytes in a key", "key,value\n\xff,x\n", CSVOptions{}, []string{"2! the key is not UTF-8"}},
		{"empty key", "key,value\n,x\n", CSVOptions{}, []string{"2! the key is empty"}},
		{"too few and many", "key,value\na\nb,1,2\nc,3\n", CSVOptions{}, []string{"2! 1 fields, 2 expected", "3! 3 fields, 2 expected", "4: c=3"}},
		{"quoted", "key,value\n\"a,b\",\"x\"\"y\"\n\"\",z\n", CSVOptions{}, []string{`2: a,b=x"y`, "3! the key is empty"}},
		{"line ends inside", "key,value\na,\"1\r\n2\n\n3\"\nb,4\n", CSVOptions{}, []string{"2: a=1\r\n2\n\n3", "6: b=4"}},
		{"bare quote", "key,value\na,5\" pipe\nb,2\n", CSVOptions{}, []string{"2! a '\"' inside a field", "3: b=2"}},
		{"junk after quote", "key,value\na,\"x\"y\nb,2\n", CSVOptions{}, []string{"2! characters after the end quote", "3: b=2"}},
		{"no quotes", "key,value\na,\"5\" pipe\nb,2\n", CSVOptions{NoQuotes: true}, []string{`2: a="5" pipe`, "3: b=2"}},
		{"CRLF and empty lines", "key,value\r\n\r\na,1\r\n\n", CSVOptions{}, []string{"3: a=1"}},
		{"no last line end", "key,value\na,\"1\"", CSVOptions{}, []string{"2: a=1"}},
		{"byte order mark", "\xef\xbb\xbfkey,value\na,1\n", CSVOptions{}, []string{"2: a=1"}},
		{"trailing comma", "key,value\na,\n", CSVOptions{}, []string{"2: a="}},
		{"long line", "key,value\na," + strings.Repeat("x", 2000) + "\nb,2\n", CSVOptions{}, []string{"2! longer than 1000 bytes", "3: b=2"}},
		{"only a header", "key,value\n", CSVOptions{}, nil},
		{"empty without header", "", CSVOptions{NoHeader: true}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.MaxRecord = 1000
			src, err := CSV(strings.NewReader(tc.in), tc.o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(t, src)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, got, tc.want)
		})
	}
}

func TestCSVRefusesColumns(t *testing.T) {
	for name, tc := range map[string]struct {
		in string
		o  CSVOptions
	}{
		"empty file":           {"", CSVOptions{}},
		"no such key":          {"a,b\n", CSVOptions{Key: "x"}},
		"no such value":        {"a,b\n", CSVOptions{Value: "x"}},
		"twice":                {"a,a\n", CSVOptions{}},
		"not UTF-8":            {"a,\xff\n", CSVOptions{}},
		"key and template":     {"a,b\n", CSVOptions{Key: "a", KeyTemplate: "{a}"}},
		"template, no column":  {"a,b\n", CSVOptions{KeyTemplate: "abc"}},
		"template, unknown":    {"a,b\n", CSVOptions{KeyTemplate: "{x}"}},
		"template, unbalanced": {"a,b\n", CSVOptions{KeyTemplate: "{a"}},
		"template, end only":   {"a,b\n", CSVOptions{KeyTemplate: "a}{a}"}},
		"template, width":      {"a,b\n", CSVOptions{KeyTemplate: "{a:0}"}},
		"template, wide":       {"a,b\n", CSVOptions{KeyTemplate: "{a:65}"}},
		"base64 of a row":      {"a,b\n", CSVOptions{Base64: true}},
		"quote as separator":   {"a,b\n", CSVOptions{Comma: '"'}},
		"column beyond":        {"a,b\n", CSVOptions{NoHeader: true, Key: "3"}},
	} {
		tc.o.MaxRecord = 1000
		if _, err := CSV(strings.NewReader(tc.in), tc.o); !errors.Is(err, ErrColumns) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestQuoteThatNeverEnds(t *testing.T) {
	for name, in := range map[string]string{
		"end of input": "key,value\na,1\nb,\"x\ny\n", "bound": "key,value\na,1\nb,\"" + strings.Repeat("x\n", 600),
	} {
		src, err := CSV(strings.NewReader(in), CSVOptions{MaxRecord: 1000})
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(t, src)
		if !errors.Is(err, ErrQuote) || len(got) != 1 || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestRawIsWhatStoodThere(t *testing.T) {
	in := "key,value\na,\"1\n2\"\nb,x\"y\r\nc,3\r\n"
	src, err := CSV(strings.NewReader(in), CSVOptions{MaxRecord: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var raw []string
	for range 3 {
		row, err := src.Next()
		var f *Fault
		if errors.As(err, &f) {
			row.Raw = f.Raw
		}
		raw = append(raw, string(row.Raw))
	}
	if want := []string{"a,\"1\n2\"", "b,x\"y", "c,3"}; !slices.Equal(raw, want) {
		t.Fatalf("%q, want %q", raw, want)
	}
}

type failingReader struct{ n int }

func (f *failingReader) Read(p []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, io.ErrClosedPipe
	}
	return copy(p, "key,value\na,1\n"), nil
}

func TestReadErrorIsFinal(t *testing.T) {
	src, err := CSV(&failingReader{1}, CSVOptions{MaxRecord: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, src); len(got) != 1 || !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := read(t, NDJSON(&failingReader{0}, 10)); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

// drawEntry draws an entry that every form of file can hold.
func drawEntry(t *rapid.T, text bool) client.Entry {
	e := client.Entry{Key: rapid.StringN(1, 20, -1).Draw(t, "key")}
	if text {
		e.Value = []byte(rapid.String().Draw(t, "value"))
	} else {
		e.Value = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	}
	if rapid.Bool().Draw(t, "expires") {
		e.ExpiresAt = time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "at")).UTC()
	}
	return e
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, tc := range []struct {
		name string
		text bool
		w    func(io.Writer) Writer
		r    func(io.Reader) (Source, error)
	}{
		{"ndjson base64", false, func(w io.Writer) Writer { return NewNDJSONWriter(w, Base64) }, nil},
		{"ndjson auto", false, func(w io.Writer) Writer { return NewNDJSONWriter(w, Auto) }, nil},
		{"ndjson text", true, func(w io.Writer) Writer { return NewNDJSONWriter(w, Text) }, nil},
		{"csv text", true, func(w io.Writer) Writer { return NewCSVWriter(w, ',', Text) }, func(r io.Reader) (Source, error) { return CSV(r, CSVOptions{MaxRecord: 1 << 20}) }},
		{"tsv text", true, func(w io.Writer) Writer { return NewCSVWriter(w, '\t', Text) }, func(r io.Reader) (Source, error) { return CSV(r, CSVOptions{Comma: '\t', MaxRecord: 1 << 20}) }},
		{"csv base64", false, func(w io.Writer) Writer { return NewCSVWriter(w, ',', Base64) }, func(r io.Reader) (Source, error) { return CSV(r, CSVOptions{Base64: true, MaxRecord: 1 << 20}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) client.Entry { return drawEntry(t, tc.text) }), 0, 5).Draw(t, "entries")
				var b bytes.Buffer
				w := tc.w(&b)
				for _, e := range entries {
					if err := w.Write(e); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				src := NDJSON(&b, 1<<20)
				if tc.r != nil {
					var err error
					if src, err = tc.r(&b); err != nil {
						t.Fatal(err)
					}
				}
				for _, e := range entries {
					row, err := src.Next()
					if err != nil || row.Op.Key != e.Key || !bytes.Equal(row.Op.Value, e.Value) || !row.ExpiresAt.Equal(e.ExpiresAt) {
						t.Fatalf("%+v came back as %+v, %v", e, row, err)
					}
				}
				if _, err := src.Next(); !errors.Is(err, io.EOF) {
					t.Fatalf("after the last: %v", err)
				}
			})
		})
	}
}

func TestValueThatDoesNotFit(t *testing.T) {
	bin := client.Entry{Key: "k", Value: []byte{0xff}}
	for name, w := range map[string]Writer{"text": NewNDJSONWriter(io.Discard, Text), "json": NewNDJSONWriter(io.Discard, JSON), "csv": NewCSVWriter(io.Discard, ',', Text)} {
		if err := w.Write(bin); !errors.Is(err, ErrForm) || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var b bytes.Buffer
	w := NewNDJSONWriter(&b, JSON)
	for _, e := range []client.Entry{{Key: "k", Value: []byte("{ \"a\" : 1 }"), Version: "7"}, {Key: "only"}} {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != "{\"key\":\"k\",\"json\":{\"a\":1},\"version\":\"7\"}\n{\"key\":\"only\"}\n" {
		t.Fatal(got)
	}
}

// FuzzNDJSON: whatever the input, reading ends, and every row has a usable key.
func FuzzNDJSON(f *testing.F) {
	f.Add(`{"key":"a","text":"v","ttl":"5s"}` + "\n" + `{"end":true,"count":1}`)
	f.Add(`{"key":"\ud800"}`)
	f.Add("\xef\xbb\xbf\n\n{")
	f.Fuzz(func(t *testing.T, in string) { drain(t, NDJSON(strings.NewReader(in), 1<<10), len(in)) })
}

// FuzzCSV: the same for delimited files.
func FuzzCSV(f *testing.F) {
	f.Add("key,value\na,\"1\n2\"\n", byte(','), false)
	f.Add("a\tb\n\"\t\"\n", byte('\t'), true)
	f.Fuzz(func(t *testing.T, in string, comma byte, noHeader bool) {
		src, err := CSV(strings.NewReader(in), CSVOptions{Comma: comma, NoHeader: noHeader, MaxRecord: 1 << 10})
		if err == nil {
			drain(t, src, len(in))
		}
	})
}

func drain(t *testing.T, src Source, size int) {
	for n := 0; ; n++ {
		row, err := src.Next()
		var f *Fault
		if err != nil && !errors.As(err, &f) {
			return
		}
		if err == nil && (row.Op.Key == "" || strings.ToValidUTF8(row.Op.Key, "") != row.Op.Key) {
			t.Fatalf("row with key %q", row.Op.Key)
		}
		if n > size {
			t.Fatal("more rows than bytes")
		}
	}
}
