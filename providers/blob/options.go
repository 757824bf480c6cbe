package blob

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

const (
	defaultContainer  = "lattice"
	defaultTryTimeout = 30 * time.Second
)

// Options says which container to open and how to authenticate: a
// ConnectionString, or a ServiceURL with either a Credential or a SAS.
type Options struct {
	// ConnectionString of the account. "UseDevelopmentStorage=true" is the
	// emulator at its default ports.
	ConnectionString string
	// ServiceURL is the address of the blob service, such as
	// https://account.blob.core.windows.net.
	ServiceURL string
	// Credential is an identity with a data role on the blobs of the account.
	Credential azcore.TokenCredential
	// SAS is a shared access signature, the query part of its URL.
	SAS string
	// Container holds all blobs: 3 to 63 lower-case letters, digits and single
	// dashes. Empty is "lattice".
	Container string
	// Lazy opens the container without asking the service anything: one that does
	// not exist reads as empty, and the first write creates it.
	Lazy bool
	// Fixed says that only Make creates the container; to everything else one that
	// is missing is a loss.
	Fixed bool
	// TryTimeout bounds each exchange with the service, from the search for a
	// connection to the last byte of the answer; exchanges of large bodies get a
	// second more for each MiB. Zero is 30 s.
	TryTimeout time.Duration
	// Transport replaces the pooled connections to the service, for tests.
	Transport policy.Transporter
}

var containerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

// resolve validates the options, fills in the defaults and returns the service.
func (o *Options) resolve() (azhttp.Endpoint, error) {
	if o.Container == "" {
		o.Container = defaultContainer
	}
	if !containerName.MatchString(o.Container) || strings.Contains(o.Container, "--") {
		return azhttp.Endpoint{}, fmt.Errorf("container name %q is not 3 to 63 lower-case letters, digits and single dashes: %w", o.Container, store.ErrInvalid)
	}
	timeout, err := azhttp.CheckTimeout(o.TryTimeout, defaultTryTimeout)
	if err != nil {
		return azhttp.Endpoint{}, err
	}
	o.TryTimeout = timeout
	return azhttp.Access{
		ConnectionString: o.ConnectionString,
		ServiceURL:       o.ServiceURL, Credential: o.Credential, SAS: o.SAS,
	}.Blob()
}
