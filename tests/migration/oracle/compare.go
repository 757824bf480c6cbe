package oracle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"time"
)

// entry is what a key must hold. Either bytes or object is set: they make the
// value when it is compared, for there are many.
type entry struct {
	// bytes are the value.
	bytes func() []byte
	// object is what the value says as JSON, with numbers as json.Number.
	object func() any
	// expiry is when the entry ceases to exist, zero for never.
	expiry time.Time
}

// content is what a tree must hold, by key.
type content map[string]entry

// expirySlack is how far an expiry may be off: sources tell it in milliseconds,
// and some as what is left at the time of the question.
const expirySlack = 2 * time.Second

// held is a line of a scan.
type held struct {
	Key       string
	Value     []byte
	ExpiresAt time.Time
	End       bool
	Count     int
}

// verify compares a tree of a service with what it must hold: no key more or
// less, none twice, every value, every expiry. Keys may be gone whose time is
// up.
func verify(ctx context.Context, service, tree string, want content) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, service+"/v1/trees/"+url.PathEscape(tree)+"/entries", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("scan %s: %s", tree, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, longestLine)
	c := comparison{want: want, seen: make(map[string]struct{}, len(want))}
	for lines.Scan() {
		var h held
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			return fmt.Errorf("scan %s: %w: %.200s", tree, err, lines.Bytes())
		}
		if err := c.add(&h); err != nil {
			return fmt.Errorf("tree %s: %w", tree, err)
		}
	}
	if err := errors.Join(lines.Err(), c.finish(time.Now())); err != nil {
		return fmt.Errorf("tree %s: %w", tree, err)
	}
	return nil
}

// longestLine is that of a value of 64 MiB.
const longestLine = 128 << 20

// comparison takes the lines of a scan one by one.
type comparison struct {
	want  content
	seen  map[string]struct{}
	last  string
	ended bool
}

func (c *comparison) add(h *held) error {
	switch {
	case c.ended:
		return errors.New("something follows the end line")
	case h.End:
		c.ended = true
		if h.Count != len(c.seen) {
			return fmt.Errorf("the end line says %d entries, there were %d", h.Count, len(c.seen))
		}
		return nil
	case len(c.seen) > 0 && h.Key <= c.last:
		return fmt.Errorf("key %q follows %q", h.Key, c.last)
	}
	want, ok := c.want[h.Key]
	if !ok {
		return fmt.Errorf("key %q should not be there", h.Key)
	}
	c.last, c.seen[h.Key] = h.Key, struct{}{}
	return want.compare(h)
}

func (want *entry) compare(h *held) error {
	if want.object != nil {
		got, err := decodeJSON(h.Value)
		if object := want.object(); err != nil || !reflect.DeepEqual(got, object) {
			return fmt.Errorf("key %q holds %.500s, want %.500v, %v", h.Key, h.Value, object, err)
		}
	} else if value := want.bytes(); !bytes.Equal(h.Value, value) {
		return fmt.Errorf("key %q holds %.200q (%d bytes), want %.200q (%d bytes)", h.Key, h.Value, len(h.Value), value, len(value))
	}
	off := h.ExpiresAt.Sub(want.expiry).Abs()
	if h.ExpiresAt.IsZero() != want.expiry.IsZero() || off > expirySlack {
		return fmt.Errorf("key %q expires at %v, want %v", h.Key, h.ExpiresAt, want.expiry)
	}
	return nil
}

// finish tells what is missing at a time.
func (c *comparison) finish(now time.Time) error {
	if !c.ended {
		return errors.New("the scan broke off")
	}
	missing, first := 0, ""
	for key, e := range c.want {
		if _, ok := c.seen[key]; !ok && (e.expiry.IsZero() || e.expiry.After(now)) {
			missing++
			if first == "" || key < first {
				first = key
			}
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d keys are missing, the first is %q", missing, len(c.want), first)
	}
	return nil
}

// decodeJSON reads one JSON value, with numbers as their digits.
func decodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}
