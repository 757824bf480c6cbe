package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

const k = "/v1/trees/t/keys/"

func TestKeyLifecycle(t *testing.T) {
	r := newRig(t)
	r.do("GET", k+"a", "").wantProblem(404, CodeTreeNotFound)
	r.do("DELETE", k+"a", "").wantProblem(404, CodeTreeNotFound)

	created := r.do("PUT", k+"a", "one", "Content-Type", "text/plain").wantStatus(201)
	v1 := created.Header.Get("ETag")
	created.wantBody(`{"version":` + v1 + `}`)

	r.do("GET", k+"a", "").wantStatus(200).wantBody("one").wantHeader("ETag", v1).
		wantHeader("Content-Type", "text/plain").wantHeader("Content-Length", "3").
		wantHeader("X-Content-Type-Options", "nosniff").wantHeader("Lattice-Expires-At", "")
	r.do("HEAD", k+"a", "").wantStatus(200).wantBody("").wantHeader("ETag", v1).
		wantHeader("Content-Type", "text/plain").wantHeader("Content-Length", "3")

	v2 := r.do("PUT", k+"a", "two").wantStatus(200).Header.Get("ETag")
	if v2 <= v1 {
		t.Errorf("versions do not increase: %s then %s", v1, v2)
	}
	r.do("GET", k+"a", "").wantBody("two").wantHeader("Content-Type", defaultType)

	r.do("DELETE", k+"a", "").wantStatus(204).wantHeader("Lattice-Existed", "true")
	r.do("DELETE", k+"a", "").wantStatus(204).wantHeader("Lattice-Existed", "false")
	p := r.do("GET", k+"a", "").wantProblem(404, CodeKeyNotFound)
	if p.Tree != "t" || p.Key != "a" {
		t.Errorf("problem names tree %q and key %q", p.Tree, p.Key)
	}
	r.do("HEAD", k+"a", "").wantStatus(404).wantBody("").wantHeader("Content-Type", problemType)
}

func TestEmptyValueIsAValue(t *testing.T) {
	r := newRig(t)
	r.do("PUT", k+"a", "").wantStatus(201)
	r.do("GET", k+"a", "").wantStatus(200).wantBody("").wantHeader("Content-Length", "0")
	r.do("PUT", k+"a?mode=get-or-set", "x").wantStatus(200).wantBody("")
}

// awkwardKeys are what may stand in one path segment.
var awkwardKeys = []string{
	"/", "//", "a/b", "/a", "a/", "a//b", ".", "..", "../..", "./x", "%", "%2F", "%25", "%zz", "?", "a?b=c", "#", "a#b",
	" ", " a ", "+", "a+b", "&", "=", ";", ":", "@", "\\", "\"", "'", "<>", "\x00", "a\x00b", "\n", "\r\n", "\t", "\x7f",
	"é", "e\u0301", "日本語", "🦊", "👩\u200d👩\u200d👧", "\u202e", "\ufeff", "\U0010ffff", "keys", "entries", strings.Repeat("k", 1024), strings.Repeat("🦊", 256),
}

