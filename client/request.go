package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// call is one request, in a form that can be sent again.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header
	// body is sent when it is not nil; an empty body is a body.
	body []byte
	// digest is of body, computed once.
	digest string
	repeat repeatable
}

func newCall(method, path string, r repeatable) *call {
	return &call{method: method, path: path, query: url.Values{}, header: http.Header{}, repeat: r}
}

// jsonBody gives the call a JSON body.
func (q *call) jsonBody(v any) error {
	b, err := encodeJSON(v)
	if err != nil {
		return fmt.Errorf("%w: encode request: %w", ErrInvalidRequest, err)
	}
	q.setBody(b, "application/json")
	return nil
}

// encodeJSON is json.Marshal without escapes for HTML, which would only
// lengthen what is sent.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (q *call) setBody(b []byte, contentType string) {
	if b == nil {
		b = []byte{}
	}
	q.body, q.digest = b, digestOf(b)
	q.header.Set("Content-Type", contentType)
}

// digestOf returns a Content-Digest field (RFC 9530).
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// request builds one attempt. A body always goes with its length and digest:
// some hosts hand on a body of unknown length as an empty one.
func (c *Client) request(ctx context.Context, q *call) (*http.Request, error) {
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%w: build request: %w", ErrInvalidRequest, err)
	}
	for k, v := range q.header {
		req.Header[k] = v
	}
	if q.body != nil {
		req.Header.Set("Content-Digest", q.digest)
	}
	req.Header.Set("User-Agent", c.agent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// send makes one attempt and hands an answer of status 2xx to read, which
// need not close the body. Every other status is an *Error.
func (c *Client) send(ctx context.Context, q *call, read func(*http.Response) error) error {
	req, err := c.request(ctx, q)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreached(err)
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return readError(resp, time.Now())
	}
	return read(resp)
}

// unreached is the error of an attempt that got no answer. A service that speaks
// TLS hangs up on a request in plain HTTP.
func (c *Client) unreached(err error) error {
	if errors.Is(err, io.EOF) && strings.HasPrefix(c.base, "http://") {
		return fmt.Errorf("reach service: %w (does it speak TLS? try https://)", err)
	}
	return fmt.Errorf("reach service: %w", err)
}

// drain reads what little is left, so that the connection can be used again,
// and closes the body.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 16<<10)
	_ = body.Close()
}

// do sends the call, again where that is safe, until read accepts an answer.
func (c *Client) do(ctx context.Context, q *call, read func(*http.Response) error) error {
	return c.repeat(ctx, q.repeat, func() error { return c.send(ctx, q, read) })
}

// doJSON sends the call and decodes the answer into out, unless that is nil.
func (c *Client) doJSON(ctx context.Context, q *call, out any) error {
	return c.do(ctx, q, func(resp *http.Response) error { return c.decode(resp, out) })
}

func (c *Client) decode(resp *http.Response, out any) error {
	if out == nil {
		return nil
	}
	b, err := c.readAll(resp)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%w: decode answer: %w", ErrProtocol, err)
	}
	return nil
}

// readAll reads a body of at most c.max bytes.
func (c *Client) readAll(resp *http.Response) ([]byte, error) {
	if resp.ContentLength > c.max {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrAnswerTooLarge, resp.ContentLength, c.max)
	}
	b, err := readBounded(resp.Body, resp.ContentLength, c.max)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return b, nil
}

// readBounded reads r to its end. hint is the expected length or negative.
func readBounded(r io.Reader, hint, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if hint > 0 {
		// bytes.Buffer wants room to see the end of its input.
		b.Grow(int(min(hint, limit)) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrAnswerTooLarge, limit)
	}
	return b.Bytes(), nil
}

// treePath returns the path of a resource under the tree. A name that no tree can
// have is not sent: a host that rewrites paths may make another one of it.
func (t *Tree) treePath(rest string) (string, error) {
	if !plainSegment(t.name) {
		return "", fmt.Errorf("%w: %q cannot name a tree", ErrInvalidRequest, t.name)
	}
	return "/v1/trees/" + t.name + rest, nil
}

// call starts a request for a resource under the tree.
func (t *Tree) call(method, rest string, r repeatable) (*call, error) {
	path, err := t.treePath(rest)
	if err != nil {
		return nil, err
	}
	return newCall(method, path, r), nil
}

// keyCall starts a request for one key. A key that means the same whatever a
// proxy does to paths stands in the path; any other goes in the query as
// base64url, where nothing decodes, cleans or cuts it.
func (t *Tree) keyCall(method, key string, r repeatable) (*call, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if plainSegment(key) {
		return t.call(method, "/keys/"+key, r)
	}
	q, err := t.call(method, "/key", r)
	if err != nil {
		return nil, err
	}
	q.query.Set("b64", base64.RawURLEncoding.EncodeToString([]byte(key)))
	return q, nil
}

// checkKey refuses what JSON would silently alter.
func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	}
	if !utf8.ValidString(key) {
		return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidKey, key)
	}
	return nil
}

// plainSegment reports whether a key or name consists of unreserved characters alone
// and is no dot segment.
func plainSegment(key string) bool {
	if strings.Trim(key, ".") == "" {
		return false
	}
	for i := range len(key) {
		c := key[i]
		alnum := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alnum && c != '-' && c != '.' && c != '_' && c != '~' {
			return false
		}
	}
	return true
}
