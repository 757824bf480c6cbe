package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultMaxAnswerBytes bounds one value, JSON document or stream line: a
// value of 64 MiB in base64 fits with room to spare.
const DefaultMaxAnswerBytes = 256 << 20

// Options configure a Client. The zero value is usable.
type Options struct {
	// Token is sent as a bearer token; empty sends none. It appears in no
	// error and no log.
	Token string
	// HTTPClient carries the requests; nil uses one with a pool of its own
	// that keeps up to 256 idle connections to the service.
	HTTPClient *http.Client
	// RootCAs are the authorities to trust; nil trusts the system's. It does not
	// go with an HTTPClient, which has its own.
	RootCAs *x509.CertPool
	// UserAgent names the program; empty is "lattice-client".
	UserAgent string
	// Retry says how often and how patiently calls are repeated.
	Retry RetryPolicy
	// MaxAnswerBytes bounds what is read into memory for one value, one JSON
	// document or one line of a stream; 0 is DefaultMaxAnswerBytes.
	MaxAnswerBytes int64
}

// Client is a connection pool to one service.
type Client struct {
	base  string
	http  *http.Client
	token string
	agent string
	retry RetryPolicy
	max   int64
}

// New returns a client of the service at baseURL, such as
// "https://lattice.example.com" or "http://127.0.0.1:8080/prefix". It sends
// nothing. The URL must be http or https, without credentials, query or
// fragment.
func New(baseURL string, o Options) (*Client, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	if o.MaxAnswerBytes < 0 {
		return nil, fmt.Errorf("%w: MaxAnswerBytes is negative", ErrInvalidRequest)
	}
	retry, err := o.Retry.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, token: o.Token, agent: o.UserAgent, retry: retry, max: o.MaxAnswerBytes}
	if c.agent == "" {
		c.agent = "lattice-client"
	}
	if c.max == 0 {
		c.max = DefaultMaxAnswerBytes
	}
	if o.RootCAs != nil && o.HTTPClient != nil {
		return nil, fmt.Errorf("%w: RootCAs and HTTPClient exclude each other", ErrInvalidRequest)
	}
	c.http = httpClient(o.HTTPClient, o.RootCAs)
	return c, nil
}

func parseBase(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The text of a parse error repeats the URL, which may hold a password.
		return "", fmt.Errorf("%w: the server's URL cannot be parsed", ErrInvalidRequest)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		err = errors.New("must start with http:// or https://")
	case u.Host == "":
		err = errors.New("names no host")
	case u.User != nil:
		err = errors.New("must not hold credentials; use a token")
	case u.RawQuery != "" || u.Fragment != "":
		err = errors.New("must have no query and no fragment")
	}
	if err != nil {
		return "", fmt.Errorf("%w: the server's URL %w", ErrInvalidRequest, err)
	}
	return strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), nil
}

// httpClient copies the caller's client, or makes one, and turns off
// redirects: following one would turn a PUT into a GET that looks like success.
func httpClient(given *http.Client, roots *x509.CertPool) *http.Client {
	h := http.Client{Transport: newTransport(roots)}
	if given != nil {
		h = *given
	}
	if h.CheckRedirect == nil {
		h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &h
}

// newTransport has a deep idle pool: with the default of two connections a
// host, a busy client opens and closes one for nearly every request and runs
// out of ports.
func newTransport(roots *x509.CertPool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 256
	t.IdleConnTimeout = 90 * time.Second
	// Hosts cut an answer off after 230 s; nothing is worth waiting longer.
	t.ResponseHeaderTimeout = 4 * time.Minute
	// The service may be slow to refuse a load; a host that does not know this
	// header costs the wait once a load.
	t.ExpectContinueTimeout = 5 * time.Second
	// A dead HTTP/2 connection is found by pings, not by hanging calls.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

// CloseIdle closes the idle connections.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Tree returns a handle of the tree of that name. It sends nothing; a name the
// service does not allow is refused by the first call.
func (c *Client) Tree(name string) *Tree { return &Tree{c: c, name: name} }

// Tree is a handle of one tree.
type Tree struct {
	c    *Client
	name string
}

// Name returns the name of the tree.
func (t *Tree) Name() string { return t.name }
