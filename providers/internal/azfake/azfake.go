// Package azfake plays an Azure Storage service to the tests of its providers:
// scripted answers in place of a network, for what an emulator never does.
package azfake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// ErrReset is a connection that broke after the request was on its way.
var ErrReset = errors.New("connection reset by peer")

// Seen is a request that arrived.
type Seen struct {
	Method, URL string
	Header      http.Header
	Body        string
}

// Answer is a scripted answer. Err in place of a response is a failure of the
// network; Cut makes the body end with an error.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
	Cut    bool
	Err    error
	// Do takes over when it is set.
	Do func(*http.Request) (*http.Response, error)
}

// Service answers requests from a script, the last line of which repeats. It is a
// policy.Transporter. Bodies that nobody closes fail the test.
type Service struct {
	tb testing.TB

	mu     sync.Mutex
	script []Answer
	seen   []Seen
	open   int
}

// New returns a service with a script.
func New(tb testing.TB, script ...Answer) *Service {
	s := &Service{tb: tb, script: script}
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open != 0 {
			tb.Errorf("%d response bodies were not closed", s.open)
		}
	})
	return s
}

// Seen returns the requests so far.
func (s *Service) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

// Do implements policy.Transporter.
func (s *Service) Do(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	a, err := s.next(Seen{Method: req.Method, URL: req.URL.String(), Header: canonical(req.Header), Body: body})
	if err != nil {
		return nil, err
	}
	switch {
	case a.Do != nil:
		return a.Do(req)
	case a.Err != nil:
		return nil, a.Err
	}
	return s.respond(req, a), nil
}

// canonical copies headers under the names by which Get finds them; the SDKs set
// some in lower case, which makes no difference on the wire.
func canonical(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		for _, value := range values {
			out.Add(name, value)
		}
	}
	return out
}

func drain(req *http.Request) (string, error) {
	if req.Body == nil {
		return "", nil
	}
	defer req.Body.Close()
	raw, err := io.ReadAll(req.Body)
	return string(raw), err
}

func (s *Service) next(seen Seen) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen)
	if len(s.script) == 0 {
		return Answer{}, fmt.Errorf("unexpected %s %s", seen.Method, seen.URL)
	}
	a := s.script[0]
	if len(s.script) > 1 {
		s.script = s.script[1:]
	}
	return a, nil
}

func (s *Service) respond(req *http.Request, a Answer) *http.Response {
	header := http.Header{}
	for name, value := range a.Header {
		header.Set(name, value)
	}
	var content io.Reader = strings.NewReader(a.Body)
	length := int64(len(a.Body))
	if a.Cut {
		content = io.MultiReader(content, broken{})
		length++
	}
	if header.Get("Content-Length") == "" {
		header.Set("Content-Length", fmt.Sprint(length))
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	return &http.Response{
		Status: http.StatusText(a.Status), StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: length, Request: req,
		Body: &body{Reader: content, service: s},
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type body struct {
	io.Reader
	service *Service
	once    sync.Once
}

func (b *body) Close() error {
	b.once.Do(func() {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		b.service.open--
	})
	return nil
}

// Lines joins lines as HTTP does.
func Lines(lines ...string) string {
	var b bytes.Buffer
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	return b.String()
}
