package auth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/latticekv/lattice/core/clock"
)

// verifier checks JSON Web Tokens of one issuer.
type verifier struct {
	keys   *jwksCache
	clock  clock.Source
	parser *jwt.Parser
	claims *jwt.Validator
	algs   []string
	leeway time.Duration
	// maxAge bounds the time since a token was issued; 0 does not.
	maxAge time.Duration
	// roleClaim and treesClaim name the claims; without treesClaim a token speaks
	// for all trees. rolePrefix stands before the names of roles.
	roleClaim, rolePrefix, treesClaim string
	limits                            Limits
}

// refused is what is wrong with a token, for the log.
func refused(reason string) error { return &UnauthenticatedError{Code: invalidToken, Reason: reason} }

// verify returns who a token speaks for. Everything that can be told without a
// key is checked first, so that a token which is wrong anyway neither fetches
// keys nor is answered with "cannot tell now".
func (v *verifier) verify(ctx context.Context, token string) (*Principal, error) {
	unverified, _, err := v.parser.ParseUnverified(token, jwt.MapClaims{})
	if err != nil {
		return nil, refused(tokenFault(err))
	}
	alg := unverified.Method.Alg()
	if !slices.Contains(v.algs, alg) {
		return nil, refused("algorithm not allowed")
	}
	if _, critical := unverified.Header["crit"]; critical {
		// No extension is understood here, and such a token demands one.
		return nil, refused("critical extension")
	}
	kid, ok := unverified.Header["kid"].(string)
	if !ok || kid == "" || len(kid) > maxKeyID {
		return nil, refused("no key id")
	}
	if err := v.checkClaims(unverified.Claims); err != nil {
		return nil, err
	}
	key, err := v.keys.lookup(ctx, kid)
	if errors.Is(err, errUnknownKey) {
		return nil, refused("unknown key id")
	}
	if err != nil {
		return nil, err
	}
	if !slices.Contains(key.algs, alg) {
		return nil, refused("algorithm not of the key")
	}
	claims := jwt.MapClaims{}
	if _, err := v.parser.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return key.key, nil }); err != nil {
		return nil, refused(tokenFault(err))
	}
	return v.principal(claims)
}

func (v *verifier) checkClaims(claims jwt.Claims) error {
	if err := v.claims.Validate(claims); err != nil {
		return refused(tokenFault(err))
	}
	if v.maxAge == 0 {
		return nil
	}
	issued, err := claims.GetIssuedAt()
	if err != nil || issued == nil {
		return refused("no time of issue")
	}
	if v.clock.Now().Time().Sub(issued.Time) > v.maxAge+v.leeway {
		return refused("issued too long ago")
	}
	return nil
}

// tokenFault puts an error of the parser into fixed words: its own may quote
// the token.
func tokenFault(err error) string {
	for _, f := range []struct {
		err  error
		word string
	}{
		{jwt.ErrTokenMalformed, "malformed"}, {jwt.ErrTokenSignatureInvalid, "signature"},
		{jwt.ErrTokenExpired, "expired"}, {jwt.ErrTokenNotValidYet, "not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "issued in the future"}, {jwt.ErrTokenInvalidAudience, "audience"},
		{jwt.ErrTokenInvalidIssuer, "issuer"}, {jwt.ErrTokenRequiredClaimMissing, "required claim missing"},
		{jwt.ErrTokenUnverifiable, "algorithm unknown"}, {jwt.ErrInvalidType, "claim of another type"}, {jwt.ErrTokenInvalidClaims, "claims"},
	} {
		if errors.Is(err, f.err) {
			return f.word
		}
	}
	return "not valid"
}

// maxSubject bounds the subject in logs.
const maxSubject = 128

// principal reads the claims of a token that is right.
func (v *verifier) principal(claims jwt.MapClaims) (*Principal, error) {
	p := &Principal{ID: "jwt:" + subject(claims), Role: v.role(claims), Limits: v.limits, Trees: Patterns{everyTree}}
	if v.treesClaim != "" {
		// A claim that is missing or not understood opens nothing.
		p.Trees, _ = newPatterns(claimList(claims[v.treesClaim]))
	}
	if p.Role == RoleInternal {
		p.Trees = nil
	}
	return p, nil
}

func subject(claims jwt.MapClaims) string {
	for _, name := range []string{"sub", "client_id", "azp"} {
		if s, ok := claims[name].(string); ok && s != "" {
			return s[:min(len(s), maxSubject)]
		}
	}
	return ""
}

// role returns the highest role that the claim names. Internal counts only
// where it stands alone, so that no administrator's token opens /internal.
func (v *verifier) role(claims jwt.MapClaims) Role {
	highest, internal := RoleNone, false
	for _, name := range claimList(claims[v.roleClaim]) {
		name, ok := strings.CutPrefix(name, v.rolePrefix)
		role, err := ParseRole(name)
		if !ok || err != nil {
			continue
		}
		if role == RoleInternal {
			internal = true
			continue
		}
		highest = max(highest, role)
	}
	if internal && highest == RoleNone {
		return RoleInternal
	}
	return highest
}

// claimList reads a claim that is a list of strings, or one string in which
// spaces or commas separate them, as in scope.
func claimList(claim any) []string {
	switch c := claim.(type) {
	case string:
		return strings.FieldsFunc(c, func(r rune) bool { return r == ' ' || r == ',' })
	case []any:
		var list []string
		for _, item := range c {
			s, ok := item.(string)
			if !ok {
				return nil
			}
			list = append(list, s)
		}
		return list
	}
	return nil
}
