package azhttp

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/latticekv/lattice/core/store"
)

// Access is how a caller names an account: by a connection string, or by the
// address of the service with either a credential or a signature.
type Access struct {
	ConnectionString string
	ServiceURL       string
	Credential       azcore.TokenCredential
	SAS              string
}

// Endpoint is one service of an account and the means to authenticate there:
// exactly one of Credential, SAS, or Name and Key.
type Endpoint struct {
	// URL has no trailing slash and no query.
	URL        string
	Credential azcore.TokenCredential
	// SAS has no leading '?'.
	SAS       string
	Name, Key string
}

// Table resolves the access to the table service. ErrInvalid if it is
// contradictory or incomplete.
func (a Access) Table() (Endpoint, error) {
	return a.resolve(func(c Account) string { return c.TableURL })
}

// Blob resolves the access to the blob service, as Table does.
func (a Access) Blob() (Endpoint, error) {
	return a.resolve(func(c Account) string { return c.BlobURL })
}

func (a Access) resolve(service func(Account) string) (Endpoint, error) {
	if a.ConnectionString == "" {
		return a.direct()
	}
	if a.ServiceURL != "" || a.Credential != nil || a.SAS != "" {
		return Endpoint{}, fmt.Errorf("a connection string excludes service address, credential and signature: %w", store.ErrInvalid)
	}
	c, err := ParseConnectionString(a.ConnectionString)
	if err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{URL: service(c), SAS: c.SAS, Name: c.Name, Key: c.Key}
	if e.URL == "" {
		return Endpoint{}, fmt.Errorf("connection string does not name the service: %w", store.ErrInvalid)
	}
	if e.SAS == "" {
		return e, nil
	}
	e.Name, e.Key = "", ""
	return e, CheckSAS(e.SAS)
}

func (a Access) direct() (Endpoint, error) {
	if (a.Credential == nil) == (a.SAS == "") {
		return Endpoint{}, fmt.Errorf("a service address needs either a credential or a signature: %w", store.ErrInvalid)
	}
	at, err := CheckURL(a.ServiceURL)
	if err != nil || a.Credential != nil {
		return Endpoint{URL: at, Credential: a.Credential}, err
	}
	sas := strings.TrimPrefix(a.SAS, "?")
	return Endpoint{URL: at, SAS: sas}, CheckSAS(sas)
}

// ClientOptions are those of every client of an SDK: no retries of its own, since
// it would repeat conditional writes, whose second try fails on the success of
// the first; and a transport that Watch can observe, by default a new one.
func ClientOptions(t policy.Transporter) policy.ClientOptions {
	if t == nil {
		t = NewTransport()
	}
	return policy.ClientOptions{
		Transport: Observe(t),
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: "lattice"},
	}
}

// CheckTimeout returns the time-out to use for an option: the default for zero.
func CheckTimeout(d, otherwise time.Duration) (time.Duration, error) {
	switch {
	case d < 0:
		return 0, fmt.Errorf("try timeout %s is negative: %w", d, store.ErrInvalid)
	case d == 0:
		return otherwise, nil
	}
	return d, nil
}
