package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
)

// Algorithms are the signatures that can be allowed. None of them is
// symmetric: whoever could check such a token could make one.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

const (
	// maxSetKeys bounds the keys of an issuer.
	maxSetKeys = 100
	// maxKeyID bounds the id of a key.
	maxKeyID = 256
	// The sizes of RSA keys, in bits. A larger key makes each check slow.
	minRSABits, maxRSABits = 2048, 8192
)

// publicKey is a key of an issuer.
type publicKey struct {
	// key is what the algorithm's check wants: *rsa.PublicKey, *ecdsa.PublicKey or
	// ed25519.PublicKey.
	key any
	// algs are the algorithms it may be used with.
	algs []string
}

// jwk is a member of a JWK set, RFC 7517 and RFC 8037.
type jwk struct {
	Kty string `json:"kty"`
	Kid string `json:"kid"`
	Use string `json:"use"`
	Alg string `json:"alg"`
	N   string `json:"n"`
	E   string `json:"e"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

// parseKeySet reads a JWK set. Members that are of no use here are left out, as
// the standard asks: issuers add kinds of keys when they like. A set of which
// nothing remains is an error.
func parseKeySet(body []byte) (map[string]publicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("it is not a JWK set")
	}
	if len(set.Keys) > maxSetKeys {
		return nil, errors.New("it has too many keys")
	}
	keys := map[string]publicKey{}
	for _, raw := range set.Keys {
		var k jwk
		if json.Unmarshal(raw, &k) != nil || k.Kid == "" || len(k.Kid) > maxKeyID || k.Use != "" && k.Use != "sig" {
			continue
		}
		public, ok := k.public()
		if !ok {
			continue
		}
		if k.Alg != "" {
			// A key is for its own algorithm alone.
			if public.algs = intersection(public.algs, k.Alg); len(public.algs) == 0 {
				continue
			}
		}
		if _, taken := keys[k.Kid]; !taken {
			keys[k.Kid] = public
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key that can check a signature")
	}
	return keys, nil
}

func intersection(algs []string, alg string) []string {
	if slices.Contains(algs, alg) {
		return []string{alg}
	}
	return nil
}

func (k *jwk) public() (publicKey, bool) {
	switch k.Kty {
	case "RSA":
		return k.rsa()
	case "EC":
		return k.ec()
	case "OKP":
		if x, ok := octets(k.X); ok && k.Crv == "Ed25519" && len(x) == ed25519.PublicKeySize {
			return publicKey{ed25519.PublicKey(x), []string{"EdDSA"}}, true
		}
	}
	return publicKey{}, false
}

func (k *jwk) rsa() (publicKey, bool) {
	modulus, okN := octets(k.N)
	exponent, okE := octets(k.E)
	if !okN || !okE || len(exponent) > 4 {
		return publicKey{}, false
	}
	n, e := new(big.Int).SetBytes(modulus), new(big.Int).SetBytes(exponent).Int64()
	if bits := n.BitLen(); bits < minRSABits || bits > maxRSABits || n.Bit(0) == 0 || e < 3 || e%2 == 0 || e >= 1<<31 {
		return publicKey{}, false
	}
	return publicKey{&rsa.PublicKey{N: n, E: int(e)}, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}}, true
}

func (k *jwk) ec() (publicKey, bool) {
	curves := map[string]struct {
		curve elliptic.Curve
		alg   string
	}{"P-256": {elliptic.P256(), "ES256"}, "P-384": {elliptic.P384(), "ES384"}, "P-521": {elliptic.P521(), "ES512"}}
	c, known := curves[k.Crv]
	x, okX := octets(k.X)
	y, okY := octets(k.Y)
	if !known || !okX || !okY {
		return publicKey{}, false
	}
	if size := (c.curve.Params().BitSize + 7) / 8; len(x) != size || len(y) != size {
		return publicKey{}, false
	}
	// Refuses a point that is not on the curve.
	key, err := ecdsa.ParseUncompressedPublicKey(c.curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return publicKey{}, false
	}
	return publicKey{key, []string{c.alg}}, true
}

// octets decodes base64url, without padding or line breaks.
func octets(text string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return b, err == nil && len(b) > 0 && !strings.ContainsAny(text, "\r\n")
}
