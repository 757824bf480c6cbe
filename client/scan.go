package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Query selects entries in key order.
type Query struct {
	Range
	// Reverse gives descending order.
	Reverse bool
	// KeysOnly leaves the values out.
	KeysOnly bool
	// Limit is, for Page, the most entries of the page: at most 10,000, 0 is
	// the service's default of 1,000. For Scan it is the most entries of all,
	// 0 meaning no limit.
	Limit int
	// PageToken goes on after an earlier page of the same query.
	PageToken string
	// MaxAge is as in ReadOptions.
	MaxAge time.Duration
}

// maxPage is the most entries the service gives in a page.
const maxPage = 10_000

func (t *Tree) scanCall(s Query) (*call, error) {
	q, err := t.call(http.MethodGet, "/entries", repeatAlways)
	if err != nil {
		return nil, err
	}
	if err := s.Range.apply(q); err != nil {
		return nil, err
	}
	if err := (ReadOptions{MaxAge: s.MaxAge}).apply(q); err != nil {
		return nil, err
	}
	if s.Reverse {
		q.query.Set("reverse", "true")
	}
	if s.KeysOnly {
		q.query.Set("keysOnly", "true")
	}
	return q, nil
}

// Page is one page of a scan.
type Page struct {
	Entries []Entry
	// NextPageToken is empty on the last page.
	NextPageToken string
}

// Page returns one page.
func (t *Tree) Page(ctx context.Context, s Query) (Page, error) {
	if s.Limit < 0 || s.Limit > maxPage {
		return Page{}, fmt.Errorf("%w: Limit must be 0 to %d", ErrInvalidRequest, maxPage)
	}
	q, err := t.scanCall(s)
	if err != nil {
		return Page{}, err
	}
	if s.Limit > 0 {
		q.query.Set("limit", strconv.Itoa(s.Limit))
	}
	if s.PageToken != "" {
		q.query.Set("pageToken", s.PageToken)
	}
	q.header.Set("Accept", "application/json")
	var out struct {
		Entries       []jsonEntry `json:"entries"`
		NextPageToken string      `json:"nextPageToken"`
	}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return Page{}, err
	}
	return Page{Entries: entries(out.Entries), NextPageToken: out.NextPageToken}, nil
}

// Scan yields entries in key order, holding one at a time. With a Limit it
// reads pages; without one it reads a stream. A failure is yielded once, as
// the last element, with a zero Entry; a stream that ends before the service
// says that it is complete is a *StreamError, never a short result. Nothing is
// resumed after the first entry: whoever wants that starts again from
// StreamError.LastKey and knows that the view may have changed meanwhile.
func (t *Tree) Scan(ctx context.Context, s Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.Limit < 0 || s.Limit == 0 && s.PageToken != "" {
			yield(Entry{}, fmt.Errorf("%w: Scan takes no negative Limit, and a PageToken only with a Limit", ErrInvalidRequest))
			return
		}
		var err error
		if s.Limit > 0 {
			err = t.scanPages(ctx, s, yield)
		} else {
			err = t.scanStream(ctx, s, yield)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Entry{}, err)
		}
	}
}

// errStopped: the caller left the loop.
var errStopped = errors.New("stopped by the caller")

func (t *Tree) scanPages(ctx context.Context, s Query, yield func(Entry, error) bool) error {
	for left := s.Limit; left > 0; {
		s.Limit = min(left, maxPage)
		p, err := t.Page(ctx, s)
		if err != nil {
			return err
		}
		if len(p.Entries) > s.Limit {
			return fmt.Errorf("%w: a page of %d entries, asked for %d", ErrProtocol, len(p.Entries), s.Limit)
		}
		for _, e := range p.Entries {
			if !yield(e, nil) {
				return errStopped
			}
		}
		left -= len(p.Entries)
		if p.NextPageToken == "" {
			return nil
		}
		if p.NextPageToken == s.PageToken {
			return fmt.Errorf("%w: the page token repeats", ErrProtocol)
		}
		s.PageToken = p.NextPageToken
	}
	return nil
}

