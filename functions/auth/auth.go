// Package auth decides who may do what. For now it knows one credential: the
// token that guards the internal endpoints.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
)

var (
	// ErrUnauthenticated: no credential was given, or a wrong one.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrDenied: nobody may do this here.
	ErrDenied = errors.New("authorization denied")
)

// Internal is the internal credential, kept as a hash. The zero value admits
// nobody.
type Internal struct {
	digest [sha256.Size]byte
	set    bool
}

// NewInternal returns the guard for a bearer token; an empty token admits
// nobody.
func NewInternal(token string) Internal {
	if token == "" {
		return Internal{}
	}
	return Internal{digest: sha256.Sum256([]byte(token)), set: true}
}

// Check admits a request that carries the token as "Authorization: Bearer".
// It returns ErrDenied if no token is configured, ErrUnauthenticated if the
// request has none or another one. Tokens are compared by hash, in constant
// time, so that neither length nor content leaks.
func (i Internal) Check(h http.Header) error {
	if !i.set {
		return ErrDenied
	}
	token, ok := bearer(h.Values("Authorization"))
	if !ok {
		return ErrUnauthenticated
	}
	got := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(got[:], i.digest[:]) != 1 {
		return ErrUnauthenticated
	}
	return nil
}

// bearer returns the token of the only Authorization header.
func bearer(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && token != "" && strings.EqualFold(scheme, "Bearer")
}