func TestAwkwardKeysInPathAndAlias(t *testing.T) {
	r := newRig(t)
	for i, key := range awkwardKeys {
		t.Run(fmt.Sprintf("%q", clip(key, 20)), func(t *testing.T) {
			path, value := k+url.PathEscape(key), fmt.Sprint("value ", i)
			if key == "." || key == ".." {
				path = k + strings.ReplaceAll(key, ".", "%2e")
				r.do("PUT", k+key, "unescaped dots").wantStatus(201)
			}
			etag := r.put(path, value)
			r.do("GET", path, "").wantStatus(200).wantBody(value).wantHeader("ETag", etag)
			if got := r.db.trees["t"].items[key]; string(got.Value) != value {
				t.Fatalf("stored under another key than %q", key)
			}
			padded := base64.URLEncoding.EncodeToString([]byte(key))
			for _, query := range []string{"b64=" + strings.TrimRight(padded, "="), "b64=" + url.QueryEscape(padded), "key=" + url.QueryEscape(key)} {
				r.do("GET", "/v1/trees/t/key?"+query, "").wantStatus(200).wantBody(value)
			}
			r.do("HEAD", "/v1/trees/t/key?key="+url.QueryEscape(key), "").wantStatus(200)
			r.do("DELETE", "/v1/trees/t/key?b64="+strings.TrimRight(padded, "="), "").wantStatus(204).wantHeader("Lattice-Existed", "true")
			r.do("PUT", "/v1/trees/t/key?key="+url.QueryEscape(key), value).wantStatus(201)
			r.do("DELETE", path, "").wantStatus(204).wantHeader("Lattice-Existed", "true")
		})
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	r := newRig(t)
	r.put(k+"a", "1")
	tests := map[string]struct {
		path   string
		status int
		code   Code
	}{
		"empty":                    {k, 400, CodeInvalidArgument},
		"not UTF-8":                {k + "%ff", 400, CodeInvalidArgument},
		"cut-off UTF-8":            {k + "a%e2%82", 400, CodeInvalidArgument},
		"surrogate":                {k + "%ed%a0%80", 400, CodeInvalidArgument},
		"one byte over":            {k + strings.Repeat("k", 1025), 413, CodeKeyTooLong},
		"multibyte, over":          {k + strings.Repeat("%C3%A9", 513), 413, CodeKeyTooLong},
		"plain slash":              {k + "a/b", 404, CodeRouteNotFound},
		"alias without key":        {"/v1/trees/t/key", 400, CodeInvalidArgument},
		"alias, empty":             {"/v1/trees/t/key?key=", 400, CodeInvalidArgument},
		"alias, empty b64":         {"/v1/trees/t/key?b64=", 400, CodeInvalidArgument},
		"alias, both":              {"/v1/trees/t/key?key=a&b64=YQ", 400, CodeInvalidArgument},
		"alias, twice":             {"/v1/trees/t/key?key=a&key=a", 400, CodeInvalidArgument},
		"alias, standard alphabet": {"/v1/trees/t/key?b64=%2B%2F8", 400, CodeInvalidArgument},
		"alias, not base64":        {"/v1/trees/t/key?b64=a!", 400, CodeInvalidArgument},
		"alias, loose bits":        {"/v1/trees/t/key?b64=YR", 400, CodeInvalidArgument},
		"alias, line break":        {"/v1/trees/t/key?b64=Y%0AQ", 400, CodeInvalidArgument},
		"alias, not UTF-8":         {"/v1/trees/t/key?b64=_w", 400, CodeInvalidArgument},
		"alias, raw not UTF-8":     {"/v1/trees/t/key?key=%ff", 400, CodeInvalidArgument},
		"alias, over":              {"/v1/trees/t/key?key=" + strings.Repeat("k", 1025), 413, CodeKeyTooLong},
		"alias, bad escape":        {"/v1/trees/t/key?key=%zz", 400, CodeInvalidArgument},
		"unknown parameter":        {k + "a?as=json", 400, CodeInvalidArgument},
		"semicolon":                {k + "a?x;y", 400, CodeInvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{"GET", "PUT", "DELETE"} {
				p := r.do(method, tt.path, "").wantProblem(tt.status, tt.code)
				if tt.code == CodeKeyTooLong && p.Limit != 1024 {
					t.Errorf("limit %d", p.Limit)
				}
			}
		})
	}
	if n := len(r.db.trees["t"].items); n != 1 {
		t.Errorf("refused writes left %d items", n)
	}
}

func TestTreeNames(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "A.b_c-9", strings.Repeat("x", 128), "0"} {
		r.do("PUT", "/v1/trees/"+name+"/keys/a", "1").wantStatus(201)
	}
	for _, name := range []string{"-a", ".a", "a%2Fb", "a b", "%C3%A9", strings.Repeat("x", 129), "a%00", "a%0A"} {
		r.do("PUT", "/v1/trees/"+strings.ReplaceAll(name, " ", "%20")+"/keys/a", "1").wantProblem(400, CodeInvalidArgument)
	}
	for _, name := range []string{"_sys", "_", "%5Fsys"} {
		r.do("GET", "/v1/trees/"+name+"/keys/a", "").wantProblem(403, CodeAuthorizationDenied)
		r.do("PUT", "/v1/trees/"+name, "{}").wantProblem(403, CodeAuthorizationDenied)
	}
}

