package running

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// startTimeout bounds the wait for the first answer.
const startTimeout = 60 * time.Second

// Service is a running cmd/local.
type Service struct {
	*Process
	// URL is where it answers, without a trailing slash.
	URL string
	// Client trusts whatever certificate it has.
	Client *http.Client
}

// Start runs cmd/local on a free port with the arguments and, on top of an
// environment without settings of the service, the variables given, and returns
// when it is ready. The test kills it when it ends.
func Start(t testing.TB, env []string, args ...string) *Service {
	t.Helper()
	s, err := Launch(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Launch is Start for a service that may refuse to start: its output is in the
// error then.
func Launch(t testing.TB, env []string, args ...string) (*Service, error) {
	t.Helper()
	p, err := Run(t, env, Build(t, "cmd/local"), append([]string{"--listen=127.0.0.1:0"}, args...)...)
	if err != nil {
		return nil, err
	}
	s := &Service{Process: p, Client: newClient()}
	if err := s.await(t.Context()); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

func (s *Service) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case s.URL = <-s.output.ready:
	case <-s.exited:
		return fmt.Errorf("the service ended with %s:\n%s", s.cmd.ProcessState, s.Output())
	case <-ctx.Done():
		return fmt.Errorf("the service did not start: %w:\n%s", ctx.Err(), s.Output())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return fmt.Errorf("the service does not answer: %w:\n%s", err, s.Output())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the service is not ready: %d %s", resp.StatusCode, body)
	}
	return err
}

// newClient returns a client that trusts any certificate: tests serve their
// own.
func newClient() *http.Client {
	return &http.Client{
		Timeout: 2 * time.Minute,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 256,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		},
	}
}
