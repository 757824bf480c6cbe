package azuretable

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/latticekv/lattice/core/store"
)

// sharedKey signs requests with the account's key by the "Shared Key Lite for
// the Table service" scheme of "Authorize with Shared Key" in the Azure Storage
// REST reference: an HMAC-SHA256 over the date and the resource's path. The
// policy of aztables that does the same is not exported.
type sharedKey struct {
	account string
	key     []byte
}

func newSharedKey(account, key string) (*sharedKey, error) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		// The cause would quote where in the key it stumbled.
		return nil, fmt.Errorf("account key is not base64: %w", store.ErrInvalid)
	}
	return &sharedKey{account: account, key: raw}, nil
}

// Do implements policy.Policy.
func (k *sharedKey) Do(req *policy.Request) (*http.Response, error) {
	raw := req.Raw()
	date := time.Now().UTC().Format(http.TimeFormat)
	raw.Header.Set("x-ms-date", date)
	raw.Header.Set("Authorization", "SharedKeyLite "+k.account+":"+k.signature(date, raw))
	return req.Next()
}

// signature covers the path as it stands on the wire. None of our requests has
// the comp parameter, the one part of a query that would be signed too.
func (k *sharedKey) signature(date string, r *http.Request) string {
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte(date + "\n/" + k.account + r.URL.EscapedPath()))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