func TestConditionsOfWrites(t *testing.T) {
	other := `"` + clock.Version{Time: 5, Writer: 5}.String() + `"`
	zero := `"` + clock.Version{}.String() + `"`
	tests := []struct {
		name, header, value string
		// CUR stands for the current tag; present and absent are the statuses
		// of a PUT onto an existing and onto an absent key.
		present, absent int
	}{
		{"current tag", "If-Match", "CUR", 200, 412},
		{"other tag", "If-Match", other, 412, 412},
		{"zero tag", "If-Match", zero, 412, 412},
		{"foreign tag", "If-Match", `"abc"`, 412, 412},
		{"empty tag", "If-Match", `""`, 412, 412},
		{"weak tag never matches", "If-Match", "W/CUR", 412, 412},
		{"list with current", "If-Match", other + ` , CUR,"x,y"`, 200, 412},
		{"list without", "If-Match", other + `,W/CUR`, 412, 412},
		{"any", "If-Match", "*", 200, 412},
		{"none of any", "If-None-Match", "*", 412, 201},
		{"none of current", "If-None-Match", "CUR", 412, 201},
		{"none of weak current", "If-None-Match", "W/CUR", 412, 201},
		{"none of other", "If-None-Match", other, 200, 201},
		{"none of list with current", "If-None-Match", other + ",CUR", 412, 201},
		{"not a tag", "If-Match", "abc", 400, 400},
		{"unclosed", "If-Match", `"abc`, 400, 400},
		{"star in a list", "If-Match", `*, "a"`, 400, 400},
		{"no comma", "If-Match", `"a" "b"`, 400, 400},
		{"blank", "If-None-Match", " ", 400, 400},
		{"only commas", "If-None-Match", ",,", 400, 400},
	}
	r := newRig(t)
	r.put(k+"present", "0")
	for _, tt := range tests {
		t.Run(tt.header+" "+tt.name, func(t *testing.T) {
			cur := r.put(k+"present", "old")
			value := strings.ReplaceAll(tt.value, "CUR", cur)
			got := r.do("PUT", k+"present", "new", tt.header, value).wantStatus(tt.present)
			if tt.present == 412 {
				got.wantProblem(412, CodeVersionMismatch)
				got.wantHeader("ETag", cur)
				r.do("GET", k+"present", "").wantBody("old")
			}
			got = r.do("PUT", k+"absent", "new", tt.header, value).wantStatus(tt.absent)
			if tt.absent == 412 {
				got.wantHeader("ETag", "")
				r.do("GET", k+"absent", "").wantStatus(404)
			}
			r.do("DELETE", k+"absent", "").wantStatus(204)
		})
	}
}

func TestConditionsOfDeletesAndReads(t *testing.T) {
	r := newRig(t)
	cur := r.put(k+"a", "1")
	r.do("DELETE", k+"a", "", "If-Match", `"abc"`).wantProblem(412, CodeVersionMismatch)
	r.do("DELETE", k+"a", "", "If-None-Match", cur).wantProblem(412, CodeVersionMismatch)
	r.do("DELETE", k+"a", "", "If-None-Match", "*").wantProblem(412, CodeVersionMismatch)
	r.do("DELETE", k+"b", "", "If-Match", "*").wantProblem(412, CodeVersionMismatch)
	r.do("DELETE", k+"b", "", "If-None-Match", "*").wantStatus(204).wantHeader("Lattice-Existed", "false")
	r.do("DELETE", k+"a", "", "If-Match", "oops").wantProblem(400, CodeInvalidArgument)

	for _, method := range []string{"GET", "HEAD"} {
		r.do(method, k+"a", "", "If-None-Match", cur).wantStatus(304).wantBody("").wantHeader("ETag", cur)
		r.do(method, k+"a", "", "If-None-Match", `W/`+cur).wantStatus(304)
		r.do(method, k+"a", "", "If-None-Match", `"x", `+cur).wantStatus(304)
		r.do(method, k+"a", "", "If-None-Match", "*").wantStatus(304)
		r.do(method, k+"a", "", "If-None-Match", `"x"`).wantStatus(200)
		r.do(method, k+"b", "", "If-None-Match", "*").wantStatus(404)
		r.do(method, k+"a", "", "If-Match", cur).wantStatus(200)
		r.do(method, k+"a", "", "If-Match", `"x"`).wantStatus(412).wantHeader("ETag", cur)
		r.do(method, k+"b", "", "If-Match", "*").wantStatus(412)
		r.do(method, k+"a", "", "If-None-Match", "x").wantStatus(400)
	}
	r.do("DELETE", k+"a", "", "If-Match", cur).wantStatus(204).wantHeader("Lattice-Existed", "true")
}

