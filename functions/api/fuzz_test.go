package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// wantRefusal demands that an error is one of the caller's making.
func wantRefusal(t *testing.T, err error) {
	t.Helper()
	if p := classify(err); p.Status < 400 || p.Status > 499 {
		t.Errorf("%v is answered with %d", err, p.Status)
	}
}

func FuzzTTL(f *testing.F) {
	for _, s := range []string{"30s", "1h5m", "0.5", "90", "", "-1", "NaN", "1e99", "0x1p-2", "9223372036854775807ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseTTL("ttl", s)
		if err != nil {
			wantRefusal(t, err)
			return
		}
		if d <= 0 || d > maxTTL {
			t.Errorf("%q gives %s", s, d)
		}
		if again, err := parseTTL("ttl", d.String()); err != nil || again != d {
			t.Errorf("%q gives %s, which gives %s, %v", s, d, again, err)
		}
	})
}

func FuzzMaxAge(f *testing.F) {
	for _, s := range []string{"max-age=5", `max-age="5"`, "no-cache", `x="a,b", max-age=1`, "max-age", `"`, `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		age, err := maxAge([]string{s})
		if err != nil {
			wantRefusal(t, err)
		}
		if age < 0 || age > 1<<31*time.Second {
			t.Errorf("%q gives %s", s, age)
		}
	})
}

func FuzzTags(f *testing.F) {
	for _, s := range []string{`"a"`, `W/"a", "b"`, "*", `"a,b"`, `""`, `"`, ",", `"a" "b"`, `"000000000000000100000001"`} {
		f.Add(s)
	}
	v := clock.Version{Time: 1, Writer: 1}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := parseTags("If-Match", []string{s})
		if err != nil {
			wantRefusal(t, err)
			return
		}
		if list.matchStrong(v) && !list.matchWeak(v) {
			t.Errorf("%q matches strongly but not weakly", s)
		}
		if single, ok := list.single(); ok && !list.matchStrong(single) {
			t.Errorf("%q stands for %s alone but does not match it", s, single)
		}
		if list.matchStrong(v) && !list.any && !strings.Contains(s, quoteVersion(v)) {
			t.Errorf("%q matches %s", s, v)
		}
	})
}

func FuzzDigest(f *testing.F) {
	f.Add(digestOf([]byte("x")), []byte("x"))
	f.Add("sha-512=:AA==:, sha-256=:AA==:", []byte(""))
	f.Add("sha-256=1;a=b", []byte(""))
	f.Fuzz(func(t *testing.T, s string, content []byte) {
		if err := checkDigest([]string{s}, content); err != nil {
			wantRefusal(t, err)
		}
		if _, err := wantsDigest([]string{s}); err != nil {
			wantRefusal(t, err)
		}
		if err := checkDigest([]string{digestOf(content)}, content); err != nil {
			t.Errorf("the digest of the content itself: %v", err)
		}
		other := append([]byte("x"), content...)
		if err := checkDigest([]string{digestOf(content)}, other); err == nil || classify(err).Code != CodeDigestMismatch {
			t.Errorf("the digest of other content: %v", err)
		}
	})
}

func FuzzBatch(f *testing.F) {
	for _, s := range []string{
		`{"operations":[{"op":"set","key":"a","text":"1","ttl":5}]}`, `{"operations":[{"op":"delete","key":"a","ifVersion":"000000000000000100000001"}],"atomic":true}`,
		`{"operations":[{"op":"set","key":"\ud83e\udd8a","json":{"a":[1,null]}}]}`, `{"operations":[{"op":"set","key":"\ud83e","value":"AA=="}]}`,
		`{"operations":[{"op":"set","key":"a","value":""},{}]}`, `{"operations":{}}`, `[`, `{"a":1,"a":2}`, "", "null",
	} {
		f.Add([]byte(s))
	}
	s := newServer(Config{Clock: clock.NewSystem(), Options: testOptions()}, newFakeDB())
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := s.parseBatch(body)
		if err != nil {
			wantRefusal(t, err)
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is not JSON and was accepted", body)
		}
		for _, op := range req.ops {
			checkParsed(t, &op)
		}
		if _, err := s.parseKeys(body); err == nil {
			t.Error("a batch is no list of keys")
		}
	})
}

