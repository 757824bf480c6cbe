package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// healthTimeout is how long an answer may take that counts as a sign of life. It
// is less than what container hosts allow a health check unless told otherwise.
const healthTimeout = 5 * time.Second

// health asks the service that another process serves by the same settings
// whether it answers. A storage that is away is no reason to restart a service,
// so it does not ask for more (see /readyz). No credential is sent, so whatever
// certificate is there will do.
func health(ctx context.Context, s *settings, _ io.Writer) error {
	host, port, err := net.SplitHostPort(s.Listen)
	if err != nil || port == "0" {
		return fmt.Errorf("ask for health: --listen %s names no port at which a service could be", s.Listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // by number: an image need not know names
	}
	base := "http://"
	if s.TLS || s.TLSCert != "" {
		base = "https://"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+net.JoinHostPort(host, port)+"/healthz", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}}}
	resp, err := client.Do(req)
	if errors.Is(err, io.EOF) && base == "http://" {
		return fmt.Errorf("ask for health: %w (does it speak TLS? try --tls, or --tls-cert and --tls-key, as the service has them)", err)
	}
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return errors.Join(fmt.Errorf("ask for health: status %d %s", resp.StatusCode, strings.TrimSpace(string(text))), err)
}
