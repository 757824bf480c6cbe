package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/functions/auth/authtest"
)

func newEd(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// cannotTell demands that a token can be neither admitted nor refused.
func (c *court) cannotTell(token string) {
	c.t.Helper()
	p, err := c.ask(token)
	var w *WaitError
	if p != nil || !errors.As(err, &w) || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnauthenticated) || w.RetryAfter < time.Second {
		c.t.Fatalf("%+v, %v", p, err)
	}
}

func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

func TestRotatedKeysAreFetched(t *testing.T) {
	c := newCourt(t)
	old := c.issuer.Sign(t, "ed", c.claims(map[string]any{"exp": c.clock.Now().Time().Add(48 * time.Hour).Unix()}))
	c.admits(old)
	c.issuer.Add("next", newEd(t))
	next := c.issuer.Sign(t, "next", c.claims(nil))
	c.refuses(next, "unknown key id") // just fetched: whoever makes ids up fetches nothing
	c.clock.advance(fetchPause)
	c.admits(next)
	if c.issuer.Fetches() != 2 {
		t.Errorf("%d fetches", c.issuer.Fetches())
	}
	c.issuer.Withdraw("ed")
	c.admits(old)
	c.clock.jump(refreshAfter)
	c.refuses(old, "unknown key id")
}

func TestMadeUpKeysFetchSeldom(t *testing.T) {
	c := newCourt(t)
	for i := range 50 {
		token := c.issuer.Sign(t, "ed", c.claims(nil), map[string]any{"kid": fmt.Sprint("x", i)})
		c.refuses(token, "unknown key id")
		c.clock.advance(fetchPause / 10)
	}
	if n := c.issuer.Fetches(); n != 5 {
		t.Errorf("%d fetches in five pauses", n)
	}
	// What is wrong anyway fetches nothing at all.
	c.clock.advance(fetchPause)
	c.refuses(c.issuer.Sign(t, "ed", c.claims(map[string]any{"exp": 1}), map[string]any{"kid": "y"}), "expired")
	if n := c.issuer.Fetches(); n != 5 {
		t.Error("an expired token fetched keys")
	}
}

func TestOutageOfTheIssuer(t *testing.T) {
	c := newCourt(t)
	long := map[string]any{"exp": c.clock.Now().Time().Add(72 * time.Hour).Unix()}
	known := c.issuer.Sign(t, "ed", c.claims(long))
	c.issuer.Answer(down)
	c.cannotTell(known) // nothing is known yet
	c.cannotTell(known)
	if c.issuer.Fetches() != 1 {
		t.Errorf("%d fetches while one had just failed", c.issuer.Fetches())
	}
	c.issuer.Answer(nil)
	c.clock.advance(fetchPause)
	c.admits(known)

	c.issuer.Answer(down)
	c.issuer.Add("next", newEd(t))
	next := c.issuer.Sign(t, "next", c.claims(long))
	c.clock.advance(refreshAfter)
	c.admits(known) // what is known serves on
	c.cannotTell(next)
	c.refuses(c.issuer.Sign(t, "next", c.claims(map[string]any{"aud": "x"})), "audience")
	c.clock.advance(staleAfter - refreshAfter - time.Second)
	c.admits(known)
	c.clock.advance(fetchPause)
	c.cannotTell(known) // too old to be trusted
	c.issuer.Answer(nil)
	c.clock.advance(fetchPause)
	c.admits(known)
	c.admits(next)
	if !strings.Contains(c.log.String(), "500") {
		t.Errorf("the outage is not told of:\n%s", c.log)
	}
}

func TestAnswersThatAreNoKeysAreOutages(t *testing.T) {
	set := authtest.NewIssuer(t).Set()
	for name, answer := range map[string]http.HandlerFunc{
		"no JSON":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"no keys":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"keys":[]}`) },
		"a list":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[]`) },
		"an error":      down,
		"another place": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"broken off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"keys":[`)
		},
		"without end": func(w http.ResponseWriter, _ *http.Request) {
			// What is read of it is a set of keys by itself.
			_, _ = w.Write(set)
			for range maxSetBytes/1024 + 1 {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1024)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t)
			token := c.issuer.Sign(t, "ed", c.claims(nil))
			c.issuer.Answer(answer)
			c.cannotTell(token)
			if c.issuer.Fetches() != 1 {
				t.Errorf("%d fetches", c.issuer.Fetches())
			}
			c.issuer.Answer(nil)
			c.clock.advance(fetchPause)
			c.admits(token)
		})
	}
}