func TestConditionalWriteToUnknownTreeCreatesNothing(t *testing.T) {
	r := newRig(t)
	r.do("PUT", k+"a", "1", "If-Match", "*").wantProblem(404, CodeTreeNotFound)
	r.do("PUT", k+strings.Repeat("k", 2000), "1").wantProblem(413, CodeKeyTooLong)
	r.do("PUT", k+"a?ttl=-1", "1").wantProblem(400, CodeInvalidArgument)
	if len(r.db.trees) != 0 {
		t.Error("a refused write created a tree")
	}
	r.db.noCreate = true
	r.do("PUT", k+"a", "1").wantProblem(404, CodeTreeNotFound)
}

func TestGetOrSet(t *testing.T) {
	r := newRig(t)
	r.do("PUT", k+"a?mode=get-or-set", "one", "Content-Type", "text/x").wantStatus(201)
	cur := r.do("GET", k+"a", "").Header.Get("ETag")
	r.do("PUT", k+"a?mode=get-or-set", "two").wantStatus(200).wantBody("one").
		wantHeader("ETag", cur).wantHeader("Content-Type", "text/x")
	r.do("PUT", k+"a?mode=get-or-set", "two", "If-Match", cur).wantProblem(400, CodeInvalidArgument)
	r.do("PUT", k+"a?mode=upsert", "two").wantProblem(400, CodeInvalidArgument)
	r.do("GET", k+"a", "").wantBody("one")
}

func TestTimeToLive(t *testing.T) {
	r := newRig(t)
	tests := []struct {
		query, header string
		want          time.Duration
	}{
		{"?ttl=30s", "", 30 * time.Second}, {"?ttl=90", "", 90 * time.Second}, {"?ttl=0.5", "", 500 * time.Millisecond},
		{"", "5m", 5 * time.Minute}, {"", " 1h30m ", 90 * time.Minute}, {"?ttl=60", "1m", time.Minute}, {"", "", 0},
	}
	for _, tt := range tests {
		header := []string{"Lattice-TTL", tt.header}
		if tt.header == "" {
			header = nil
		}
		before := time.Now()
		r.put(k+"a"+tt.query, "1", header...)
		expiry := r.db.trees["t"].items["a"].Expiry
		if tt.want == 0 {
			if !expiry.IsZero() {
				t.Errorf("%+v: expires at %s", tt, expiry)
			}
			continue
		}
		if d := expiry.Sub(before); d < tt.want || d > tt.want+time.Minute {
			t.Errorf("%+v: expires in %s", tt, d)
		}
	}
	r.put(k+"a?ttl=1h", "1")
	got := r.do("GET", k+"a", "").wantStatus(200).Header.Get("Lattice-Expires-At")
	if at, err := time.Parse(time.RFC3339, got); err != nil || at.Location() != time.UTC {
		t.Errorf("Lattice-Expires-At %q: %v", got, err)
	}
	for _, bad := range []string{"0", "0s", "-5s", "-1", "x", "", "1d", "NaN", "Inf", "1e300", "9999999h", "5 s"} {
		r.do("PUT", k+"a?ttl="+url.QueryEscape(bad), "x").wantProblem(400, CodeInvalidArgument)
		r.do("PUT", k+"a", "x", "Lattice-TTL", bad).wantProblem(400, CodeInvalidArgument)
	}
	r.do("PUT", k+"a?ttl=60", "x", "Lattice-TTL", "61s").wantProblem(400, CodeInvalidArgument)
	r.do("PUT", k+"a", "x", "Lattice-TTL", "5s", "Lattice-TTL", "5s").wantProblem(400, CodeInvalidArgument)
	r.do("GET", k+"a", "").wantBody("1")
}