func (t *Tree) scanStream(ctx context.Context, s Query, yield func(Entry, error) bool) error {
	q, err := t.scanCall(s)
	if err != nil {
		return err
	}
	q.header.Set("Accept", "application/x-ndjson")
	return t.c.stream(ctx, q, yield)
}

// stream opens a stream, as often as need be, and reads it once.
func (c *Client) stream(ctx context.Context, q *call, yield func(Entry, error) bool) error {
	// Leaving the loop early must break the connection, not drain it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var resp *http.Response
	err := c.repeat(ctx, q.repeat, func() (err error) {
		resp, err = c.open(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	d := &streamDecoder{r: bufio.NewReaderSize(resp.Body, 64<<10), max: c.max}
	if err := d.run(yield); err != nil {
		return err
	}
	return nil
}

// open makes one attempt and returns an answer of status 2xx with its body
// unread.
func (c *Client) open(ctx context.Context, q *call) (*http.Response, error) {
	req, err := c.request(ctx, q)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreached(err)
	}
	if resp.StatusCode/100 != 2 {
		defer drain(resp.Body)
		return nil, readError(resp, time.Now())
	}
	return resp, nil
}

// streamDecoder reads newline-delimited entries up to the end line.
type streamDecoder struct {
	r       *bufio.Reader
	max     int64
	line    []byte
	entries int64
	last    string
}

// streamLine is any line of a stream: an entry, the end line, or the problem
// that ends the stream.
type streamLine struct {
	Key       *string    `json:"key"`
	Value     []byte     `json:"value"`
	Version   string     `json:"version"`
	ExpiresAt *time.Time `json:"expiresAt"`
	End       bool       `json:"end"`
	Count     *int64     `json:"count"`
	Error     *struct {
		problem
		Status int `json:"status"`
	} `json:"error"`
}

func (d *streamDecoder) run(yield func(Entry, error) bool) error {
	for {
		line, err := d.next()
		if err != nil {
			return d.broken(err)
		}
		var l streamLine
		if err := json.Unmarshal(line, &l); err != nil {
			return d.broken(fmt.Errorf("%w: decode line: %w", ErrProtocol, err))
		}
		switch {
		case l.End:
			return d.finish(l)
		case l.Error != nil:
			e := &Error{Status: l.Error.Status}
			e.fill(l.Error.problem)
			return d.broken(e)
		case l.Key == nil:
			return d.broken(fmt.Errorf("%w: a line without key", ErrProtocol))
		}
		e := jsonEntry{Key: *l.Key, Value: l.Value, Version: l.Version, ExpiresAt: l.ExpiresAt}.entry()
		d.entries++
		d.last = e.Key
		if !yield(e, nil) {
			return errStopped
		}
	}
}

// finish checks the end line and that nothing follows it.
func (d *streamDecoder) finish(l streamLine) error {
	if l.Count == nil || *l.Count != d.entries {
		return d.broken(fmt.Errorf("%w: the end line counts other than the %d entries received", ErrProtocol, d.entries))
	}
	if _, err := d.next(); !errors.Is(err, io.EOF) {
		return d.broken(fmt.Errorf("%w: data after the end line", ErrProtocol))
	}
	return nil
}

func (d *streamDecoder) broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the end line is missing")
	}
	return &StreamError{Entries: d.entries, LastKey: d.last, Err: err}
}

// next returns the next line, valid until the next call. What stands before
// the end of the stream without a newline is a line too: if it was cut off, it
// is no JSON.
func (d *streamDecoder) next() ([]byte, error) {
	d.line = d.line[:0]
	for {
		part, err := d.r.ReadSlice('\n')
		if err == nil && len(d.line) == 0 {
			return part, nil
		}
		d.line = append(d.line, part...)
		if int64(len(d.line)) > d.max {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrAnswerTooLarge, d.max)
		}
		if err == nil {
			return d.line, nil
		}
		if errors.Is(err, io.EOF) && len(d.line) > 0 {
			return d.line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
