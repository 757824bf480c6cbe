package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// entryBody is an entry as its readers see it, and as encoding/json writes it.
type entryBody struct {
	Key       string          `json:"key"`
	Value     *string         `json:"value,omitempty"`
	Text      *string         `json:"text,omitempty"`
	JSON      json.RawMessage `json:"json,omitempty"`
	Version   string          `json:"version"`
	ExpiresAt string          `json:"expiresAt,omitempty"`
}

// entriesBody is a page of entries.
type entriesBody struct {
	Entries       []entryBody `json:"entries"`
	NextPageToken string      `json:"nextPageToken,omitempty"`
}

// pageBody is a page of a cursor.
type pageBody struct {
	Page      int64        `json:"page"`
	Entries   *[]entryBody `json:"entries,omitempty"`
	Deleted   *int64       `json:"deleted,omitempty"`
	HasMore   bool         `json:"hasMore"`
	ExpiresAt string       `json:"expiresAt"`
}

// bodyOf is what the writer is to say of an item.
func bodyOf(item *tree.Item, f form, keysOnly bool) entryBody {
	e := entryBody{Key: item.Key, Version: item.Version.String()}
	if !item.Expiry.IsZero() {
		e.ExpiresAt = formatTime(item.Expiry)
	}
	text := string(item.Value)
	switch {
	case keysOnly:
	case f == formText && utf8.Valid(item.Value):
		e.Text = &text
	case f == formJSON && utf8.Valid(item.Value) && json.Valid(item.Value) && !deep(item.Value):
		e.JSON = item.Value
	default:
		text = base64.StdEncoding.EncodeToString(item.Value)
		e.Value = &text
	}
	return e
}

// written is what the writer says of an item.
func written(t testing.TB, item *tree.Item, f form, keysOnly bool) string {
	t.Helper()
	var out bytes.Buffer
	w := newEntryWriter(&out, 64, f, keysOnly)
	w.entry(item)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	m := &entryWriter{form: f, keysOnly: keysOnly, measures: true}
	if m.entry(item); m.size != int64(out.Len()) {
		t.Fatalf("measured as %d bytes, written as %d", m.size, out.Len())
	}
	return out.String()
}

func FuzzEntriesAreWrittenAsEncodingJSONDoes(f *testing.F) {
	for _, text := range []string{"", "a", "\x00", "</script>&", "\u2028\u2029", "\"\\\n", "é", "\xff", `{"a":[1, 2.50, "<"]}`, "null", "[ \"\u2028<\\\"&\xe2\x80\xa9>\",\t{}\r\n]", `"\\"`, strings.Repeat("\n", 5000), strings.Repeat("😀", 3000), "x" + strings.Repeat("€\n", 3000)} {
		f.Add("key", []byte(text), uint64(1), int64(0))
		f.Add(text, []byte(text), uint64(1<<63), int64(1_700_000_000_123))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte, at uint64, expiry int64) {
		if !utf8.ValidString(key) {
			return // is refused before
		}
		item := tree.Item{Key: key, Value: value, Version: clock.Version{Time: clock.HLC(at), Writer: uint32(at)}}
		if expiry > 0 && expiry < 1<<47 {
			item.Expiry = time.UnixMilli(expiry)
		}
		for _, as := range []form{formBase64, formText, formJSON} {
			for _, keysOnly := range []bool{false, true} {
				want := string(mustMarshal(bodyOf(&item, as, keysOnly)))
				if got := written(t, &item, as, keysOnly); got != want {
					t.Fatalf("%q as %q: %.300s, want %.300s", value, as, got, want)
				}
			}
		}
	})
}

