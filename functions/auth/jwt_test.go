package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/latticekv/lattice/functions/auth/authtest"
)

// court is an authenticator for the tokens of an issuer.
type court struct {
	t      *testing.T
	clock  *handClock
	issuer *authtest.Issuer
	log    *logged
	*Authenticator
}

func newCourt(t *testing.T, change ...func(*Config)) *court {
	t.Helper()
	c := &court{t: t, clock: newHandClock(), issuer: authtest.NewIssuer(t), log: &logged{}}
	cfg := jwtConfig(c.issuer.URL)
	for _, f := range change {
		f(&cfg)
	}
	a, err := New(cfg, c.clock, c.log.logger())
	if err != nil {
		t.Fatal(err)
	}
	c.Authenticator = a
	return c
}

// claims are those of a good token, with changes; nil removes one.
func (c *court) claims(changes map[string]any) map[string]any {
	now := c.clock.Now().Time().Unix()
	all := map[string]any{
		"iss": "https://issuer.example", "aud": "lattice", "sub": "ada", "roles": []string{"writer"},
		"iat": now, "exp": now + 600,
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func (c *court) ask(token string) (*Principal, error) {
	return c.Authenticate(c.t.Context(), http.Header{"Authorization": {"Bearer " + token}})
}

func (c *court) admits(token string) *Principal {
	c.t.Helper()
	p, err := c.ask(token)
	if err != nil {
		c.t.Fatalf("a good token is refused: %v", err)
	}
	return p
}

// refuses demands a refusal for a reason, which holds nothing of the token.
func (c *court) refuses(token, reason string) {
	c.t.Helper()
	p, err := c.ask(token)
	var u *UnauthenticatedError
	if p != nil || !errors.As(err, &u) {
		c.t.Fatalf("admitted %+v, %v; want a refusal for %s", p, err, reason)
	}
	if u.Reason != reason || u.Code != invalidToken {
		c.t.Errorf("refused for %q with %q, want %q", u.Reason, u.Code, reason)
	}
}

func TestTokensOfTheIssuerAreAdmitted(t *testing.T) {
	c := newCourt(t)
	for _, kid := range []string{"rsa", "ec", "ed"} {
		p := c.admits(c.issuer.Sign(t, kid, c.claims(nil)))
		if p.ID != "jwt:ada" || p.Role != RoleWriter || !p.Trees.All() {
			t.Errorf("%s: %+v", kid, p)
		}
	}
	if c.issuer.Fetches() != 1 {
		t.Errorf("the keys were fetched %d times", c.issuer.Fetches())
	}
	c.admits(c.issuer.Sign(t, "ec", c.claims(map[string]any{"aud": []string{"other", "lattice"}})))
}

func TestHostileTokensAreRefused(t *testing.T) {
	c := newCourt(t)
	good := c.issuer.Sign(t, "rsa", c.claims(nil))
	c.admits(good)
	part := strings.Split(good, ".")
	e := base64.RawURLEncoding
	header := func(h string) string { return e.EncodeToString([]byte(h)) + "." + part[1] + "." + part[2] }
	now := c.clock.Now().Time().Unix()
	rsaKey := authtest.RSA(t)
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(changes map[string]any, header ...map[string]any) string {
		return c.issuer.Sign(t, "rsa", c.claims(changes), header...)
	}
	none := authtest.SignWith(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "rsa", c.claims(nil))
	hs := func(secret []byte) string {
		return authtest.SignWith(t, jwt.SigningMethodHS256, secret, "rsa", c.claims(nil))
	}
	set := c.issuer.Set()
	for name, tt := range map[string]struct{ token, reason string }{
		"no signature, alg none":           {none, "algorithm not allowed"},
		"alg none over a signature":        {header(`{"alg":"none","kid":"rsa"}`), "algorithm not allowed"},
		"alg None":                         {header(`{"alg":"None","kid":"rsa"}`), "algorithm unknown"},
		"alg NONE":                         {header(`{"alg":"NONE","kid":"rsa"}`), "algorithm unknown"},
		"alg empty":                        {header(`{"alg":"","kid":"rsa"}`), "algorithm unknown"},
		"alg missing":                      {header(`{"kid":"rsa"}`), "algorithm unknown"},
		"alg a list":                       {header(`{"alg":["RS256"],"kid":"rsa"}`), "algorithm unknown"},
		"alg of a known key, not allowed":  {authtest.SignWith(t, jwt.SigningMethodRS512, rsaKey, "rsa", c.claims(nil)), "algorithm not allowed"},
		"PS256, not allowed":               {authtest.SignWith(t, jwt.SigningMethodPS256, rsaKey, "rsa", c.claims(nil)), "algorithm not allowed"},
		"HMAC with the public key, DER":    {hs(der), "algorithm not allowed"},
		"HMAC with the published set":      {hs(set), "algorithm not allowed"},
		"HMAC with nothing":                {hs([]byte{}), "algorithm not allowed"},
		"signed by a stranger":             {authtest.SignWith(t, jwt.SigningMethodES256, stranger, "ec", c.claims(nil)), "signature"},
		"of one key under another's id":    {authtest.SignWith(t, jwt.SigningMethodRS256, rsaKey, "ec", c.claims(nil)), "algorithm not of the key"},
		"unknown key":                      {authtest.SignWith(t, jwt.SigningMethodES256, stranger, "stranger", c.claims(nil)), "unknown key id"},
		"key id in other case":             {authtest.SignWith(t, jwt.SigningMethodRS256, rsaKey, "RSA", c.claims(nil)), "unknown key id"},
		"key id of a path":                 {authtest.SignWith(t, jwt.SigningMethodRS256, rsaKey, "../../etc/passwd", c.claims(nil)), "unknown key id"},
		"key id of SQL":                    {authtest.SignWith(t, jwt.SigningMethodRS256, rsaKey, "x' OR '1'='1", c.claims(nil)), "unknown key id"},
		"no key id":                        {signed(nil, map[string]any{"kid": nil}), "no key id"},
		"empty key id":                     {signed(nil, map[string]any{"kid": ""}), "no key id"},
		"key id of no text":                {signed(nil, map[string]any{"kid": 7}), "no key id"},
		"key id of great length":           {signed(nil, map[string]any{"kid": strings.Repeat("k", maxKeyID+1)}), "no key id"},
		"its own key in the header":        {authtest.SignWith(t, jwt.SigningMethodES256, stranger, "ec", c.claims(nil), map[string]any{"jwk": authtest.JWK(stranger.Public())}), "signature"},
		"an address of keys in the header": {authtest.SignWith(t, jwt.SigningMethodES256, stranger, "ec", c.claims(nil), map[string]any{"jku": "https://evil.example/keys", "x5u": "https://evil.example/c"}), "signature"},
		"a critical extension":             {signed(nil, map[string]any{"crit": []string{"exp"}}), "critical extension"},
		"an empty critical extension":      {signed(nil, map[string]any{"crit": []string{}}), "critical extension"},
		"expired":                          {signed(map[string]any{"exp": now - 31}), "expired"},
		"expired long ago":                 {signed(map[string]any{"exp": 1}), "expired"},
		"expiry of zero":                   {signed(map[string]any{"exp": 0}), "required claim missing"},
		"negative expiry":                  {signed(map[string]any{"exp": -1}), "expired"},
		"no expiry":                        {signed(map[string]any{"exp": nil}), "required claim missing"},
		"expiry of text":                   {signed(map[string]any{"exp": "tomorrow"}), "claim of another type"},
		"not yet valid":                    {signed(map[string]any{"nbf": now + 31}), "not valid yet"},
		"issued in the future":             {signed(map[string]any{"iat": now + 31}), "issued in the future"},
		"another audience":                 {signed(map[string]any{"aud": "lattice2"}), "audience"},
		"audience in other case":           {signed(map[string]any{"aud": "Lattice"}), "audience"},
		"no audience":                      {signed(map[string]any{"aud": nil}), "required claim missing"},
		"empty list of audiences":          {signed(map[string]any{"aud": []string{}}), "required claim missing"},
		"audience of no text":              {signed(map[string]any{"aud": map[string]any{"lattice": true}}), "required claim missing"},
		"another issuer":                   {signed(map[string]any{"iss": "https://issuer.example.evil"}), "issuer"},
		"issuer with a slash":              {signed(map[string]any{"iss": "https://issuer.example/"}), "issuer"},
		"no issuer":                        {signed(map[string]any{"iss": nil}), "required claim missing"},
		"signature cut":                    {good[:len(good)-5], "malformed"}, // 337 digits of base64 are no number of bytes
		"signature halved":                 {part[0] + "." + part[1] + "." + part[2][:len(part[2])/2&^3], "signature"},
		"signature empty":                  {part[0] + "." + part[1] + ".", "signature"},
		"signature of another token":       {part[0] + "." + part[1] + "." + strings.Split(signed(map[string]any{"sub": "eve"}), ".")[2], "signature"},
		"claims changed":                   {part[0] + "." + e.EncodeToString(mustJSON(t, c.claims(map[string]any{"roles": "admin"}))) + "." + part[2], "signature"},
		"two parts":                        {part[0] + "." + part[1], "malformed"},
		"four parts":                       {good + ".x", "malformed"},
		"five parts, encrypted":            {good + ".x.y", "malformed"},
		"dots":                             {"...", "malformed"},
		"two dots":                         {"..", "malformed"},
		"header of no JSON":                {"AAAA." + part[1] + "." + part[2], "malformed"},
		"claims of no JSON":                {part[0] + ".AAAA." + part[2], "malformed"},
		"claims of a list":                 {part[0] + "." + e.EncodeToString([]byte(`["iss"]`)) + "." + part[2], "malformed"},
		"base64 with padding":              {part[0] + "." + part[1] + "." + part[2] + "==", "malformed"},
		"deep JSON":                        {part[0] + "." + e.EncodeToString([]byte(strings.Repeat("[", 4000))) + "." + part[2], "malformed"},
		"oversized":                        {signed(map[string]any{"pad": strings.Repeat("x", maxTokenBytes)}), "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			c.refuses(tt.token, tt.reason)
			if strings.Contains(c.log.String(), tt.token) {
				t.Error("the token is in the log")
			}
		})
	}
	c.t = t
	c.admits(good)
	if n := c.issuer.Fetches(); n > 2 {
		t.Errorf("hostile tokens fetched keys %d times", n)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestClockSkewIsToleratedUpToTheLeeway(t *testing.T) {
	c := newCourt(t, func(c *Config) { c.JWTMaxAge = time.Hour })
	now := c.clock.Now().Time().Unix()
	for _, changes := range []map[string]any{{"exp": now - 29}, {"nbf": now + 29}, {"iat": now + 29}, {"iat": now - 3629}} {
		c.admits(c.issuer.Sign(t, "ed", c.claims(changes)))
	}
	c.refuses(c.issuer.Sign(t, "ed", c.claims(map[string]any{"iat": now - 3632})), "issued too long ago")
	c.refuses(c.issuer.Sign(t, "ed", c.claims(map[string]any{"iat": nil})), "no time of issue")
}

func TestClaimsBecomeRights(t *testing.T) {
	plain := newCourt(t)
	limited := newCourt(t, func(c *Config) {
		c.JWTTreesClaim, c.JWTRoleClaim, c.JWTRolePrefix, c.JWTRate = "trees", "scope", "lattice.", 5
	})
	for name, tt := range map[string]struct {
		c      *court
		claims map[string]any
		role   Role
		trees  string
	}{
		"a list":                         {plain, map[string]any{"roles": []string{"reader", "writer"}}, RoleWriter, "*"},
		"a text":                         {plain, map[string]any{"roles": "reader"}, RoleReader, "*"},
		"the highest, in any order":      {plain, map[string]any{"roles": "admin reader,writer"}, RoleAdmin, "*"},
		"no claim":                       {plain, map[string]any{"roles": nil}, RoleNone, "*"},
		"unknown roles":                  {plain, map[string]any{"roles": []string{"owner", "Admin", "admin ", "none"}}, RoleNone, "*"},
		"something else in the list":     {plain, map[string]any{"roles": []any{"admin", 7}}, RoleNone, "*"},
		"a number":                       {plain, map[string]any{"roles": 3}, RoleNone, "*"},
		"an object":                      {plain, map[string]any{"roles": map[string]any{"admin": true}}, RoleNone, "*"},
		"internal alone":                 {plain, map[string]any{"roles": "internal"}, RoleInternal, ""},
		"internal beside admin is admin": {plain, map[string]any{"roles": "internal admin"}, RoleAdmin, "*"},
		"trees of a claim nobody asked":  {plain, map[string]any{"trees": "a"}, RoleWriter, "*"},
		"with a prefix":                  {limited, map[string]any{"scope": "openid lattice.reader admin", "trees": []string{"a*", "b"}}, RoleReader, "a*,b"},
		"trees of a text":                {limited, map[string]any{"scope": "lattice.admin", "trees": "a b*"}, RoleAdmin, "a,b*"},
		"no trees":                       {limited, map[string]any{"scope": "lattice.admin"}, RoleAdmin, ""},
		"trees of no form":               {limited, map[string]any{"scope": "lattice.admin", "trees": []string{"ok", "[a-z]"}}, RoleAdmin, ""},
		"trees of no text":               {limited, map[string]any{"scope": "lattice.admin", "trees": true}, RoleAdmin, ""},
		"trees of the system":            {limited, map[string]any{"scope": "lattice.admin", "trees": "_*"}, RoleAdmin, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.c.t = t
			p := tt.c.admits(tt.c.issuer.Sign(t, "ed", tt.c.claims(tt.claims)))
			if p.Role != tt.role || p.Trees.String() != tt.trees {
				t.Errorf("%s of %q, want %s of %q", p.Role, p.Trees, tt.role, tt.trees)
			}
		})
	}
	limited.t = t
	if p := limited.admits(limited.issuer.Sign(t, "ed", limited.claims(nil))); p.Limits.Rate != 5 {
		t.Errorf("limits %+v", p.Limits)
	}
}

func TestSubjectNamesTheCaller(t *testing.T) {
	c := newCourt(t)
	for want, changes := range map[string]map[string]any{
		"jwt:ada": {}, "jwt:app": {"sub": nil, "client_id": "app"}, "jwt:party": {"sub": "", "azp": "party"}, "jwt:": {"sub": nil},
		"jwt:" + strings.Repeat("x", maxSubject): {"sub": strings.Repeat("x", 500)},
	} {
		if p := c.admits(c.issuer.Sign(t, "ed", c.claims(changes))); p.ID != want {
			t.Errorf("%s, want %s", p.ID, want)
		}
	}
}

func TestAllAlgorithmsCanCheck(t *testing.T) {
	for _, alg := range Algorithms() {
		if jwt.GetSigningMethod(alg) == nil || slices.Contains([]string{"none", "HS256"}, alg) {
			t.Errorf("%s", alg)
		}
	}
	c := newCourt(t, func(c *Config) { c.JWTAlgorithms = strings.Join(Algorithms(), ",") })
	for _, m := range []jwt.SigningMethod{jwt.SigningMethodRS384, jwt.SigningMethodRS512, jwt.SigningMethodPS256, jwt.SigningMethodPS512} {
		c.admits(authtest.SignWith(t, m, authtest.RSA(t), "rsa", c.claims(nil)))
	}
	for curve, m := range map[elliptic.Curve]*jwt.SigningMethodECDSA{elliptic.P384(): jwt.SigningMethodES384, elliptic.P521(): jwt.SigningMethodES512} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c.issuer.Add(m.Alg(), key)
		c.clock.advance(fetchPause)
		c.admits(authtest.SignWith(t, m, key, m.Alg(), c.claims(nil)))
	}
}
