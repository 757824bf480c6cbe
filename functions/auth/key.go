package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const (
	// keyPrefix begins every key that is made here, so that scanners for leaked
	// secrets find it.
	keyPrefix = "lattice_"
	// keyBytes are the random bytes of a key: 256 bits.
	keyBytes = 32
	// minKeyLength is the least length of a key that somebody else made: 32
	// characters of base64url hold 192 bits, of hexadecimal 128.
	minKeyLength = 32
	maxKeyLength = 256
	// minDistinct is how many different characters such a key has at least. A
	// random one of 32 hexadecimal digits has fewer once in a million.
	minDistinct = 8
	saltBytes   = 16
	hashScheme  = "sha256"
)

// keyHash is an API key at rest: SHA-256 over a random salt and the SHA-256 of
// the key. A fast hash is right here, and a slow one wrong: keys are random
// and have 128 bits or more, so nobody can try them out, whatever one try
// costs, while each request has to hash. Slow hashes are for passwords, which
// people choose; that is why short keys are refused. The salt keeps equal keys
// of two services from being seen to be equal.
type keyHash struct {
	salt   [saltBytes]byte
	digest [sha256.Size]byte
}

// fingerprint is what of a presented key is compared: it has one length,
// however long the key is.
type fingerprint [sha256.Size]byte

func fingerprintOf(key string) fingerprint { return sha256.Sum256([]byte(key)) }

func newKeyHash(key string) keyHash {
	var h keyHash
	_, _ = rand.Read(h.salt[:]) // never fails
	h.digest = h.over(fingerprintOf(key))
	return h
}

func (h *keyHash) over(f fingerprint) [sha256.Size]byte {
	var salted [saltBytes + sha256.Size]byte
	copy(salted[:], h.salt[:])
	copy(salted[saltBytes:], f[:])
	return sha256.Sum256(salted[:])
}

// matches returns 1 if the key with this fingerprint is the one, else 0, in a
// time that depends on neither.
func (h *keyHash) matches(f fingerprint) int {
	got := h.over(f)
	return subtle.ConstantTimeCompare(got[:], h.digest[:])
}

// String returns the hash as it stands in a keys file.
func (h *keyHash) String() string {
	e := base64.RawURLEncoding
	return hashScheme + ":" + e.EncodeToString(h.salt[:]) + ":" + e.EncodeToString(h.digest[:])
}

func parseKeyHash(text string) (h keyHash, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != hashScheme {
		return h, errors.New("the hash is not of the form sha256:SALT:DIGEST")
	}
	if err := decodeExactly(h.salt[:], parts[1]); err != nil {
		return h, fmt.Errorf("the salt %w", err)
	}
	if err := decodeExactly(h.digest[:], parts[2]); err != nil {
		return h, fmt.Errorf("the digest %w", err)
	}
	return h, nil
}

func decodeExactly(to []byte, text string) error {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(to) || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("is not %d bytes in base64url", len(to))
	}
	copy(to, b)
	return nil
}

// Key is one API key as it is kept: all but the key itself.
type Key struct {
	// Name is what logs call the key: 1 to 64 of A-Z a-z 0-9 . _ -.
	Name string
	// Role is what it may do.
	Role Role
	// Trees are where. A key of the role internal has none.
	Trees Patterns
	// Limits bound its requests.
	Limits Limits
	// Expires ends it; the zero time does not.
	Expires time.Time

	hash keyHash
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// check returns what is wrong with a key.
func (k *Key) check() error {
	switch {
	case !keyName.MatchString(k.Name):
		return errors.New("a name has 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit")
	case k.Role == RoleInternal && len(k.Trees) > 0:
		return errors.New("an internal key has no trees: leave them out (- in a keys file)")
	case k.Role != RoleInternal && len(k.Trees) == 0:
		return errors.New("a key needs tree patterns; * stands for all trees")
	case k.Role == RoleNone || k.Role > RoleInternal:
		return errors.New("a role is one of reader, writer, admin, internal")
	}
	return k.Limits.check()
}

// NewKey draws a key with the properties of k and returns it, with the line for
// a keys file. The key is in no other place.
func NewKey(k Key) (secret, line string, err error) {
	random := make([]byte, keyBytes)
	_, _ = rand.Read(random) // never fails
	secret = keyPrefix + base64.RawURLEncoding.EncodeToString(random)
	line, err = HashKey(k, secret)
	if err != nil {
		return "", "", err
	}
	return secret, line, nil
}

// keyForm is what a key may be made of: what RFC 6750 lets stand in a header,
// without the dot that tells a JSON Web Token.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9_~+/-]+=*$`)

// HashKey returns the line for a keys file of a key that was made elsewhere. A
// key that somebody might guess is refused.
func HashKey(k Key, secret string) (line string, err error) {
	if err := k.check(); err != nil {
		return "", err
	}
	distinct := map[rune]bool{}
	for _, c := range secret {
		distinct[c] = true
	}
	switch {
	case len(secret) < minKeyLength:
		return "", fmt.Errorf("the key has %d characters; at least %d random ones are needed", len(secret), minKeyLength)
	case len(secret) > maxKeyLength:
		return "", fmt.Errorf("the key has %d characters, at most %d are allowed", len(secret), maxKeyLength)
	case !keyForm.MatchString(secret):
		return "", errors.New("a key has only A-Z a-z 0-9 _ ~ + / -, and = at its end")
	case len(distinct) < minDistinct:
		return "", fmt.Errorf("the key has %d different characters; it is not random", len(distinct))
	}
	k.hash = newKeyHash(secret)
	return k.line(), nil
}
