package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/auth/authtest"
)

// exactly sends bytes as they are and returns the answer; 0 if the connection was
// closed without one.
func (r *rig) exactly(text string) (status int, header http.Header, body string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.web.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// rawRequest is a request line, headers, and an end.
func rawRequest(line string, headers ...string) string {
	return line + " HTTP/1.1\r\nHost: lattice.example\r\nConnection: close\r\nContent-Length: 0\r\n" + strings.Join(headers, "\r\n") + strings.Repeat("\r\n", min(len(headers), 1)) + "\r\n"
}

// hostile is what must be refused.
type hostile struct {
	name    string
	line    string
	headers []string
	status  int
	// challenge is the error code in WWW-Authenticate, "-" if there is none.
	challenge string
}

// bearerOf is the header of a token.
func bearerOf(token string) string { return "Authorization: Bearer " + token }

const (
	readTrees = "GET /v1/trees"
	writeKey  = "PUT /v1/trees/orders-1/keys/a"
	tickLine  = "POST /internal/timers/collect"
)

func hostileTokens(t *testing.T, g *guardedRig, issuer *authtest.Issuer) []hostile {
	now := time.Now().Unix()
	claims := func(changes map[string]any) map[string]any {
		all := map[string]any{"iss": "https://issuer.example", "aud": "lattice", "sub": "eve", "roles": "admin", "exp": now + 600}
		maps.Copy(all, changes)
		maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
		return all
	}
	good := issuer.Sign(t, "rsa", claims(nil))
	parts := strings.Split(good, ".")
	none := authtest.SignWith(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "rsa", claims(nil))
	mixed := authtest.SignWith(t, jwt.SigningMethodHS256, issuer.Set(), "rsa", claims(nil))
	key := g.tokens["admin *"]
	bad := func(name, token string) hostile {
		return hostile{name, writeKey, []string{bearerOf(token)}, 401, "invalid_token"}
	}
	signed := func(name string, changes map[string]any) hostile {
		return bad(name, issuer.Sign(t, "rsa", claims(changes)))
	}
	if w := g.ask("GET", "/v1/trees", good, ""); w.Code != 200 {
		t.Fatalf("a good token: %d", w.Code)
	}
	malformed := func(name string, headers ...string) hostile {
		return hostile{name, writeKey, headers, 401, "invalid_request"}
	}
	absent := func(name string, headers ...string) hostile { return hostile{name, writeKey, headers, 401, ""} }
	return []hostile{
		bad("alg none", none), bad("alg none, any signature", none+parts[2]), bad("HMAC with the public keys", mixed),
		bad("unknown key id", authtest.SignWith(t, jwt.SigningMethodRS256, authtest.RSA(t), "other", claims(nil))),
		bad("key id of another key", authtest.SignWith(t, jwt.SigningMethodRS256, authtest.RSA(t), "ed", claims(nil))),
		signed("expired", map[string]any{"exp": now - 60}), signed("not yet valid", map[string]any{"nbf": now + 60}), signed("no expiry", map[string]any{"exp": nil}),
		signed("audience", map[string]any{"aud": "other"}), signed("no audience", map[string]any{"aud": nil}),
		signed("issuer", map[string]any{"iss": "https://evil.example"}), signed("no issuer", map[string]any{"iss": nil}),
		bad("claims replaced", parts[0]+"."+base64.RawURLEncoding.EncodeToString([]byte(`{"roles":"admin","exp":9999999999}`))+"."+parts[2]),
		bad("oversized", strings.Repeat("a", 9<<10)), bad("oversized with dots", good+strings.Repeat("A", 9<<10)),
		bad("a key cut", key[:len(key)-1]), bad("a key and more", key+"A"), bad("a key in capitals", strings.ToUpper(key)), bad("a guess", "lattice_admin"),
		bad("the process's token", internalToken), bad("undefined", "undefined"), bad("null", "null"), bad("dots", "..."),
		malformed("the same header twice", bearerOf(key), bearerOf(key)), malformed("two headers, the good one first", bearerOf(key), bearerOf("x")),
		malformed("two headers, the good one last", bearerOf("x"), bearerOf(key)), malformed("Basic and Bearer", "Authorization: Basic eDp5", bearerOf(key)),
		malformed("two in other case", bearerOf(key), "authorization: bearer "+key),
		malformed("two tokens", bearerOf(key+" "+key)), malformed("joined by a proxy", bearerOf(key+", Bearer x")), malformed("quoted", bearerOf(`"`+key+`"`)),
		malformed("no token", "Authorization: Bearer"), malformed("blanks", "Authorization: Bearer    "), malformed("percent-encoded", bearerOf("%6c"+key[1:])),
		malformed("not ASCII", bearerOf(key+"\xc3\xa9")),
		absent("nothing"), absent("empty", "Authorization:"), absent("Basic", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("admin:"+key))),
		absent("Digest", `Authorization: Digest username="admin"`), absent("a bare key", "Authorization: "+key), absent("a scheme that begins alike", "Authorization: Bearerx "+key),
		absent("another header", "X-Api-Key: "+key), absent("a proxy's header", "Proxy-Authorization: Bearer "+key), absent("a cookie", "Cookie: token="+key),
		absent("a header of a trusted proxy", "X-Forwarded-User: admin", "X-Ms-Client-Principal-Name: admin"),
		absent("underscore for hyphen", "Author_ization: Bearer "+key),
		{"token in the query", "GET /v1/trees?access_token=" + key, nil, 401, ""},
		{"token in the query and the header", "GET /v1/trees?access_token=" + key, []string{bearerOf(key)}, 400, "-"},
		{"token in the query, encoded", "GET /v1/trees?access%5Ftoken=" + key, []string{bearerOf(key)}, 400, "-"},
		{"folded header", writeKey, []string{"Authorization: Bearer", " " + key + "\r\n\tx"}, 401, "invalid_request"},
		{"header of another name by a blank", writeKey, []string{"Authorization : Bearer " + key}, 400, "-"},
		{"a line break in the header", writeKey, []string{"Authorization: Bearer x\nX-Role: admin"}, 401, "invalid_token"},
		{"a bare return in the header", writeKey, []string{"Authorization: Bearer " + key + "\rX: y"}, 400, "-"},
		{"a zero byte in the header", writeKey, []string{"Authorization: Bearer " + key + "\x00"}, 400, "-"},
		{"an answer's header by the request id", readTrees, []string{"X-Request-Id: a\tSet-Cookie: b", "Authorization: Bearer x"}, 401, "invalid_token"},
		{"upgrade to another method", readTrees, []string{"X-HTTP-Method-Override: DELETE"}, 401, ""},
	}
}