func TestPagesAreWrittenAsEncodingJSONDoes(t *testing.T) {
	items := someItems(3, 100)
	items[1].Value, items[2].Value = []byte(`{ "a": ["<"] }`), []byte{0xff}
	deleted := int64(1) << 60
	for _, c := range []struct {
		name string
		page page
		want any
	}{
		{"page", entriesPage(items, formText, false, `t"<`), entriesBody{bodiesOf(items, formText, false), `t"<`}},
		{"as json", entriesPage(items, formJSON, false, ""), entriesBody{bodiesOf(items, formJSON, false), ""}},
		{"last page", entriesPage(items[:1], formBase64, false, ""), entriesBody{bodiesOf(items[:1], formBase64, false), ""}},
		{"empty page", entriesPage(nil, formBase64, false, ""), entriesBody{[]entryBody{}, ""}},
		{"cursor", cursorPage(&tree.CursorPage{Kind: tree.CursorKeys, Page: 7, Items: items, HasMore: true, Expires: time.UnixMilli(5)}, formBase64),
			pageBody{Page: 7, Entries: ptr(bodiesOf(items, formBase64, true)), HasMore: true, ExpiresAt: "1970-01-01T00:00:00.005Z"}},
		{"empty cursor", cursorPage(&tree.CursorPage{Kind: tree.CursorEntries, Page: 1, Expires: time.UnixMilli(0)}, formText),
			pageBody{Page: 1, Entries: &[]entryBody{}, ExpiresAt: "1970-01-01T00:00:00.000Z"}},
		{"delete-range", cursorPage(&tree.CursorPage{Kind: tree.CursorDeleteRange, Page: 2, Deleted: deleted, HasMore: true, Expires: time.UnixMilli(0)}, formText),
			pageBody{Page: 2, Deleted: &deleted, HasMore: true, ExpiresAt: "1970-01-01T00:00:00.000Z"}},
	} {
		want, size := string(mustMarshal(c.want)), c.page.size()
		if got := string(c.page.render(size)); got != want || size != int64(len(want)) {
			t.Errorf("%s: measured as %d bytes: %s, want %d: %s", c.name, size, got, len(want), want)
		}
	}
}

// TestDeepValueDoesNotSpoilItsPage: readers bound the depth of a document.
func TestDeepValueDoesNotSpoilItsPage(t *testing.T) {
	for depth, as := range map[int]string{maxDepth: "json", maxDepth + 1: "value", 9_999: "value"} {
		item := tree.Item{Key: "k", Value: []byte(strings.Repeat(`["]",`, depth-1) + "[]" + strings.Repeat("]", depth-1))}
		p := entriesPage([]tree.Item{item}, formJSON, false, "")
		body := p.render(p.size())
		if !json.Valid(body) || !strings.Contains(string(body), `"`+as+`":`) {
			t.Errorf("%d deep: %.100s", depth, body)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func bodiesOf(items []tree.Item, f form, keysOnly bool) []entryBody {
	bodies := make([]entryBody, len(items))
	for i := range items {
		bodies[i] = bodyOf(&items[i], f, keysOnly)
	}
	return bodies
}

// TestUsualEntriesAreWrittenWithoutAllocation, and large ones in pieces.
func TestUsualEntriesAreWrittenWithoutAllocation(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		form form
		most float64
	}{"base64": {100, formBase64, 0}, "text": {100, formText, 0}, "json": {100, formJSON, 0}, "large": {1 << 20, formBase64, 0}, "large json": {1 << 20, formJSON, 0}, "large text": {1 << 20, formText, 0}} {
		items := someItems(1, c.size)
		items[0].Expiry = time.UnixMilli(1_700_000_000_000)
		if c.form == formJSON {
			items[0].Value = []byte(`{ "a": "` + string(items[0].Value) + `" }`)
		}
		w := httptest.NewRecorder()
		w.Body = nil
		out := newEntryWriter(w, streamBuffer, c.form, false)
		if got := testing.AllocsPerRun(100, func() { out.entry(&items[0]) }); got > c.most {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

func TestRandomTextSurvives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	runes := []rune{'a', 'b', '<', '\n', 'é', '€', '😀', '\u2028', '"'}
	for range 200 {
		var text strings.Builder
		for range r.IntN(9000) {
			text.WriteRune(runes[r.IntN(len(runes))])
		}
		item := tree.Item{Key: "k", Value: []byte(text.String())}
		var back entryBody
		if err := json.Unmarshal([]byte(written(t, &item, formText, false)), &back); err != nil || *back.Text != text.String() {
			t.Fatalf("%q came back as %v, %v", text.String(), back, err)
		}
	}
}
