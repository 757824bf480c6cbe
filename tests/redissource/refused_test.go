package redissource

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/migrate/redis"
	"github.com/latticekv/lattice/tests/engines"
)

// What a server refuses is told in one sentence with the way out, and without
// the password.
func TestRefusalsAreExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, _, ctx := start(t, "user blind on >blind-secret ~* +ping +info +exists +time", "user nobody off")
	at := func(user string) string { return "redis://" + user + server.Addr }
	for _, c := range []struct {
		name string
		o    redis.Options
		want string
	}{
		{"no password", redis.Options{URL: at("")}, "wants a password"},
		{"a wrong password", redis.Options{URL: at(":wrong-secret@")}, "refuses the user name or the password"},
		{"a user without rights", redis.Options{URL: at("blind:blind-secret@")}, "grant it with ACL SETUSER"},
		{"no such database", redis.Options{URL: server.URL, DB: 99}, "no database of that number"},
		{"no TLS there", redis.Options{URL: strings.Replace(server.URL, "redis:", "rediss:", 1)}, "use redis:// instead"},
		{"nobody there", redis.Options{URL: "redis://:nobody-secret@" + unused(t)}, "is the server running"},
		{"no socket there", redis.Options{URL: "unix://:nobody-secret@" + filepath.Join(t.TempDir(), "s")}, "is the server running"},
	} {
		s := open(t, c.o)
		_, err := s.Inspect(ctx)
		if err == nil {
			for _, e := range s.Read(ctx, nil) {
				err = e
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), server.Password) {
			t.Errorf("%s: the error holds a password: %v", c.name, err)
		}
	}
}

// unused returns an address where nobody listens.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// A user who may only read, and only some keys, can migrate those: the others
// are told one by one, since SCAN lists them.
func TestReaderOfSomeKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, c, ctx := start(t, "user reader on >reader-secret ~app:* +@read")
	must(t, c.MSet(ctx, "app:1", "1", "app:2", "2", "other", "3").Err())
	must(t, c.Expire(ctx, "app:2", time.Hour).Err())
	many := make([]any, 3000)
	for i := range many {
		many[i] = i
	}
	must(t, c.SAdd(ctx, "app:set", many...).Err())
	s := open(t, redis.Options{URL: "redis://reader:reader-secret@" + server.Addr, DB: -1})
	info, err := s.Inspect(ctx)
	must(t, err)
	if said := strings.Join(append(info.Notes, info.Lossy...), " "); !strings.Contains(said, "INFO") || !strings.Contains(said, "MULTI") {
		t.Errorf("what the user may not do is not told: %s", said)
	}
	d := readAll(t, s, nil)
	if len(d.records) != 3 || d.get(t, "app:2").Expiry.IsZero() || strings.Count(string(d.get(t, "app:set").Payload), ",") != 2999 {
		t.Errorf("records %d", len(d.records))
	}
	if f := d.faults[`key "other" of db 0`]; len(d.faults) != 1 || !strings.Contains(f.Reason, "may not read") {
		t.Errorf("faults %+v", d.faults)
	}
}

// Over TLS with an authority of one's own; and what is said when it is not
// known, or when the client forgets TLS.
func TestTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	ctx := t.Context()
	certFile, keyFile, roots := certificate(t)
	port := unused(t)
	_, number, err := net.SplitHostPort(port)
	must(t, err)
	server := engines.StartRedis(t, "tls-port "+number, "tls-auth-clients no", "tls-cert-file "+certFile, "tls-key-file "+keyFile, "tls-ca-cert-file "+certFile)
	must(t, server.Client(t).Set(ctx, "k", "v", 0).Err())
	u := &url.URL{Scheme: "rediss", User: url.UserPassword("", server.Password), Host: port}
	s := open(t, redis.Options{URL: u.String(), DB: -1, RootCAs: roots})
	if d := readAll(t, s, nil); len(d.records) != 1 {
		t.Errorf("%d records", len(d.records))
	}
	if _, err := open(t, redis.Options{URL: u.String(), DB: -1}).Inspect(ctx); err == nil || !strings.Contains(err.Error(), "not trusted") {
		t.Errorf("unknown authority: %v", err)
	}
	u.Scheme = "redis"
	if _, err := open(t, redis.Options{URL: u.String(), DB: -1}).Inspect(ctx); err == nil || !strings.Contains(err.Error(), "rediss://") {
		t.Errorf("without TLS: %v", err)
	}
}

// certificate makes one for the loopback address, signed by itself, in files
// that any user can read.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(certFile, certPEM, 0o644))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o644))
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, roots
}
