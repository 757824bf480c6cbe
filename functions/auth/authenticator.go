package auth

import (
	"context"
	"net/http"
	"strings"

	"github.com/latticekv/lattice/core/clock"
)

// Authenticator tells who a request comes from. It is safe for concurrent use.
type Authenticator struct {
	clock         clock.Source
	keys          *keyring
	jwt           *verifier
	limits        *limiters
	publicMetrics bool
}

// PublicMetrics reports whether metrics are for everybody.
func (a *Authenticator) PublicMetrics() bool { return a.publicMetrics }

// Authenticate returns who the bearer token of a request speaks for. Otherwise
// it returns a *UnauthenticatedError, or a *WaitError with ErrUnavailable if
// the issuer's keys are needed and cannot be had. It may fetch these.
func (a *Authenticator) Authenticate(ctx context.Context, h http.Header) (*Principal, error) {
	token, fault := bearerToken(h.Values("Authorization"))
	if fault != nil {
		return nil, fault
	}
	if strings.Contains(token, ".") {
		// No key has a dot.
		if a.jwt == nil {
			return nil, refused("no issuer is configured")
		}
		return a.jwt.verify(ctx, token)
	}
	k := a.keys.find(token)
	if k == nil {
		return nil, refused("unknown key")
	}
	if !k.Expires.IsZero() && !a.clock.Now().Time().Before(k.Expires) {
		return nil, refused("expired key")
	}
	return &Principal{ID: "key:" + k.Name, Role: k.Role, Trees: k.Trees, Limits: k.Limits}, nil
}

// Enter counts a request against the limits of its credential until leave is
// called. It returns a *WaitError with ErrLimited if they are reached; leave is
// nil then.
func (a *Authenticator) Enter(p *Principal) (leave func(), err error) { return a.limits.enter(p) }
