package cosmos

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/latticekv/lattice/migrate/source"
)

// explain is an error as one sentence with the way out. What it explains is not
// wrapped: callers would take a failure of the source's network for one of
// their own.
func (s *Source) explain(err error) error {
	var r *azcore.ResponseError
	var ended *source.EndedError
	switch {
	case err == nil, errors.As(err, &ended):
		return err
	case errors.As(err, &r):
		return fmt.Errorf("%s: %s", s.identity(), s.refusal(r))
	}
	return fmt.Errorf("%s: %s", s.identity(), network(err))
}

// refusal explains what the service answered.
func (s *Source) refusal(r *azcore.ResponseError) string {
	words := message(r)
	lower := strings.ToLower(words)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if !strings.Contains(lower, p) {
				return false
			}
		}
		return true
	}
	switch {
	case has("cross partition query"):
		return "the service does not answer this condition over all partitions: --query may compare properties, without aggregates, ORDER BY, DISTINCT or GROUP BY"
	case has("preview"), has("sdk", "upgrade"), has("sdk", "support"), has("client", "version", "support"), has("capabilit"):
		return fmt.Sprintf("a feature of the account keeps this client out (%s): switch it off for the migration"+
			" (portal, Settings > Features), or export the container with Azure's own tool and load the file with lattice migrate file", words)
	case has("local authorization is disabled"), has("local auth", "disabled"):
		return "the account takes no keys: leave the key out and sign in (az login, or a managed identity) with the role Cosmos DB Built-in Data Reader"
	}
	switch r.StatusCode {
	case http.StatusUnauthorized:
		return "the account refuses the key: copy it again from the portal, Settings > Keys (a read-only one will do), and check the clock of this machine"
	case http.StatusForbidden:
		if has("firewall") || has("ip address") || has("public network") || has("virtual network") {
			return "the account's firewall keeps this machine out: add its address (portal, Settings > Networking), or run inside the network"
		}
		return fmt.Sprintf("the account forbids it (%s): the identity needs the role Cosmos DB Built-in Data Reader", words)
	case http.StatusNotFound:
		return fmt.Sprintf("there is no database %q with a container %q in this account: check both names, which are case-sensitive", s.opts.Database, s.opts.Container)
	case http.StatusTooManyRequests:
		return "the service throttles: give it more time with --retry-for, or the container more request units for the migration"
	case http.StatusBadRequest:
		if s.opts.Filter != "" {
			return fmt.Sprintf("the service refuses the query (%s): check --query, a condition over c without ORDER BY", words)
		}
	case http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusGone, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return fmt.Sprintf("the service is not available (HTTP %d): run the same command again later, it goes on where it stopped", r.StatusCode)
	}
	return fmt.Sprintf("the service answers HTTP %d: %s", r.StatusCode, words)
}

// message is the first line of what the service says, without the request.
func message(r *azcore.ResponseError) string {
	var body struct{ Message string }
	if r.RawResponse != nil {
		if b, err := azruntime.Payload(r.RawResponse); err == nil {
			_ = json.Unmarshal(b, &body) // a body of another form says nothing
		}
	}
	text := body.Message
	if text == "" {
		return r.ErrorCode
	}
	text, _, _ = strings.Cut(text, "\r\n")
	text, _, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "ActivityId:")
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.TrimRight(text, " .,;")
}

// badToken: the service does not take a continuation token any more.
func badToken(err error) bool {
	var r *azcore.ResponseError
	return errors.As(err, &r) && r.StatusCode == http.StatusBadRequest && strings.Contains(strings.ToLower(message(r)), "continuation")
}

func untrusted(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &cert) || errors.As(err, &record)
}

// network explains why there was no answer.
func network(err error) string {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	var signIn *azidentity.AuthenticationFailedError
	var op *net.OpError
	switch {
	case errors.As(err, &cert):
		return fmt.Sprintf("its certificate is not trusted (%v): give the authority's certificate with --source-cacert", cert.Err)
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak HTTPS: use http:// for an emulator that does not"
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("there is no host %s: check the name of the account", dns.Name)
	case errors.As(err, &signIn), strings.Contains(err.Error(), "DefaultAzureCredential"):
		return "no key was given and no sign-in was found: give the account's key, or sign in with az login"
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("cannot be reached (%v): check the endpoint and the network", op.Err)
	case errors.Is(err, errAnswer):
		return errAnswer.Error() + ": is there something else at this address?"
	}
	return "the request failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
}