func TestContentTypes(t *testing.T) {
	r := newRig(t)
	for _, ct := range []string{"application/json", `multipart/form-data; boundary="a b"`, "text/html; charset=utf-8", "x/" + strings.Repeat("y", 253)} {
		r.put(k+"a", "<script>", "Content-Type", ct)
		r.do("GET", k+"a", "").wantHeader("Content-Type", ct).wantHeader("Content-Security-Policy", "sandbox; default-src 'none'")
	}
	for _, ct := range []string{"nonsense", "a/b; c", "x/" + strings.Repeat("y", 254), "/"} {
		r.do("PUT", k+"a", "1", "Content-Type", ct).wantProblem(400, CodeInvalidArgument)
	}
	r.do("PUT", k+"a", "1", "Content-Type", "a/b", "Content-Type", "a/c").wantProblem(400, CodeInvalidArgument)
}

func TestContentDigest(t *testing.T) {
	r := newRig(t)
	right, wrong := digestOf([]byte("value")), digestOf([]byte("other"))
	r.do("PUT", k+"a", "value", "Content-Digest", right).wantStatus(201)
	r.do("PUT", k+"a", "value", "Content-Digest", "sha-512=:AAAA:, "+right).wantStatus(200)
	r.do("PUT", k+"a", "value", "Content-Digest", "sha-512=:AAAA:").wantStatus(200)
	r.do("PUT", k+"a", "value", "Content-Digest", wrong).wantProblem(400, CodeDigestMismatch)
	for _, bad := range []string{"sha-256", "sha-256=", "sha-256=abc", "sha-256=:abc:", "sha-256=:AAAA:", "=:AAAA:", "SHA-256=:AAAA:", "sha-256=::", ","} {
		r.do("PUT", k+"a", "value", "Content-Digest", bad).wantProblem(400, CodeInvalidArgument)
	}
	r.do("POST", "/v1/trees/t/batch-get", `{"keys":["a"]}`, "Content-Digest", wrong).wantProblem(400, CodeDigestMismatch)

	r.do("GET", k+"a", "", "Want-Content-Digest", "sha-256=1").wantHeader("Content-Digest", right)
	r.do("GET", k+"a", "", "Want-Content-Digest", "sha-512=3, sha-256=10").wantHeader("Content-Digest", right)
	for _, none := range []string{"sha-256=0", "sha-512=1"} {
		r.do("GET", k+"a", "", "Want-Content-Digest", none).wantStatus(200).wantHeader("Content-Digest", "")
	}
	for _, bad := range []string{"sha-256=11", "sha-256=-1", "sha-256", "sha-256=x"} {
		r.do("GET", k+"a", "", "Want-Content-Digest", bad).wantProblem(400, CodeInvalidArgument)
	}
	count := r.do("GET", "/v1/trees/t/count", "", "Want-Content-Digest", "sha-256=1").wantStatus(200)
	count.wantHeader("Content-Digest", digestOf(count.body))
}

func TestCacheControlOfReads(t *testing.T) {
	tests := map[string]struct {
		lines []string
		want  time.Duration
		bad   bool
	}{
		"none":                   {nil, 0, false},
		"age":                    {[]string{"max-age=5"}, 5 * time.Second, false},
		"case and space":         {[]string{" Max-Age=5 , foo"}, 5 * time.Second, false},
		"quoted":                 {[]string{`max-age="7"`}, 7 * time.Second, false},
		"zero":                   {[]string{"max-age=0"}, 0, false},
		"least of several lines": {[]string{"max-age=9", "max-age=4"}, 4 * time.Second, false},
		"no-cache wins":          {[]string{"max-age=9, no-cache"}, 0, false},
		"no-store wins":          {[]string{"no-store", "max-age=9"}, 0, false},
		"others ignored":         {[]string{`private="a,max-age=3", max-stale`}, 0, false},
		"huge":                   {[]string{"max-age=99999999999999999999"}, (1<<31 - 1) * time.Second, false},
		"negative":               {[]string{"max-age=-1"}, 0, true},
		"fraction":               {[]string{"max-age=1.5"}, 0, true},
		"missing":                {[]string{"max-age"}, 0, true},
		"word":                   {[]string{"max-age=soon"}, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := maxAge(tt.lines)
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("maxAge = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
	r := newRig(t)
	r.put(k+"a", "1")
	for _, path := range []string{k + "a", "/v1/trees/t/entries", "/v1/trees/t/count"} {
		r.do(http.MethodGet, path, "", "Cache-Control", "max-age=60").wantStatus(200)
		r.do(http.MethodGet, path, "", "Cache-Control", "max-age=x").wantProblem(400, CodeInvalidArgument)
	}
}