func hostilePaths(g *guardedRig) []hostile {
	reader, writer, admin := bearerOf(g.tokens["reader orders*"]), bearerOf(g.tokens["writer orders*"]), bearerOf(g.tokens["admin *"])
	foreign := func(name, line string) hostile {
		return hostile{name, line, []string{writer}, 403, auth.InsufficientScope}
	}
	invalid := func(name, line string) hostile { return hostile{name, line, []string{writer}, 400, "-"} }
	nowhere := func(name, line string) hostile { return hostile{name, line, []string{admin}, 404, "-"} }
	inside := func(name, line string, headers ...string) hostile {
		h := hostile{name, line, headers, 401, ""}
		if len(headers) > 0 {
			h.status, h.challenge = 403, auth.InsufficientScope
		}
		return h
	}
	return []hostile{
		foreign("foreign tree", "PUT /v1/trees/people/keys/a"), foreign("foreign tree, encoded", "PUT /v1/trees/%70eople/keys/a"),
		foreign("foreign tree that is not there", "PUT /v1/trees/nobody/keys/a"), foreign("other case", "PUT /v1/trees/Orders/keys/a"),
		foreign("capitals", "PUT /v1/trees/ORDERS-1/keys/a"), foreign("own name behind another", "PUT /v1/trees/my-orders-1/keys/a"),
		foreign("by the alias", "PUT /v1/trees/people/key?key=a"), foreign("with the own tree for a key", "PUT /v1/trees/people/keys/orders-1"),
		foreign("with the own tree in the query", "GET /v1/trees/people/entries?prefix=orders-1"),
		{"system tree", "GET /v1/trees/_system", []string{writer}, 403, "-"},
		invalid("parent", "PUT /v1/trees/orders-1%2F..%2Fpeople/keys/a"), invalid("parent alone", "PUT /v1/trees/%2e%2e/keys/a"),
		invalid("encoded twice", "PUT /v1/trees/orders-1%252f..%252fpeople/keys/a"), invalid("encoded twice, alone", "PUT /v1/trees/%252e%252e/keys/a"),
		invalid("zero byte", "PUT /v1/trees/orders-1%00people/keys/a"), invalid("overlong dot", "PUT /v1/trees/%c0%ae%c0%ae/keys/a"),
		invalid("backslash", "PUT /v1/trees/orders-1%5c..%5cpeople/keys/a"), invalid("semicolon", "PUT /v1/trees/orders-1;people/keys/a"),
		invalid("a star", "PUT /v1/trees/orders*/keys/a"), invalid("a line break", "PUT /v1/trees/orders-1%0d%0aX-Role:%20admin/keys/a"),
		invalid("a wide letter", "PUT /v1/trees/%ef%bd%8frders/keys/a"), invalid("letters that fold", "PUT /v1/trees/order%c5%bf/keys/a"),
		nowhere("parent in the path", "PUT /v1/trees/orders-1/../people/keys/a"), nowhere("two slashes", "PUT /v1/trees//people/keys/a"),
		nowhere("two at the front", "GET //v1/trees"), nowhere("a dot", "GET /./v1/trees"), nowhere("version in capitals", "GET /V1/trees"),
		{"foreign tree by a dot segment", "PUT /v1/trees/orders-1/keys/../../people/keys/a", []string{writer}, 404, "-"},
		{"reader writes", writeKey, []string{reader}, 403, auth.InsufficientScope},
		{"reader writes as HEAD would read", "DELETE /v1/trees/orders-1/keys/a", []string{reader}, 403, auth.InsufficientScope},
		{"writer makes a tree", "PUT /v1/trees/orders-new", []string{writer}, 403, auth.InsufficientScope},
		{"writer deletes a tree", "DELETE /v1/trees/orders-1", []string{writer}, 403, auth.InsufficientScope},
		{"all trees at once", "GET /v1/cluster/split-activity", []string{writer}, 403, auth.InsufficientScope},
		{"metrics of all trees", "GET /metrics", []string{writer}, 403, auth.InsufficientScope},
		inside("tick without a credential", tickLine), inside("tick as admin", tickLine, admin), inside("tick as writer", tickLine, writer),
		inside("tick and a slash", tickLine+"/", admin), inside("something internal", "GET /internal", admin), inside("internal and a slash", "GET /internal/", admin),
		inside("internal below", "POST /internal/x/../timers/collect", admin), inside("internal, doubled inside", "POST /internal//timers/collect", admin),
		inside("tick encoded inside", "POST /internal/timers%2fcollect", admin), inside("tick with letters encoded", "POST /internal/timers/%63ollect", admin),
		nowhere("slash encoded", "POST /internal%2ftimers/collect"), nowhere("slash encoded in capitals", "POST /internal%2Ftimers%2Fcollect"),
		nowhere("slash encoded twice", "POST /internal%252ftimers/collect"), nowhere("letter encoded", "POST /%69nternal/timers/collect"),
		nowhere("doubled", "POST //internal/timers/collect"), nowhere("dot before", "POST /./internal/timers/collect"), nowhere("dot encoded before", "POST /%2e/internal/timers/collect"),
		nowhere("parent before", "POST /v1/../internal/timers/collect"), nowhere("parent encoded before", "POST /v1/%2e%2e/internal/timers/collect"),
		nowhere("capitals", "POST /INTERNAL/timers/collect"), nowhere("matrix parameter", "POST /internal;x=y/timers/collect"), nowhere("backslash", `POST /internal\timers\collect`),
		nowhere("blank encoded", "POST /internal%20/timers/collect"), nowhere("zero byte", "POST /internal%00/timers/collect"), nowhere("longer", "POST /internals/timers/collect"),
		{"absolute form", "POST http://lattice.example/internal/timers/collect", []string{admin}, 403, auth.InsufficientScope},
		{"absolute form with other case", "POST http://lattice.example/Internal/timers/collect", []string{admin}, 404, "-"},
		{"path of a rewriting proxy", "GET /healthz", []string{"X-Original-Url: /internal/timers/collect", "X-Rewrite-Url: /internal/timers/collect"}, 200, "-"},
	}
}