func TestManyRequestsShareAFetch(t *testing.T) {
	c := newCourt(t)
	token := c.issuer.Sign(t, "ed", c.claims(nil))
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := c.ask(token); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c.issuer.Fetches() != 1 {
		t.Errorf("%d fetches", c.issuer.Fetches())
	}
}

func TestUnsuitableKeysAreLeftOut(t *testing.T) {
	edKey := authtest.JWK(newEd(t).Public())
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(k map[string]any, changes ...any) map[string]any {
		out := map[string]any{"kid": "k"}
		for name, v := range k {
			out[name] = v
		}
		for i := 0; i < len(changes); i += 2 {
			out[changes[i].(string)] = changes[i+1]
		}
		return out
	}
	modulus := authtest.RSA(t).N.Bytes()
	rsaKey, point := authtest.JWK(authtest.RSA(t).Public()), authtest.JWK(ecKey.Public())
	for name, k := range map[string]map[string]any{
		"symmetric":                with(map[string]any{"kty": "oct", "k": "c2VjcmV0"}),
		"unknown type":             with(edKey, "kty", "unknown"),
		"for encryption":           with(rsaKey, "use", "enc"),
		"no id":                    with(edKey, "kid", ""),
		"long id":                  with(edKey, "kid", strings.Repeat("k", maxKeyID+1)),
		"for a symmetric use":      with(rsaKey, "alg", "HS256"),
		"for another algorithm":    with(edKey, "alg", "RS256"),
		"small RSA":                with(rsaKey, "n", base64.RawURLEncoding.EncodeToString(append(bytes.Clone(modulus[:127]), modulus[127]|1))),
		"even modulus":             with(rsaKey, "n", rsaKey["n"].(string)[:340]+"AA"),
		"exponent of one":          with(rsaKey, "e", "AQ"),
		"great exponent":           with(rsaKey, "e", "AQAAAAAB"),
		"no exponent":              with(rsaKey, "e", ""),
		"base64 of the other kind": with(rsaKey, "n", "+/"+rsaKey["n"].(string)[2:]),
		"point off the curve":      with(point, "y", point["x"]),
		"unknown curve":            with(point, "crv", "secp256k1"),
		"point of another curve":   with(point, "crv", "P-384"),
		"short point":              with(point, "x", "AA"),
		"short Ed25519":            with(edKey, "x", "AA"),
		"Ed448":                    with(edKey, "crv", "Ed448"),
		"of no text":               with(edKey, "kid", 7),
	} {
		body, err := json.Marshal(map[string]any{"keys": []any{k, with(edKey, "kid", "good"), "no key", nil}})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := parseKeySet(body)
		if err != nil || len(keys) != 1 || keys["good"].key == nil {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
	}
	twice, err := json.Marshal(map[string]any{"keys": []any{with(edKey), with(rsaKey, "alg", "RS256")}})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := parseKeySet(twice); err != nil || keys["k"].algs[0] != "EdDSA" {
		t.Errorf("two keys of an id: %+v, %v", keys, err)
	}
	if _, err := parseKeySet([]byte(`{"keys":[` + strings.Repeat("{},", maxSetKeys) + `{}]}`)); err == nil {
		t.Error("more keys than are allowed")
	}
}

func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[]}`))
	f.Add(authtest.NewIssuer(f).Set())
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, err := parseKeySet(body)
		if (len(keys) == 0) != (err != nil) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for kid, k := range keys {
			if kid == "" || k.key == nil || len(k.algs) == 0 {
				t.Fatalf("key %q: %+v", kid, k)
			}
		}
	})
}

// failing is a network that quotes what it was asked for, as net/http does.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }

func TestAddressOfTheKeysIsToldWithoutItsParameters(t *testing.T) {
	var logs bytes.Buffer
	j := newJWKSCache("https://issuer.example/keys?code=hush", failing{}, newHandClock(), slog.New(slog.NewTextHandler(&logs, nil)))
	if _, err := j.lookup(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	if text := logs.String(); strings.Contains(text, "hush") || !strings.Contains(text, "https://issuer.example/keys") || !strings.Contains(text, "no route") {
		t.Error(text)
	}
}
