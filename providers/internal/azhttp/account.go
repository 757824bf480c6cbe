package azhttp

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/latticekv/lattice/core/store"
)

// Account is what a connection string says.
type Account struct {
	// Name and Key are the shared key; both empty with a signature.
	Name, Key string
	// SAS is a shared access signature, without a leading '?'.
	SAS string
	// TableURL and BlobURL are the addresses of the services, without a trailing
	// slash.
	TableURL, BlobURL string
}

// The account of the emulator, published by its makers.
const (
	developmentName = "devstoreaccount1"
	developmentKey  = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// ParseConnectionString reads a connection string of Azure Storage:
// name=value pairs separated by semicolons. "UseDevelopmentStorage=true" is the
// emulator at its default ports. Errors never quote a value.
func ParseConnectionString(s string) (Account, error) {
	fields, err := splitPairs(s)
	if err != nil {
		return Account{}, err
	}
	if strings.EqualFold(fields["UseDevelopmentStorage"], "true") {
		return Account{
			Name: developmentName, Key: developmentKey,
			TableURL: "http://127.0.0.1:10002/" + developmentName,
			BlobURL:  "http://127.0.0.1:10000/" + developmentName,
		}, nil
	}
	a := Account{
		Name: fields["AccountName"], Key: fields["AccountKey"],
		SAS: strings.TrimPrefix(fields["SharedAccessSignature"], "?"),
	}
	if (a.Name == "" || a.Key == "") && a.SAS == "" {
		return Account{}, fmt.Errorf("connection string has neither account name and key nor a shared access signature: %w", store.ErrInvalid)
	}
	if a.TableURL, err = endpoint(fields, a.Name, "table", fields["TableEndpoint"]); err != nil {
		return Account{}, err
	}
	a.BlobURL, err = endpoint(fields, a.Name, "blob", fields["BlobEndpoint"])
	return a, err
}

func splitPairs(s string) (map[string]string, error) {
	fields := map[string]string{}
	for i, pair := range strings.Split(s, ";") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("part %d of the connection string has no '=': %w", i+1, store.ErrInvalid)
		}
		fields[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return fields, nil
}

// endpoint returns the explicit address of a service, or the one made of account
// and suffix; empty if the string gives neither.
func endpoint(fields map[string]string, account, service, explicit string) (string, error) {
	if explicit != "" {
		return CheckURL(explicit)
	}
	if account == "" {
		return "", nil
	}
	protocol, suffix := fields["DefaultEndpointsProtocol"], fields["EndpointSuffix"]
	if protocol == "" {
		protocol = "https"
	}
	if suffix == "" {
		suffix = "core.windows.net"
	}
	return CheckURL(protocol + "://" + account + "." + service + "." + suffix)
}

// CheckURL validates the address of a service and strips its trailing slash. A
// query is refused: a signature has its own place, in which it stays out of
// messages.
func CheckURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("service address is not an http or https URL: %w", store.ErrInvalid)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("service address of host %q holds more than scheme, host and path: %w", u.Host, store.ErrInvalid)
	}
	return strings.TrimRight(raw, "/"), nil
}
