package main

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestListenExplainsAPortInUse(t *testing.T) {
	first, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = listen(first.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--listen") {
		t.Fatalf("got %v, want advice", err)
	}
}

func TestListenRefusesWhatIsNoAddress(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "127.0.0.1:http:1", "127.0.0.1:99999"} {
		if l, err := listen(address); err == nil {
			l.Close()
			t.Errorf("%q was accepted", address)
		}
	}
}

func TestLoopbackIsToldApart(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": true, "0.0.0.0": false, "::": false, "192.0.2.1": false} {
		if got := loopback(&net.TCPAddr{IP: net.ParseIP(address), Port: 1}); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestBaseURLCanBeCalled(t *testing.T) {
	cases := []struct {
		ip   string
		cert *tls.Certificate
		want string
	}{
		{"127.0.0.1", nil, "http://127.0.0.1:80"}, {"0.0.0.0", nil, "http://127.0.0.1:80"},
		{"::", &tls.Certificate{}, "https://127.0.0.1:80"}, {"::1", nil, "http://[::1]:80"}, {"192.0.2.1", nil, "http://192.0.2.1:80"},
	}
	for _, c := range cases {
		if got := baseURL(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 80}, c.cert); got != c.want {
			t.Errorf("%s gave %s, want %s", c.ip, got, c.want)
		}
	}
}

func TestCertifiedHostsIncludeTheListenAddress(t *testing.T) {
	for listen, want := range map[string]string{"box.example:1": "box.example", "192.0.2.7:1": "192.0.2.7", "[2001:db8::1]:1": "2001:db8::1"} {
		if got := certifiedHosts(listen); !slices.Contains(got, want) || !slices.Contains(got, "localhost") {
			t.Errorf("%s gave %v", listen, got)
		}
	}
	for _, listen := range []string{":8080", "0.0.0.0:1", "[::]:1", "localhost:1"} {
		got := certifiedHosts(listen)
		if slices.Contains(got, "") || slices.Contains(got, "0.0.0.0") || slices.Contains(got, "::") || len(got) > 4 {
			t.Errorf("%s gave %v", listen, got)
		}
	}
}

func TestCertificateOfFiles(t *testing.T) {
	dir := t.TempDir()
	made := mustSelfSigned(t, dir, []string{"public.example"}, time.Now())
	s := &settings{flags: flags{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem")}}
	got, err := certificate(s)
	if err != nil || !slices.Equal(got.Certificate[0], made.Certificate[0]) {
		t.Fatalf("another certificate was read: %v", err)
	}
	s.TLSKey = filepath.Join(dir, "missing.pem")
	if _, err := certificate(s); err == nil || !strings.Contains(err.Error(), "missing.pem") {
		t.Fatalf("got %v, want an error that names the file", err)
	}
}

func TestCertificateIsKeptInTheDataFolder(t *testing.T) {
	s := mustParse(t, "--tls", "--data-dir="+filepath.Join(t.TempDir(), "new"))
	if cert, err := certificate(s); err != nil || cert == nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.DataDir, "tls", "key.pem")); err != nil {
		t.Fatal(err)
	}
	s.TLS = false
	if cert, err := certificate(s); err != nil || cert != nil {
		t.Fatalf("plain HTTP got a certificate: %v", err)
	}
}
