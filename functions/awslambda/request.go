package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

// errDecoded refuses a path of an HTTP API that has a percent sign. The gateway
// decodes paths before it tells them, so the sign may be the caller's own or the
// rest of an encoding: reading it either way would take one key for another.
var errDecoded = errors.New("path: behind an HTTP API one with a percent sign is ambiguous, because the gateway decodes paths; " +
	"give the key as /v1/trees/{tree}/key?b64= in base64url, or call the function URL")

// toRequest rebuilds the request that an event tells of.
func (f *function) toRequest(ctx context.Context, e *events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	if strings.Contains(e.RawPath, "%") && !throughURL(e) {
		return nil, errDecoded
	}
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return nil, errors.New("the body is not the base64 that the event says it is")
		}
	}
	r, err := http.NewRequestWithContext(ctx, e.RequestContext.HTTP.Method, "http://lattice.invalid/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("method %q is not one", e.RequestContext.HTTP.Method)
	}
	r.URL = requestURL(f.ownPath(e), e.RawQueryString)
	r.RequestURI = r.URL.RequestURI()
	// Headers that were sent several times arrive as one, joined by commas.
	for name, value := range e.Headers {
		r.Header.Set(name, value)
	}
	if len(e.Cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	if id := e.RequestContext.RequestID; id != "" && r.Header.Get("X-Request-Id") == "" {
		// The platform's logs have it as well.
		r.Header.Set("X-Request-Id", id)
	}
	r.Host = r.Header.Get("Host")
	if r.Host == "" {
		r.Host = e.RequestContext.DomainName
	}
	r.Header.Del("Host")
	r.RemoteAddr = net.JoinHostPort(e.RequestContext.HTTP.SourceIP, "0")
	return r, nil
}

// ownPath is the path as this service knows it: without the base path that the
// settings name, and without the stage, which an HTTP API puts in front unless
// it is $default.
func (f *function) ownPath(e *events.APIGatewayV2HTTPRequest) string {
	path := e.RawPath
	if stage := e.RequestContext.Stage; stage != "" && stage != "$default" {
		path = cutSegments(path, "/"+stage)
	}
	if f.settings.basePath != "" {
		path = cutSegments(path, f.settings.basePath)
	}
	return path
}

// cutSegments cuts whole segments off the front of a path, if they are there.
func cutSegments(path, prefix string) string {
	if rest, ok := strings.CutPrefix(path, prefix); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// requestURL keeps the path as the caller encoded it. What is no valid encoding
// is taken literally.
func requestURL(rawPath, rawQuery string) *url.URL {
	if !strings.HasPrefix(rawPath, "/") {
		rawPath = "/" + rawPath
	}
	u := &url.URL{Path: rawPath, RawQuery: rawQuery}
	if decoded, err := url.PathUnescape(rawPath); err == nil {
		u.Path, u.RawPath = decoded, rawPath
	}
	return u
}

// throughURL reports whether a request came through a function URL, whose
// domain is always of this form; HTTP APIs have other ones.
func throughURL(e *events.APIGatewayV2HTTPRequest) bool {
	return strings.Contains(e.RequestContext.DomainName, ".lambda-url.")
}
