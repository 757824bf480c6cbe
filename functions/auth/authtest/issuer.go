// Package authtest is an issuer of JSON Web Tokens for tests: it publishes keys
// over HTTP, signs what it is asked to, and can be made to fail.
package authtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// Issuer signs tokens and publishes its keys at URL.
type Issuer struct {
	// URL is where the keys are published.
	URL string

	mu      sync.Mutex
	keys    map[string]crypto.Signer
	answer  http.HandlerFunc
	fetches int
}

// NewIssuer returns an issuer with one key of each kind: rsa, ec and ed are
// their ids. It ends with the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{keys: map[string]crypto.Signer{}}
	i.Add("rsa", RSA(t))
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.Add("ec", ec)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.Add("ed", ed)
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL + "/keys"
	return i
}

// sharedRSA is made once: it takes longer than most tests.
var sharedRSA = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// RSA returns a key that is the same for the whole process.
func RSA(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := sharedRSA()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Add publishes a key.
func (i *Issuer) Add(kid string, key crypto.Signer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[kid] = key
}

// Withdraw ends a key.
func (i *Issuer) Withdraw(kid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.keys, kid)
}

// Answer replaces what is answered; nil puts the keys back.
func (i *Issuer) Answer(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = h
}

// Fetches is how often the keys were asked for.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// ServeHTTP publishes the keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.fetches++
	answer := i.answer
	i.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	_, _ = w.Write(i.Set())
}

// Set is the JWK set of the keys.
func (i *Issuer) Set() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := []map[string]any{}
	for kid, key := range i.keys {
		k := JWK(key.Public())
		k["kid"], k["use"] = kid, "sig"
		set = append(set, k)
	}
	b, err := json.Marshal(map[string]any{"keys": set})
	if err != nil {
		panic(err) // maps of strings
	}
	return b
}

// JWK describes a public key, without an id.
func JWK(public crypto.PublicKey) map[string]any {
	e := base64.RawURLEncoding
	switch k := public.(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "n": e.EncodeToString(k.N.Bytes()), "e": e.EncodeToString(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err) // a key that was made here
		}
		size := (len(point) - 1) / 2
		return map[string]any{
			"kty": "EC", "crv": k.Curve.Params().Name,
			"x": e.EncodeToString(point[1 : 1+size]), "y": e.EncodeToString(point[1+size:]),
		}
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "crv": "Ed25519", "x": e.EncodeToString(k)}
	}
	return map[string]any{}
}

// Sign returns a token with a key of the issuer. Header members are laid over
// those that belong there; nil removes one.
func (i *Issuer) Sign(t testing.TB, kid string, claims map[string]any, header ...map[string]any) string {
	t.Helper()
	i.mu.Lock()
	key := i.keys[kid]
	i.mu.Unlock()
	var method jwt.SigningMethod
	switch key.(type) {
	case *rsa.PrivateKey:
		method = jwt.SigningMethodRS256
	case *ecdsa.PrivateKey:
		method = jwt.SigningMethodES256
	case ed25519.PrivateKey:
		method = jwt.SigningMethodEdDSA
	}
	return SignWith(t, method, key, kid, claims, header...)
}

// SignWith likewise with any method and key, those that nobody should accept
// included.
func SignWith(t testing.TB, method jwt.SigningMethod, key any, kid string, claims map[string]any, header ...map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims))
	token.Header["kid"] = kid
	for _, more := range header {
		for name, v := range more {
			if token.Header[name] = v; v == nil {
				delete(token.Header, name)
			}
		}
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatalf("sign a token: %v", err)
	}
	return text
}
