// Package auth decides who may do what: it knows static API keys, JSON Web
// Tokens of an issuer, the roles they carry, and the token that guards the
// internal endpoints. No error and no log line of it holds a token.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"
)

var (
	// ErrUnauthenticated: no credential was given, or a wrong one.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrDenied: nobody may do this here.
	ErrDenied = errors.New("authorization denied")
	// ErrUnavailable: whether a credential is right cannot be found out now.
	ErrUnavailable = errors.New("credentials cannot be checked now")
	// ErrLimited: the credential is over its own limits.
	ErrLimited = errors.New("over the limits of the credential")
)

// The error codes of RFC 6750, section 3.1.
const (
	invalidRequest = "invalid_request"
	invalidToken   = "invalid_token"
	// InsufficientScope goes with a refusal of what the credential may not do.
	InsufficientScope = "insufficient_scope"
)

// UnauthenticatedError is an ErrUnauthenticated.
type UnauthenticatedError struct {
	// Code is that of RFC 6750 for the caller; empty if there was no bearer token
	// to object to.
	Code string
	// Reason is for the log alone, from a fixed set of words: it tells an operator
	// what a guesser should not learn.
	Reason string
}

// Error implements error.
func (e *UnauthenticatedError) Error() string { return ErrUnauthenticated.Error() + ": " + e.Reason }

// Unwrap makes the error match ErrUnauthenticated.
func (e *UnauthenticatedError) Unwrap() error { return ErrUnauthenticated }

// WaitError is an ErrUnavailable or an ErrLimited that says when to try again.
type WaitError struct {
	// Err is the category.
	Err error
	// RetryAfter is positive.
	RetryAfter time.Duration
}

// Error implements error.
func (e *WaitError) Error() string { return e.Err.Error() }

// Unwrap returns the category.
func (e *WaitError) Unwrap() error { return e.Err }

// Principal is who a request comes from.
type Principal struct {
	// ID names the credential in logs and keeps its limits apart: key:NAME or
	// jwt:SUBJECT.
	ID string
	// Role is what it may do.
	Role Role
	// Trees are where it may do so.
	Trees Patterns
	// Limits are its own.
	Limits Limits
}

// Internal is the internal credential of one process, kept as a hash. The zero
// value admits nobody.
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
