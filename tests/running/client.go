package running

import (
	"crypto/tls"
	"net/http"
	"time"
)

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