func checkParsed(t *testing.T, op *tree.BatchOp) {
	t.Helper()
	if op.Key == "" || !utf8.ValidString(op.Key) || op.TTL < 0 || op.TTL > maxTTL {
		t.Errorf("accepted %+v", op)
	}
	if op.Delete && (op.Value != nil || op.Type != "" || op.TTL != 0 || op.IfAbsent) {
		t.Errorf("accepted a delete %+v", op)
	}
	if !op.Delete && op.Type == "" || op.IfAbsent && !op.IfVersion.IsZero() {
		t.Errorf("accepted a set %+v", op)
	}
	if op.Type == jsonType && !json.Valid(op.Value) {
		t.Errorf("stored as JSON: %q", op.Value)
	}
}

func FuzzKeyPath(f *testing.F) {
	for _, s := range awkwardKeys {
		f.Add(s)
	}
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, key string) {
		viaPath := keyOf(t, k+url.PathEscape(key))
		viaQuery := keyOf(t, "/v1/trees/t/key?key="+url.QueryEscape(key))
		viaBase64 := keyOf(t, "/v1/trees/t/key?b64="+base64.RawURLEncoding.EncodeToString([]byte(key)))
		legal := key != "" && len(key) <= 1024 && utf8.ValidString(key)
		for form, got := range map[string]*string{"path": viaPath, "query": viaQuery, "base64": viaBase64} {
			if (got != nil) != legal || got != nil && *got != key {
				t.Errorf("%q in the %s gives %v", key, form, got)
			}
		}
	})
}

// keyOf returns the key that the router and the parser find in a target, nil
// if it was refused.
func keyOf(t *testing.T, target string) *string {
	t.Helper()
	var found *string
	probe := &operation{query: []param{{name: "key"}, {name: "b64"}}}
	m := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, path := range []string{"/v1/trees/{tree}/keys/{key}", "/v1/trees/{tree}/key"} {
		m.Path(muxTemplate(path)).HandlerFunc(func(_ http.ResponseWriter, hr *http.Request) {
			r := &request{Request: hr}
			if err := errors.Join(r.parse(probe)); err != nil {
				wantRefusal(t, err)
				return
			}
			if err := r.takeKey(1024); err != nil {
				wantRefusal(t, err)
				return
			}
			found = &r.key
		})
	}
	rec := httptest.NewRecorder()
	m.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, target, http.NoBody))
	if rec.Code != http.StatusOK {
		t.Errorf("%s: the router answered %d", target, rec.Code)
	}
	return found
}

func FuzzBounds(f *testing.F) {
	f.Add("start=a&end=b", "a")
	f.Add("prefix=a%FF", "a")
	f.Add("prefix=%7F", "\x7fz")
	f.Add("start=b&end=a", "x")
	op := &operation{query: boundsParams()}
	f.Fuzz(func(t *testing.T, raw, key string) {
		query, err := parseQuery(raw, op)
		if err != nil {
			wantRefusal(t, err)
			return
		}
		b, bounded, err := (&request{query: query}).bounds()
		if err != nil {
			wantRefusal(t, err)
			return
		}
		if bounded != (b.From != "" || b.To != "") {
			t.Errorf("%q: bounded %t, %+v", raw, bounded, b)
		}
		inside := key >= b.From && (b.To == "" || key < b.To)
		if p := query["prefix"]; p != "" && inside != strings.HasPrefix(key, p) {
			t.Errorf("%q in prefix %q: %t", key, p, inside)
		}
	})
}

func FuzzSurrogates(f *testing.F) {
	for _, s := range []string{`"\ud83e\udd8a"`, `"\ud83e"`, `"\udd8a"`, `"\\ud83e"`, `"\\\ud83e"`, `"\ud83e\\udd8a"`, `"\uD83E\uDD8A"`, `"\ud83e\ud83e"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		paired := pairedSurrogates(doc)
		var s string
		if !utf8.Valid(doc) || json.Unmarshal(doc, &s) != nil {
			return
		}
		// The standard library shows an unpaired escape as U+FFFD.
		clean := !strings.Contains(s, "\ufffd") || strings.Contains(string(doc), "\ufffd") || strings.Contains(strings.ToLower(string(doc)), `\ufffd`)
		if paired && !clean {
			t.Errorf("%q has half a pair", doc)
		}
		if !paired && !strings.Contains(s, "\ufffd") {
			t.Errorf("%q has no half pair", doc)
		}
	})
}
