package backend

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// authenticate says to both services by what credential the process is known
// there: what the connection string holds, the signatures in their addresses, or
// else an identity. It returns when the first signature ends, zero if none does;
// one that has ended is an error.
func (c *Config) authenticate(t *azuretable.Options, b *blob.Options) (ends time.Time, err error) {
	if c.ConnectionString != "" {
		account, err := azhttp.ParseConnectionString(c.ConnectionString)
		if err != nil {
			return time.Time{}, c.explain("open the account", err)
		}
		return checkExpiry(time.Now(), account.SAS)
	}
	table, blobs, err := c.addresses()
	if err != nil {
		return time.Time{}, err
	}
	t.ServiceURL, b.ServiceURL = table.url, blobs.url
	if table.sas != "" {
		t.SAS, b.SAS = table.sas, blobs.sas
		return checkExpiry(time.Now(), table.sas, blobs.sas)
	}
	credential, err := identity()
	t.Credential, b.Credential = credential, credential
	return time.Time{}, err
}

// identity is the one that the environment offers: a managed identity, the one
// whose client id is in AZURE_CLIENT_ID if there are several; a workload
// identity; a service principal; the one logged in at the Azure CLI.
// AZURE_TOKEN_CREDENTIALS narrows the choice. Both services share it, and so its
// tokens.
func identity() (azcore.TokenCredential, error) {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("find an identity in the environment: %w", err)
	}
	return credential, nil
}

// checkExpiry returns when the first of the signatures ends, and refuses one that
// has: the service would say no more than that it is not accepted.
func checkExpiry(now time.Time, signatures ...string) (first time.Time, err error) {
	for _, sas := range signatures {
		at, ok := azhttp.Expiry(sas)
		if ok && !now.Before(at) {
			return time.Time{}, fmt.Errorf("the shared access signature for the account ended at %s; make a new one", at.Format(time.RFC3339))
		}
		if ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, nil
}
