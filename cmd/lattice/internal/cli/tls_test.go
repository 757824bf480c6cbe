package cli

import (
	"encoding/pem"
	"net/http/httptest"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

// secured is a tool and a service with a certificate of its own, and the file
// that holds it.
func secured(t *testing.T) (l *tool, certificate string) {
	t.Helper()
	l, _ = fake(t)
	srv := httptest.NewTLSServer(clienttest.New())
	t.Cleanup(srv.Close)
	l.url = srv.URL
	return l, file(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
}

func TestOwnCertificateIsTrustedWhenGiven(t *testing.T) {
	l, cert := secured(t)
	l.ok("", "--cacert", cert, "set", "t", "k", "v")
	l.ok(ndjson(3), "--cacert", cert, "import", "t")
	t.Setenv("LATTICE_CACERT", cert)
	l.is(l.ok("", "get", "t", "k"), "v")
}

func TestStrangeCertificateIsRefusedWithAdvice(t *testing.T) {
	l, _ := secured(t)
	l.fails(ExitFailed, "give it with --cacert", "", "get", "t", "k")
	l.fails(ExitFailed, "give it with --cacert", ndjson(3), "import", "t")
	_, other := secured(t)
	l.fails(ExitUsage, "no certificate", "", "--cacert", file(t, "x.pem", "x"), "get", "t", "k")
	l.fails(ExitFailed, "no such file", "", "--cacert", "/nonexistent", "get", "t", "k")
	// The certificates of two test servers are the same; the name is not.
	l.url = "https://localhost" + l.url[len("https://127.0.0.1"):]
	l.fails(ExitFailed, "not trusted", "", "--cacert", other, "get", "t", "k")
}

func TestSchemeIsExplained(t *testing.T) {
	l, _ := fake(t)
	l.url = "https" + l.url[len("http"):]
	l.fails(ExitFailed, "does not speak HTTPS", "", "get", "t", "k")
	l.fails(ExitFailed, "does not speak HTTPS", ndjson(3), "import", "t", "--retry-for", "1h")
}
