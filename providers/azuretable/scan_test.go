package azuretable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

func TestScannerReadsTokens(t *testing.T) {
	for _, tc := range []struct {
		in, text string
		kind     byte
		err      error
	}{
		{`"" `, ``, '"', nil},
		{`"a/+=" `, `a/+=`, '"', nil},
		{`"a\/b\u002B\"\\" `, `a/b+"\`, '"', nil},
		{`"W/\"x\"" `, `W/"x"`, '"', nil},
		{`"a\\" `, `a\`, '"', nil},
		{`"a\nb" `, "a\nb", '"', nil},
		{`"é\u00e9" `, `éé`, '"', nil},
		{`12,`, `12`, '0', nil},
		{`-1.5e3}`, `-1.5e3`, '0', nil},
		{`true]`, `true`, 't', nil},
		{`false `, `false`, 'f', nil},
		{"null\n", `null`, 'n', nil},
		{"\t\r\n 7 ", `7`, '0', nil},
		{``, ``, 0, errCut},
		{`  `, ``, 0, errCut},
		{`"abc`, ``, 0, errCut},
		{`"abc\"`, ``, 0, errCut},
		{`12`, ``, 0, errCut},
		{`tru `, ``, 0, errSyntax},
		{`01 `, ``, 0, errSyntax},
		{`"\x" `, ``, 0, errSyntax},
		{`} `, ``, 0, errSyntax},
	} {
		t.Run(tc.in, func(t *testing.T) {
			s := &scanner{in: []byte(tc.in)}
			got, err := s.scalar()
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			if err == nil && (got.kind != tc.kind || string(got.text) != tc.text) {
				t.Fatalf("got %c %q, want %c %q", got.kind, got.text, tc.kind, tc.text)
			}
		})
	}
}

func TestPartsOfThePayloadAreNumbered(t *testing.T) {
	for name, want := range map[string]int{
		"P0": 0, "P9": 9, "P10": 10, "P11": 11, "P12": -1, "P99": -1, "P": -1, "P00": -1, "P01": -1, "P1x": -1,
		"P-1": -1, "P100": -1, "Q1": -1, "P0@odata.type": -1, "PartitionKey": -1, "": -1,
	} {
		if got := chunkOf([]byte(name)); got != want {
			t.Errorf("%q holds part %d, want %d", name, got, want)
		}
	}
}

func TestScannerRefusesDeepNesting(t *testing.T) {
	s := &scanner{in: []byte(strings.Repeat("[", 1_000_000))}
	if err := s.skip(0); !errors.Is(err, errDeep) {
		t.Fatalf("got %v, want too deep", err)
	}
}

func pageBody(rows ...string) []byte {
	return []byte(`{"odata.metadata":"http://h/$metadata#t","value":[` + strings.Join(rows, ",") + `]}`)
}

func logRow(key, data string) string {
	return stored("part", store.Insert(key, []byte(data)), someTag)
}

func TestPageIsReadInOrder(t *testing.T) {
	q := store.RangeQuery{From: "a", To: "c", Limit: 10}
	for _, tc := range []struct {
		name string
		body []byte
		want string
	}{
		{"Rows", pageBody(logRow("a", "1"), logRow("b", "")), "[a b]"},
		{"Empty", pageBody(), "[]"},
		{"OtherMembersAround", []byte(`{"x":{"value":[1]},"value":[` + logRow("b", "1") + `],"odata.nextLink":null}`), "[b]"},
		{"OtherMembersInside", pageBody(`{"Nested":{"RowKey":"no"},"List":[1,[2]],` + logRow("a", "1")[1:]), "[a]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rows, err := decodePage(tc.body, "part", q, false)
			if err != nil {
				t.Fatal(err)
			}
			keys := []string{}
			for _, row := range rows {
				keys = append(keys, row.Key)
			}
			if got := fmt.Sprint(keys); got != tc.want {
				t.Fatalf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestPageThatWasNotAskedForIsCorrupt(t *testing.T) {
	q := store.RangeQuery{From: "b", To: "d", Limit: 2}
	for name, body := range map[string][]byte{
		"Before":      pageBody(logRow("a", "")),
		"AtTheEnd":    pageBody(logRow("b", ""), logRow("d", "")),
		"Twice":       pageBody(logRow("b", ""), logRow("b", "")),
		"Descending":  pageBody(logRow("c", ""), logRow("b", "")),
		"TooMany":     pageBody(logRow("b", ""), logRow("c", ""), logRow("c1", "")),
		"Partition":   pageBody(stored("other", store.Insert("b", nil), someTag)),
		"NoValue":     []byte(`{"odata.metadata":"x"}`),
		"ValueNoList": []byte(`{"value":{}}`),
		"RowNoObject": []byte(`{"value":[1]}`),
		"Trash":       []byte(`hello there`),
	} {
		t.Run(name, func(t *testing.T) {
			if rows, err := decodePage(body, "part", q, false); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("got %d rows and %v, want corrupt", len(rows), err)
			}
		})
	}
}

func TestCutPageGivesItsWholeRowsOnly(t *testing.T) {
	first, second := logRow("a", "1"), logRow("b", "2")
	body := pageBody(first, second)
	q := store.RangeQuery{Limit: 10}
	firstEnds := bytes.Index(body, []byte(first)) + len(first)
	secondEnds := firstEnds + 1 + len(second)
	for n := range len(body) {
		rows, err := decodePage(body[:n], "part", q, true)
		want := 0
		if n >= firstEnds {
			want = 1
		}
		if n >= secondEnds {
			want = 2
		}
		if want > 0 && (err != nil || len(rows) != want) || want == 0 && err == nil {
			t.Fatalf("%d bytes: %d rows and %v, want %d rows", n, len(rows), err, want)
		}
		if _, err := decodePage(body[:n], "part", q, false); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("%d bytes of an answer that was not cut here: %v, want unavailable", n, err)
		}
	}
}

func FuzzPage(f *testing.F) {
	f.Add(pageBody(logRow("a", "1"), logRow("b", "2")), true)
	f.Add(pageBody(), false)
	f.Add([]byte(`{"value":[{"P0":"\u0041"}]}`), false)
	f.Add([]byte(`{"value":[[[[`), true)
	f.Fuzz(func(t *testing.T, body []byte, cut bool) {
		q := store.RangeQuery{Limit: 5}
		rows, err := decodePage(body, "part", q, cut)
		if err == nil && !cut && !json.Valid(body) && !validPrefix(body) {
			t.Fatalf("accepted what is not JSON: %q", body)
		}
		for i, row := range rows {
			if len(row.Data) > store.MaxRowBytes || row.ETag == "" || i > 0 && rows[i-1].Key >= row.Key {
				t.Fatalf("row %d is broken: %+v", i, row)
			}
		}
	})
}

// validPrefix allows for what the scanner is lenient about on purpose: bytes
// after the object, and control characters or invalid UTF-8 in strings.
func validPrefix(body []byte) bool {
	s := &scanner{in: body}
	return s.skip(0) == nil
}

func FuzzScannerAcceptsJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"b",{"c":null}]}`, `[]`, `{}`, `"x\"y"`, `[true,false,-0.5e-7]`, ` { "a" : 1 } `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &scanner{in: append(bytes.Clone(in), ' ')}
		err := s.skip(0)
		if json.Valid(in) && err != nil && !errors.Is(err, errDeep) {
			t.Fatalf("refused JSON %q: %v", in, err)
		}
	})
}
