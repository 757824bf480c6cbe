package azuretable

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
	// SkipCreate leaves out the creation of the table, which some credentials
	// do not allow.
	SkipCreate bool
	// TryTimeout bounds each exchange with the service, from the search for a
	// connection to the last byte of the answer. Zero is 15 s. The service ends
	// queries after 5 s and everything after 30 s.
	TryTimeout time.Duration
	// Transport replaces the pooled connections to the service, for tests.
	Transport policy.Transporter
}

var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{2,62}$`)

// resolve validates the options, fills in the defaults and returns the account.
func (o *Options) resolve() (azhttp.Account, error) {
	if o.TableName == "" {
		o.TableName = defaultTableName
	}
	if !tableName.MatchString(o.TableName) || strings.EqualFold(o.TableName, "tables") {
		return azhttp.Account{}, fmt.Errorf("table name %q is not 3 to 63 letters and digits: %w", o.TableName, store.ErrInvalid)
	}
	if o.TryTimeout < 0 {
		return azhttp.Account{}, fmt.Errorf("try timeout %s is negative: %w", o.TryTimeout, store.ErrInvalid)
	}
	if o.TryTimeout == 0 {
		o.TryTimeout = defaultTryTimeout
	}
	if o.Transport == nil {
		o.Transport = azhttp.NewTransport()
	}
	o.Transport = azhttp.Observe(o.Transport)
	return o.account()
}

func (o *Options) account() (azhttp.Account, error) {
	if o.ConnectionString != "" {
		if o.ServiceURL != "" || o.Credential != nil || o.SAS != "" {
			return azhttp.Account{}, fmt.Errorf("a connection string excludes service address, credential and signature: %w", store.ErrInvalid)
		}
		a, err := azhttp.ParseConnectionString(o.ConnectionString)
		if err == nil && a.TableURL == "" {
			err = fmt.Errorf("connection string names no table service: %w", store.ErrInvalid)
		}
		return a, err
	}
	if (o.Credential == nil) == (o.SAS == "") {
		return azhttp.Account{}, fmt.Errorf("a service address needs either a credential or a signature: %w", store.ErrInvalid)
	}
	at, err := azhttp.CheckURL(o.ServiceURL)
	return azhttp.Account{TableURL: at, SAS: strings.TrimPrefix(o.SAS, "?")}, err
}
