package azuretable

import (
	"context"
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
	defaultTableName  = "lattice"
	defaultTryTimeout = 15 * time.Second
)

// Options says which table to open and how to authenticate: a ConnectionString,
// or a ServiceURL with either a Credential or a SAS.
type Options struct {
	// ConnectionString of the account. "UseDevelopmentStorage=true" is the
	// emulator at its default ports.
	ConnectionString string
	// ServiceURL is the address of the table service, such as
	// https://account.table.core.windows.net.
	ServiceURL string
	// Credential is an identity with a data role on the tables of the account.
	Credential azcore.TokenCredential
	// SAS is a shared access signature, the query part of its URL.
	SAS string
	// TableName holds all rows: 3 to 63 letters and digits, a letter first.
	// Empty is "lattice".
	TableName string
	// Lazy opens the table without asking the service anything: one that does not
	// exist reads as empty, and the first write creates it.
	Lazy bool
	// Unused, unless nil, is asked where the table is missing, and refuses if
	// something else shows that it held data. Prepare, unless nil, is done before
	// the table is created.
	Unused, Prepare func(ctx context.Context) error
	// TryTimeout bounds each exchange with the service, from the search for a
	// connection to the last byte of the answer. Zero is 15 s. The service ends
	// queries after 5 s and everything after 30 s.
	TryTimeout time.Duration
	// Transport replaces the pooled connections to the service, for tests.
	Transport policy.Transporter
}

var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{2,62}$`)

// resolve validates the options, fills in the defaults and returns the service.
func (o *Options) resolve() (azhttp.Endpoint, error) {
	if o.TableName == "" {
		o.TableName = defaultTableName
	}
	if !tableName.MatchString(o.TableName) || strings.EqualFold(o.TableName, "tables") {
		return azhttp.Endpoint{}, fmt.Errorf("table name %q is not 3 to 63 letters and digits: %w", o.TableName, store.ErrInvalid)
	}
	timeout, err := azhttp.CheckTimeout(o.TryTimeout, defaultTryTimeout)
	if err != nil {
		return azhttp.Endpoint{}, err
	}
	o.TryTimeout = timeout
	return azhttp.Access{
		ConnectionString: o.ConnectionString,
		ServiceURL:       o.ServiceURL, Credential: o.Credential, SAS: o.SAS,
	}.Table()
}
