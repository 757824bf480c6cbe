package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

const (
	// fetchTimeout and maxSetBytes bound one fetch of the keys.
	fetchTimeout = 5 * time.Second
	maxSetBytes  = 256 << 10
	// fetchPause is the least time between two fetches, whatever tokens come: an
	// unknown key id is cheap to make up.
	fetchPause = 10 * time.Second
	// refreshAfter is the age from which keys are fetched anew, so that one that
	// the issuer has withdrawn ends.
	refreshAfter = 10 * time.Minute
	// staleAfter is the age from which keys that cannot be fetched anew are not
	// trusted any more.
	staleAfter = 24 * time.Hour
)

// errUnknownKey: the issuer has no key of this id.
var errUnknownKey = errors.New("unknown key id")

// jwksCache holds the keys of an issuer. They are fetched by the requests that
// need them, one at a time.
type jwksCache struct {
	url    string
	client *http.Client
	clock  clock.Source
	logger *slog.Logger
	// turn holds the right to fetch.
	turn  chan struct{}
	state atomic.Pointer[jwksState]
}

// jwksState is what is known; it is never changed, only replaced.
type jwksState struct {
	// keys by id; nil until a fetch succeeded.
	keys map[string]publicKey
	// fetched is when these keys were asked for.
	fetched clock.Instant
	// tried is when a fetch last ended, failed whether in vain.
	tried  clock.Instant
	failed bool
	ever   bool
}

func newJWKSCache(address string, transport http.RoundTripper, c clock.Source, logger *slog.Logger) *jwksCache {
	j := &jwksCache{url: address, clock: c, logger: logger, turn: make(chan struct{}, 1)}
	j.client = &http.Client{Transport: transport, Timeout: fetchTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		// Whoever may answer for the issuer is configured, not told by the network.
		return errors.New("redirects are not followed")
	}}
	j.state.Store(&jwksState{})
	return j
}

// lookup returns the key of an id; errUnknownKey, or a *WaitError if that cannot
// be found out now. Known keys are served while the issuer cannot be reached.
func (j *jwksCache) lookup(ctx context.Context, kid string) (publicKey, error) {
	s := j.state.Load()
	k, known := s.keys[kid]
	age := elapsed(s.fetched, j.clock.Now())
	if known && age < refreshAfter {
		return k, nil
	}
	if known && age < staleAfter {
		return j.refreshed(ctx, kid, k)
	}
	return j.search(ctx, kid)
}

// refreshed fetches the keys anew if nobody else does and it was not tried just
// now. It returns the key as it is then, k if that could not be found out.
func (j *jwksCache) refreshed(ctx context.Context, kid string, k publicKey) (publicKey, error) {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	default:
		return k, nil
	}
	s := j.state.Load()
	if !j.paused(s) {
		s = j.fetch(ctx)
	}
	if elapsed(s.fetched, j.clock.Now()) >= refreshAfter {
		return k, nil
	}
	if now, ok := s.keys[kid]; ok {
		return now, nil
	}
	return publicKey{}, errUnknownKey
}

// search waits for its turn and fetches the keys, unless somebody just did.
func (j *jwksCache) search(ctx context.Context, kid string) (publicKey, error) {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return publicKey{}, &WaitError{Err: ErrUnavailable, RetryAfter: time.Second}
	}
	s := j.state.Load()
	if !j.paused(s) && !s.answers(kid, j.clock.Now()) {
		s = j.fetch(ctx)
	}
	if s.answers(kid, j.clock.Now()) {
		return s.keys[kid], nil
	}
	if s.failed {
		wait := fetchPause - elapsed(s.tried, j.clock.Now())
		return publicKey{}, &WaitError{Err: ErrUnavailable, RetryAfter: max(wait, time.Second)}
	}
	return publicKey{}, errUnknownKey
}

// paused reports whether the last fetch is too recent for another one.
func (j *jwksCache) paused(s *jwksState) bool {
	return s.ever && elapsed(s.tried, j.clock.Now()) < fetchPause
}

// answers reports whether a key is known and not too old.
func (s *jwksState) answers(kid string, now clock.Instant) bool {
	_, ok := s.keys[kid]
	return ok && elapsed(s.fetched, now) < staleAfter
}

// fetch asks the issuer. A caller that goes away does not end it, since what it
// finds is for all.
func (j *jwksCache) fetch(ctx context.Context) *jwksState {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	began := j.clock.Now()
	keys, err := j.ask(ctx)
	next := *j.state.Load()
	next.ever, next.tried, next.failed = true, j.clock.Now(), err != nil
	if err == nil {
		next.keys, next.fetched = keys, began
	} else {
		j.logger.Warn("the keys of the issuer were not fetched; those known stay valid", "url", bareAddress(j.url), "error", err)
	}
	j.state.Store(&next)
	return &next
}

// bareAddress is an address for the log: without the parameters, one of which may
// be a key of whoever publishes the keys.
func bareAddress(text string) string {
	bare, _, _ := strings.Cut(text, "?")
	return bare
}

func (j *jwksCache) ask(ctx context.Context) (map[string]publicKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := j.client.Do(req)
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			// It quotes the address, in which there may be a key.
			err = failed.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSetBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxSetBytes {
		return nil, fmt.Errorf("answered more than %d bytes", maxSetBytes)
	}
	return parseKeySet(body)
}
