package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

func TestParseTags(t *testing.T) {
	tests := map[string]struct {
		lines []string
		want  *tagList
		bad   bool
	}{
		"absent":             {nil, nil, false},
		"one":                {[]string{`"a"`}, &tagList{tags: []tag{{false, "a"}}}, false},
		"weak":               {[]string{`W/"a"`}, &tagList{tags: []tag{{true, "a"}}}, false},
		"lower-case weak":    {[]string{`w/"a"`}, nil, true},
		"list":               {[]string{`"a", W/"b","c"`}, &tagList{tags: []tag{{false, "a"}, {true, "b"}, {false, "c"}}}, false},
		"two lines":          {[]string{`"a"`, `"b"`}, &tagList{tags: []tag{{false, "a"}, {false, "b"}}}, false},
		"empty elements":     {[]string{`, "a",, "b" ,`}, &tagList{tags: []tag{{false, "a"}, {false, "b"}}}, false},
		"comma inside":       {[]string{`"a,b"`}, &tagList{tags: []tag{{false, "a,b"}}}, false},
		"backslash is plain": {[]string{`"a\"`}, &tagList{tags: []tag{{false, `a\`}}}, false},
		"empty tag":          {[]string{`""`}, &tagList{tags: []tag{{false, ""}}}, false},
		"obs-text":           {[]string{"\"\xff\""}, &tagList{tags: []tag{{false, "\xff"}}}, false},
		"any":                {[]string{" * "}, &tagList{any: true}, false},
		"any twice":          {[]string{"*", "*"}, nil, true},
		"any in a list":      {[]string{`"a", *`}, nil, true},
		"empty":              {[]string{""}, nil, true},
		"bare":               {[]string{"a"}, nil, true},
		"unclosed":           {[]string{`"a`}, nil, true},
		"space inside":       {[]string{`"a b"`}, nil, true},
		"tab inside":         {[]string{"\"a\tb\""}, nil, true},
		"delete inside":      {[]string{"\"a\x7f\""}, nil, true},
		"trailing text":      {[]string{`"a"b`}, nil, true},
		"weak alone":         {[]string{"W/"}, nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseTags("If-Match", tt.lines)
			if (err != nil) != tt.bad {
				t.Fatalf("error %v", err)
			}
			if tt.bad || tt.want == nil {
				if got != nil && !tt.bad {
					t.Errorf("got %+v", got)
				}
				return
			}
			if got.any != tt.want.any || !slices.Equal(got.tags, tt.want.tags) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestConditionsHoldAsRFC9110Says(t *testing.T) {
	current, other := clock.Version{Time: 7, Writer: 1}, clock.Version{Time: 6, Writer: 1}
	cur, oth := quoteVersion(current), quoteVersion(other)
	tests := []struct {
		match, noneMatch string
		// present and absent say whether the condition holds in either state.
		present, absent bool
	}{
		{"", "", true, true},
		{cur, "", true, false},
		{oth, "", false, false},
		{"W/" + cur, "", false, false},
		{"*", "", true, false},
		{"", cur, false, true},
		{"", "W/" + cur, false, true},
		{"", oth, true, true},
		{"", "*", false, true},
		{cur, oth, true, false},
		{cur, cur, false, false},
		{"*", "*", false, false},
		{oth + "," + cur, `"x"`, true, false},
	}
	for _, tt := range tests {
		h := http.Header{}
		if tt.match != "" {
			h.Set("If-Match", tt.match)
		}
		if tt.noneMatch != "" {
			h.Set("If-None-Match", tt.noneMatch)
		}
		c, err := parseCondition(h)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.holds(current); got != tt.present {
			t.Errorf("%+v: holds for the present key: %t", tt, got)
		}
		if got := c.holds(clock.Version{}); got != tt.absent {
			t.Errorf("%+v: holds for the absent key: %t", tt, got)
		}
		ifAbsent, ifVersion, native := c.native()
		if !native {
			continue
		}
		if got := !ifAbsent && (ifVersion.IsZero() || ifVersion == current); got != tt.present {
			t.Errorf("%+v: core's form holds for the present key: %t", tt, got)
		}
		if got := ifVersion.IsZero(); got != tt.absent {
			t.Errorf("%+v: core's form holds for the absent key: %t", tt, got)
		}
	}
}

func TestStrictJSON(t *testing.T) {
	tests := map[string]struct {
		doc    string
		detail string
	}{
		"good":               {`{"name":"x","n":3,"on":true,"list":["a"],"raw":{"a":1}}`, ""},
		"spaces":             {" { } \n", ""},
		"escapes":            {`{"name":"\ud83e\udd8a\u0000\\ud83e"}`, ""},
		"null as raw":        {`{"raw":null}`, ""},
		"empty":              {``, "body: missing"},
		"only space":         {` `, "body: missing"},
		"text":               {`"x"`, "must be an object"},
		"array":              {`[]`, "must be an object"},
		"null":               {`null`, "must be an object"},
		"cut off":            {`{"name":"x"`, "malformed"},
		"cut in a string":    {`{"name":"x`, "malformed"},
		"trailing comma":     {`{"name":"x",}`, "malformed"},
		"single quotes":      {`{'name':"x"}`, "malformed"},
		"comment":            {`{/* */}`, "malformed"},
		"number as name":     {`{1:2}`, "malformed"},
		"trailing brace":     {`{}}`, "something follows"},
		"trailing text":      {`{}x`, "something follows"},
		"two documents":      {`{}{}`, "something follows"},
		"unknown":            {`{"other":1}`, "other: unknown field"},
		"case":               {`{"Name":"x"}`, "Name: unknown field"},
		"twice":              {`{"name":"x","name":"x"}`, "name: given twice"},
		"twice by an escape": {`{"name":"x","n\u0061me":"x"}`, "name: given twice"},
		"null string":        {`{"name":null}`, "name: must be a string"},
		"number for string":  {`{"name":1}`, "name: must be a string"},
		"string for number":  {`{"n":"3"}`, "n: must be a whole number"},
		"fraction":           {`{"n":3.5}`, "n: must be a whole number"},
		"overflow":           {`{"n":99999999999999999999}`, "n: must be a whole number"},
		"leading zero":       {`{"n":03}`, "malformed"},
		"null bool":          {`{"on":null}`, "on: must be true or false"},
		"text for bool":      {`{"on":"true"}`, "on: must be true or false"},
		"null list":          {`{"list":null}`, "list: must be an array"},
		"element":            {`{"list":["a",2]}`, "list[1]: must be a string"},
		"not UTF-8":          {"{\"name\":\"\xff\"}", "not valid UTF-8"},
		"high surrogate":     {`{"name":"\ud83e"}`, "surrogate"},
		"low surrogate":      {`{"name":"\udd8a"}`, "surrogate"},
		"two high":           {`{"name":"\ud83e\ud83e"}`, "surrogate"},
		"control character":  {"{\"name\":\"a\nb\"}", "malformed"},
		"deep":               {`{"raw":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "malformed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := parseJSON([]byte(tt.doc), readSample)
			if tt.detail == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.detail) {
				t.Fatalf("error %v, want %q", err, tt.detail)
			}
			wantRefusal(t, err)
		})
	}
}

// readSample reads an object with a member of every kind.
func readSample(p *parser) error {
	return p.object("", func(name string) (known bool, err error) {
		switch name {
		case "name":
			_, err = p.text(name)
		case "n":
			_, err = p.count(name)
		case "on":
			_, err = p.boolean(name)
		case "raw":
			_, err = p.raw(name)
		case "list":
			err = p.array(name, func(path string) error {
				_, err := p.text(path)
				return err
			})
		default:
			return false, nil
		}
		return true, err
	})
}

func TestClipKeepsRunesWhole(t *testing.T) {
	tests := []struct {
		s    string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé", 2, "a…"}, {"é", 1, "…"}, {"🦊🦊", 7, "🦊…"}, {"", 0, ""}, {"a\xff", 5, "a\ufffd"}, {"\x80\x80\x80", 1, "…"},
	}
	for _, tt := range tests {
		if got := clip(tt.s, tt.n); got != tt.want {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.s, tt.n, got, tt.want)
		}
	}
}

func TestSplitQuoted(t *testing.T) {
	tests := map[string][]string{
		"":             {""},
		"a,b":          {"a", "b"},
		`a="x,y",b`:    {`a="x,y"`, "b"},
		`a="x\",y",b`:  {`a="x\",y"`, "b"},
		`a="unclosed,`: {`a="unclosed,`},
		`"\`:           {`"\`},
		",":            {"", ""},
	}
	for s, want := range tests {
		if got := splitQuoted(s, ','); !slices.Equal(got, want) {
			t.Errorf("splitQuoted(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestFormsOfAnEntry(t *testing.T) {
	item := func(value string) *tree.Item {
		return &tree.Item{Key: "k", Value: []byte(value), Version: clock.Version{Time: 1}, Expiry: time.UnixMilli(1500)}
	}
	const tail = `"version":"000000000000000100000000","expiresAt":"1970-01-01T00:00:01.500Z"}`
	tests := []struct {
		value    string
		form     form
		keysOnly bool
		want     string
	}{
		{"hi", formBase64, false, `{"key":"k","value":"aGk=",`},
		{"", formBase64, false, `{"key":"k","value":"",`},
		{"hi", formText, false, `{"key":"k","text":"hi",`},
		{"", formText, false, `{"key":"k","text":"",`},
		{"\xff", formText, false, `{"key":"k","value":"/w==",`},
		{`{ "a": [1, 2] }`, formJSON, false, `{"key":"k","json":{"a":[1,2]},`},
		{"null", formJSON, false, `{"key":"k","json":null,`},
		{"", formJSON, false, `{"key":"k","value":"",`},
		{"{", formJSON, false, `{"key":"k","value":"ew==",`},
		{"\"\xff\"", formJSON, false, `{"key":"k","value":"Iv8i",`},
		{"1 2", formJSON, false, `{"key":"k","value":"MSAy",`},
		{"line\nbreak", formText, false, `{"key":"k","text":"line\nbreak",`},
		{"hi", formText, true, `{"key":"k",`},
	}
	for _, tt := range tests {
		got := written(t, item(tt.value), tt.form, tt.keysOnly)
		if got != tt.want+tail {
			t.Errorf("%q as %q is %s, want %s", tt.value, tt.form, got, tt.want+tail)
		}
	}
}

func TestRetrySecondsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{-time.Second: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		if got := retrySeconds(d); got != want {
			t.Errorf("retrySeconds(%s) = %d, want %d", d, got, want)
		}
	}
}

func TestFailureShowsItsCauseToTheLogOnly(t *testing.T) {
	cause := &tree.ArgumentError{Field: "x", Reason: "inner"}
	f := &Failure{Code: CodeUnavailable, Detail: "outer", Err: cause}
	if !strings.Contains(f.Error(), "inner") || f.Unwrap() != error(cause) {
		t.Errorf("error %v", f)
	}
	if p := classify(f); strings.Contains(p.Detail, "inner") || p.Code != CodeUnavailable {
		t.Errorf("problem %+v", p)
	}
}

func TestProblemsFromOutsideHaveTheSameForm(t *testing.T) {
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	WriteProblem(w, req, &Failure{Code: CodeValueTooLarge, Detail: "too large for this host", Limit: 5})
	want := `{"type":"urn:lattice:problem:value_too_large","title":"The value is too large","status":413,"detail":"too large for this host","code":"value_too_large","limit":5}`
	if w.Code != 413 || w.Header().Get("Content-Type") != problemType || w.Body.String() != want {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}
