package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var certificateHosts = []string{"localhost", "127.0.0.1", "::1", "box.example"}

func mustSelfSigned(t *testing.T, dir string, hosts []string, now time.Time) tls.Certificate {
	t.Helper()
	cert, err := selfSigned(dir, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}

func TestSelfSignedCertificateServesItsHosts(t *testing.T) {
	now := time.Now()
	cert := mustSelfSigned(t, filepath.Join(t.TempDir(), "a", "tls"), certificateHosts, now)
	roots := x509.NewCertPool()
	roots.AddCert(cert.Leaf)
	for _, host := range certificateHosts {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "elsewhere.example", Roots: roots}); err == nil {
		t.Error("it also serves a host that was not asked for")
	}
}

func TestSelfSignedCertificateIsKept(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first := mustSelfSigned(t, dir, certificateHosts, now)
	again := mustSelfSigned(t, dir, certificateHosts[:2], now.Add(24*time.Hour))
	if !bytes.Equal(first.Certificate[0], again.Certificate[0]) {
		t.Fatal("a certificate that still serves was replaced")
	}
	for _, name := range []string{"cert.pem", "key.pem"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", name, info.Mode(), err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%d files are left, %v; want 2", len(files), err)
	}
}

func TestSelfSignedCertificateIsRenewed(t *testing.T) {
	now := time.Now()
	cases := map[string]struct {
		hosts []string
		at    time.Time
	}{
		"another host":     {append([]string{"new.example"}, certificateHosts...), now},
		"soon to expire":   {certificateHosts, now.Add(certificateLife - renewBefore + time.Minute)},
		"expired":          {certificateHosts, now.Add(2 * certificateLife)},
		"not yet begun":    {certificateHosts, now.Add(-48 * time.Hour)},
		"the key was lost": {certificateHosts, now},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := mustSelfSigned(t, dir, certificateHosts, now)
			if name == "the key was lost" {
				if err := os.Remove(filepath.Join(dir, "key.pem")); err != nil {
					t.Fatal(err)
				}
			}
			renewed := mustSelfSigned(t, dir, c.hosts, c.at)
			if bytes.Equal(first.Certificate[0], renewed.Certificate[0]) {
				t.Fatal("the old certificate is still in use")
			}
			if !serves(renewed.Leaf, c.hosts, c.at) {
				t.Fatal("the new certificate does not serve")
			}
		})
	}
}

func TestDamagedCertificateIsRefused(t *testing.T) {
	dir := t.TempDir()
	mustSelfSigned(t, dir, certificateHosts, time.Now())
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := selfSigned(dir, certificateHosts, time.Now()); err == nil {
		t.Fatal("a damaged key was replaced without a word")
	}
}

func TestCertificateNeedsAPlaceToStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := selfSigned(filepath.Join(file, "tls"), certificateHosts, time.Now()); err == nil {
		t.Fatal("no error for a folder that cannot be made")
	}
}