func TestHostileRequestsAreRefusedWithoutATrace(t *testing.T) {
	issuer := authtest.NewIssuer(t)
	g := newGuardedRig(t, auth.Config{
		JWTIssuer: "https://issuer.example", JWTAudience: "lattice", JWKSURL: issuer.URL, JWTAlgorithms: "RS256,ES256,EdDSA", JWTRoleClaim: "roles",
	}, "reader orders*", "writer orders*", "admin *", "internal")
	all := append(hostileTokens(t, g, issuer), hostilePaths(g)...)
	g.calls.Store(0)
	seen := map[string]bool{}
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			g.t = t
			status, header, body := g.exactly(rawRequest(h.line, h.headers...))
			if status != h.status {
				t.Errorf("%s %v: %d, want %d: %.200s", h.line, h.headers, status, h.status, body)
			}
			want := ""
			if h.challenge != "-" {
				if want = `Bearer realm="lattice"`; h.challenge != "" {
					want += `, error="` + h.challenge + `"`
				}
			}
			if got := header.Get("WWW-Authenticate"); got != want {
				t.Errorf("challenge %q, want %q", got, want)
			}
			var p Problem
			if json.Unmarshal([]byte(body), &p) == nil && (p.Status == 401 && p.Detail != "a valid bearer token is needed" ||
				p.Status == 403 && h.challenge != "-" && p.Detail != "the credential does not allow this") {
				t.Errorf("the refusal tells its reason: %s", p.Detail)
			}
			if header.Get("Set-Cookie") != "" {
				t.Error("the request put a header into the answer")
			}
			if n := g.calls.Load(); n != 0 || g.ticks.Load() != 0 {
				t.Fatalf("%d calls of the database, %d ticks", n, g.ticks.Load())
			}
			for _, header := range h.headers {
				for _, word := range strings.FieldsFunc(header, func(r rune) bool { return strings.ContainsRune(` ,"=`, r) }) {
					if len(word) > 20 && !strings.ContainsAny(word, ":/") && (strings.Contains(body, word) || strings.Contains(g.logs.String(), word)) {
						t.Errorf("a credential is in the answer or the log: %.300s", body)
					}
				}
			}
		})
		if id := h.line + fmt.Sprint(h.headers); seen[id] {
			t.Errorf("%s is there twice", h.name)
		} else {
			seen[id] = true
		}
	}
	if len(all) < 100 {
		t.Errorf("%d hostile requests", len(all))
	}
	g.t = t
	for _, secret := range g.tokens {
		if strings.Contains(g.logs.String(), secret) {
			t.Error("a key is in the log")
		}
	}
	// 201: nobody has written it. The scheme may be in small letters.
	g.do("PUT", "/v1/trees/orders-1/keys/a", "v", "Authorization", "bearer "+g.tokens["writer orders*"]).wantStatus(201)
	if !strings.Contains(g.logs.String(), `"reason":"expired"`) || !strings.Contains(g.logs.String(), `"reason":"unknown key"`) {
		t.Error("the log does not tell an operator what is wrong")
	}
}

