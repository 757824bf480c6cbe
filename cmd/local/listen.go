package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// listen opens the address to serve on. Its errors say what to do.
func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another program; choose another address with --listen: %w", address, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s may not be used; ports below 1024 need privileges: %w", address, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// loopback reports whether only this machine can reach the address.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// certificate returns the certificate to serve with, nil for plain HTTP.
func certificate(s *settings) (*tls.Certificate, error) {
	switch {
	case s.TLSCert != "":
		cert, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		return &cert, nil
	case s.TLS:
		cert, err := selfSigned(filepath.Join(s.DataDir, "tls"), certifiedHosts(s.Listen), time.Now())
		if err != nil {
			return nil, err
		}
		return &cert, nil
	}
	return nil, nil
}

// certifiedHosts are the names under which the service is called: those of
// this machine, and the one it listens on.
func certifiedHosts(listen string) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	if err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	return hosts
}

// baseURL is how a user of this machine calls the service.
func baseURL(a net.Addr, cert *tls.Certificate) string {
	scheme := "http"
	if cert != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return scheme + "://" + a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
