package tree

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// A page token is base64url of
//
//	format 1 | digest of the query 16 | last key | mac 16
//
// The digest covers tree id, range and direction, so that a token continues
// only the query it came from. The mac is HMAC-SHA-256, cut to 128 bits, under
// a key that all instances of a store share.
const (
	tokenFormat = 1
	digestBytes = 16
	macBytes    = 16
	tokenMin    = 1 + digestBytes + 1 + macBytes
	// tokenMax bounds what is decoded before its signature is known to be right.
	tokenMax = 8 << 10

	tokenKeyRow   = "~page-token-key"
	tokenKeyBytes = 32
)

var tokenKeyFormat = frame.Format{Magic: "LTTK", Version: 1, MaxSize: tokenKeyBytes}

// tokenKey remembers the signing key once it is known.
type tokenKey struct{ cur atomic.Pointer[[]byte] }

// signingKey returns the key that signs tokens, and makes it on first use.
func (db *DB) signingKey(ctx context.Context) ([]byte, error) {
	if k := db.tokens.cur.Load(); k != nil {
		return *k, nil
	}
	key, err := db.findSigningKey(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the key of page tokens: %w", err)
	}
	db.tokens.cur.Store(&key)
	return key, nil
}

// findSigningKey reads the stored key, or stores a new one and reads back which
// of several first ones won.
func (db *DB) findSigningKey(ctx context.Context) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		r, err := db.table.Get(ctx, partitionRegistry, tokenKeyRow)
		if err == nil {
			return decodeSigningKey(r.Data)
		}
		if errors.Is(err, store.ErrNotFound) {
			key := make([]byte, tokenKeyBytes)
			rand.Read(key) // never fails
			_, err = db.table.Apply(ctx, partitionRegistry, []store.Op{store.Insert(tokenKeyRow, tokenKeyFormat.Seal(key))})
		}
		if err != nil && !uncertain(err) || attempt == registryAttempts {
			return nil, err
		}
		if err != nil && db.reg.pause(ctx, attempt, store.RetryAfter(err)) != nil {
			return nil, err
		}
	}
}

func decodeSigningKey(data []byte) ([]byte, error) {
	key, err := tokenKeyFormat.Open("registry row "+tokenKeyRow, data)
	if err == nil && len(key) != tokenKeyBytes {
		err = store.Corruptf("registry row %s holds %d bytes, %d expected", tokenKeyRow, len(key), tokenKeyBytes)
	}
	return key, err
}

// queryDigest condenses what a token is bound to.
func queryDigest(treeID string, q *ScanQuery) []byte {
	h := sha256.New()
	for _, part := range []string{treeID, q.Bounds.From, q.Bounds.To} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	if q.Reverse {
		h.Write([]byte{1})
	}
	return h.Sum(nil)[:digestBytes]
}

func sign(key, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(body)
	return m.Sum(nil)[:macBytes]
}

// sealToken makes the token that continues a query after a key.
func (t *Tree) sealToken(ctx context.Context, treeID string, q *ScanQuery, last string) (string, error) {
	key, err := t.db.signingKey(ctx)
	if err != nil {
		return "", err
	}
	body := append([]byte{tokenFormat}, queryDigest(treeID, q)...)
	body = append(body, last...)
	return base64.RawURLEncoding.EncodeToString(append(body, sign(key, body)...)), nil
}

// openToken returns the key after which the query of a token goes on.
func (t *Tree) openToken(ctx context.Context, treeID string, q *ScanQuery) (string, error) {
	invalid := &ArgumentError{Field: "pageToken", Reason: "is not a token of this service"}
	if len(q.Token) > tokenMax {
		return "", invalid
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(q.Token)
	if err != nil || len(raw) < tokenMin || raw[0] != tokenFormat {
		return "", invalid
	}
	key, err := t.db.signingKey(ctx)
	if err != nil {
		return "", err
	}
	body, mac := raw[:len(raw)-macBytes], raw[len(raw)-macBytes:]
	if !hmac.Equal(mac, sign(key, body)) {
		return "", invalid
	}
	if !hmac.Equal(body[1:1+digestBytes], queryDigest(treeID, q)) {
		return "", &ArgumentError{Field: "pageToken", Reason: "belongs to another query or tree"}
	}
	return string(body[1+digestBytes:]), nil
}
