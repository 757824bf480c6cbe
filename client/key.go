package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Entry is one live key.
type Entry struct {
	Key   string
	Value []byte
	// Version is opaque; it is what IfVersion takes.
	Version string
	// ExpiresAt is when the key vanishes; zero is never.
	ExpiresAt time.Time
	// ContentType is known only from calls for a single key.
	ContentType string
}

// ReadOptions qualify a read.
type ReadOptions struct {
	// MaxAge accepts an answer that was current at most so long ago, in whole
	// seconds. Zero demands a linearizable answer.
	MaxAge time.Duration
	// IfNoneMatch is a version that the caller has. While it is current, Get
	// answers ErrNotModified.
	IfNoneMatch string
}

// ErrNotModified: the key still has the version of ReadOptions.IfNoneMatch.
const ErrNotModified = Code("not_modified")

func (o ReadOptions) apply(q *call) error {
	if o.MaxAge < 0 {
		return fmt.Errorf("%w: MaxAge is negative", ErrInvalidRequest)
	}
	if s := int64(o.MaxAge / time.Second); s > 0 {
		q.header.Set("Cache-Control", fmt.Sprintf("max-age=%d", s))
	}
	if o.IfNoneMatch != "" {
		q.header.Set("If-None-Match", quote(o.IfNoneMatch))
	}
	return nil
}

func quote(version string) string { return `"` + version + `"` }

// Get returns one key with its value, checked against its digest when the
// service sends one. An absent key is ErrKeyNotFound.
func (t *Tree) Get(ctx context.Context, key string, o ReadOptions) (Entry, error) {
	q, err := t.keyCall(http.MethodGet, key, repeatAlways)
	if err != nil {
		return Entry{}, err
	}
	if err := o.apply(q); err != nil {
		return Entry{}, err
	}
	q.header.Set("Want-Content-Digest", "sha-256=10")
	// The digest covers the body as it is encoded, so ask for no encoding.
	q.header.Set("Accept-Encoding", "identity")
	var e Entry
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		e, err = t.c.readEntry(key, resp)
		return err
	})
	return e, notModified(err)
}

// notModified names an answer of 304.
func notModified(err error) error {
	if e, ok := err.(*Error); ok && e.Status == http.StatusNotModified {
		e.Code = ErrNotModified
	}
	return err
}

// Stat is Get without the value, which is nil. An absent key and an unknown
// tree are both ErrKeyNotFound, for the answer has no body to tell them apart.
func (t *Tree) Stat(ctx context.Context, key string, o ReadOptions) (Entry, error) {
	q, err := t.keyCall(http.MethodHead, key, repeatAlways)
	if err != nil {
		return Entry{}, err
	}
	if err := o.apply(q); err != nil {
		return Entry{}, err
	}
	var e Entry
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		e, err = entryOf(key, resp.Header)
		return err
	})
	if a, ok := err.(*Error); ok && a.Status == http.StatusNotFound {
		a.Code = ErrKeyNotFound
	}
	return e, notModified(err)
}

// entryOf reads what the headers say about a key.
func entryOf(key string, h http.Header) (Entry, error) {
	e := Entry{Key: key, Version: version(h), ContentType: h.Get("Content-Type")}
	if e.Version == "" {
		return Entry{}, fmt.Errorf("%w: a value without ETag", ErrProtocol)
	}
	if s := h.Get("Lattice-Expires-At"); s != "" {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return Entry{}, fmt.Errorf("%w: parse Lattice-Expires-At: %w", ErrProtocol, err)
		}
		e.ExpiresAt = at
	}
	return e, nil
}

func (c *Client) readEntry(key string, resp *http.Response) (Entry, error) {
	e, err := entryOf(key, resp.Header)
	if err != nil {
		return Entry{}, err
	}
	if e.Value, err = c.readAll(resp); err != nil {
		return Entry{}, err
	}
	if e.Value == nil {
		e.Value = []byte{}
	}
	if want := sha256Field(resp.Header.Get("Content-Digest")); want != "" && want != digestOf(e.Value) {
		return Entry{}, fmt.Errorf("%w: the value of %q", ErrDigest, key)
	}
	return e, nil
}

// sha256Field returns the sha-256 member of a Content-Digest field, or "".
func sha256Field(field string) string {
	for member := range strings.SplitSeq(field, ",") {
		member = strings.TrimSpace(member)
		if strings.HasPrefix(member, "sha-256=") {
			return member
		}
	}
	return ""
}

// SetOptions qualify a write.
type SetOptions struct {
	// ContentType is stored with the value; empty is application/octet-stream.
	ContentType string
	// TTL is the time to live, kept in milliseconds; zero is for ever.
	TTL time.Duration
	// IfVersion writes only over that version, IfAbsent only if there is no
	// live key; a failed condition is ErrVersionMismatch. At most one of them.
	IfVersion string
	IfAbsent  bool
}