func TestOutageOfTheIssuerIsNoRefusal(t *testing.T) {
	issuer := authtest.NewIssuer(t)
	issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	g := newGuardedRig(t, auth.Config{
		JWTIssuer: "https://issuer.example", JWTAudience: "lattice", JWKSURL: issuer.URL, JWTAlgorithms: "EdDSA", JWTRoleClaim: "roles",
	}, "reader *")
	token := issuer.Sign(t, "ed", map[string]any{"iss": "https://issuer.example", "aud": "lattice", "roles": "reader", "exp": time.Now().Unix() + 60})
	got := g.do("GET", "/v1/trees", "", "Authorization", "Bearer "+token)
	if p := got.wantProblem(503, CodeUnavailable); p.RetryAfter < 1 || got.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("%+v", p)
	}
	g.do("GET", "/v1/trees", "", "Authorization", "Bearer "+g.tokens["reader *"]).wantStatus(200)
	if strings.Contains(g.logs.String(), token) {
		t.Error("the token is in the log")
	}
}

func TestCallerThatGoesAwayEndsNoFetch(t *testing.T) {
	issuer := authtest.NewIssuer(t)
	g := newGuardedRig(t, auth.Config{
		JWTIssuer: "https://issuer.example", JWTAudience: "lattice", JWKSURL: issuer.URL, JWTAlgorithms: "EdDSA", JWTRoleClaim: "roles",
	}, "reader *")
	token := issuer.Sign(t, "ed", map[string]any{"iss": "https://issuer.example", "aud": "lattice", "roles": "reader", "exp": time.Now().Unix() + 60})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h := http.Header{"Authorization": {"Bearer " + token}}
	for tries := 0; issuer.Fetches() == 0; tries++ {
		if tries == 100 {
			t.Fatal("no fetch began that the caller could not end")
		}
		// It may also see that its caller is gone before it begins.
		if _, err := g.api.cfg.Auth.Authenticate(gone, h); err != nil && issuer.Fetches() != 0 {
			t.Fatalf("the fetch failed with its caller: %v", err)
		}
	}
	g.do("GET", "/v1/trees", "", "Authorization", "Bearer "+token).wantStatus(200)
}