func (o SetOptions) apply(q *call) error {
	switch {
	case o.TTL < 0:
		return fmt.Errorf("%w: TTL is negative", ErrInvalidRequest)
	case o.IfAbsent && o.IfVersion != "":
		return fmt.Errorf("%w: IfAbsent and IfVersion exclude each other", ErrInvalidRequest)
	case o.IfAbsent:
		q.header.Set("If-None-Match", "*")
	case o.IfVersion != "":
		q.header.Set("If-Match", quote(o.IfVersion))
	}
	if o.TTL > 0 {
		q.query.Set("ttl", o.TTL.String())
	}
	return nil
}

func (t *Tree) setCall(key string, value []byte, o SetOptions) (*call, error) {
	q, err := t.keyCall(http.MethodPut, key, repeatAlways)
	if err != nil {
		return nil, err
	}
	if err := o.apply(q); err != nil {
		return nil, err
	}
	if o.IfAbsent || o.IfVersion != "" {
		q.repeat = repeatRefused
	}
	contentType := o.ContentType
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	q.setBody(value, contentType)
	return q, nil
}

// SetResult answers a Set.
type SetResult struct {
	// Version of the new value.
	Version string
	// Created says that the key was absent before. After a repetition that
	// followed a lost reply it is false even if this call created the key.
	Created bool
}

// Set writes one key and returns when it is durable.
func (t *Tree) Set(ctx context.Context, key string, value []byte, o SetOptions) (SetResult, error) {
	q, err := t.setCall(key, value, o)
	if err != nil {
		return SetResult{}, err
	}
	var r SetResult
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		r = SetResult{Version: version(resp.Header), Created: resp.StatusCode == http.StatusCreated}
		if r.Version == "" {
			return fmt.Errorf("%w: a write without ETag", ErrProtocol)
		}
		return nil
	})
	return r, err
}

// GetOrSet writes value only if the key is absent. It returns the entry that
// is there afterwards and whether this call wrote it.
func (t *Tree) GetOrSet(ctx context.Context, key string, value []byte, o SetOptions) (Entry, bool, error) {
	if o.IfAbsent || o.IfVersion != "" {
		return Entry{}, false, fmt.Errorf("%w: GetOrSet takes no condition", ErrInvalidRequest)
	}
	q, err := t.setCall(key, value, o)
	if err != nil {
		return Entry{}, false, err
	}
	q.query.Set("mode", "get-or-set")
	q.repeat = repeatRefused
	var e Entry
	var created bool
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		created = resp.StatusCode == http.StatusCreated
		if created {
			e = Entry{Key: key, Value: value, Version: version(resp.Header), ContentType: q.header.Get("Content-Type")}
			return nil
		}
		e, err = t.c.readEntry(key, resp)
		return err
	})
	return e, created, err
}

// DeleteOptions qualify a Delete.
type DeleteOptions struct {
	// IfVersion deletes only that version, else ErrVersionMismatch.
	IfVersion string
}

// Delete removes one key and reports whether it existed. Deleting an absent
// key is no error.
func (t *Tree) Delete(ctx context.Context, key string, o DeleteOptions) (bool, error) {
	q, err := t.keyCall(http.MethodDelete, key, repeatAlways)
	if err != nil {
		return false, err
	}
	if o.IfVersion != "" {
		q.header.Set("If-Match", quote(o.IfVersion))
		q.repeat = repeatRefused
	}
	var existed bool
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		existed = resp.Header.Get("Lattice-Existed") == "true"
		return nil
	})
	return existed, err
}

// jsonEntry is an entry as JSON answers carry it.
type jsonEntry struct {
	Key       string     `json:"key"`
	Value     []byte     `json:"value"`
	Version   string     `json:"version"`
	ExpiresAt *time.Time `json:"expiresAt"`
}

func (j jsonEntry) entry() Entry {
	e := Entry{Key: j.Key, Value: j.Value, Version: j.Version}
	if j.ExpiresAt != nil {
		e.ExpiresAt = *j.ExpiresAt
	}
	return e
}

// MarshalJSON writes the entry as the service does: the value in base64, left
// out when it is nil.
func (e Entry) MarshalJSON() ([]byte, error) {
	j := struct {
		Key         string     `json:"key"`
		Value       *[]byte    `json:"value,omitempty"`
		Version     string     `json:"version,omitempty"`
		ExpiresAt   *time.Time `json:"expiresAt,omitempty"`
		ContentType string     `json:"contentType,omitempty"`
	}{Key: e.Key, Version: e.Version, ContentType: e.ContentType}
	if e.Value != nil {
		j.Value = &e.Value
	}
	if !e.ExpiresAt.IsZero() {
		j.ExpiresAt = &e.ExpiresAt
	}
	return json.Marshal(j)
}
