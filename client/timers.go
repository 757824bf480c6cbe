package client

import (
	"context"
	"net/http"
	"time"
)

// Timer is what is known of one scheduled function of the service.
type Timer struct {
	Timer string `json:"timer"`
	// Interval is the wished time between ticks, LateAfter how long may pass
	// without a success.
	Interval  Span `json:"interval"`
	LateAfter Span `json:"lateAfter"`
	// LastStartedAt, Failed, Error, TookMs and Instance tell of the latest tick
	// recorded, on any instance; nil, 0 or empty if there was none. Failed counts
	// the shards and trees that it could not look after.
	LastStartedAt *time.Time `json:"lastStartedAt,omitempty"`
	Failed        int        `json:"failed"`
	Error         string     `json:"error,omitempty"`
	TookMs        *int64     `json:"tookMs,omitempty"`
	Instance      string     `json:"instance,omitempty"`
	// LastSucceededAt and Age tell of the latest tick that succeeded, nil if none
	// ever did.
	LastSucceededAt *time.Time `json:"lastSucceededAt,omitempty"`
	Age             *Span      `json:"age,omitempty"`
	// Late says that no tick has succeeded for longer than LateAfter, or ever.
	Late bool `json:"late"`
}

// Timers are all scheduled functions, in the order of the schedule.
type Timers struct {
	ObservedAt time.Time `json:"observedAt"`
	Timers     []Timer   `json:"timers"`
}

// Timers tells when the scheduled functions of the service last ran.
func (c *Client) Timers(ctx context.Context) (Timers, error) {
	var out Timers
	err := c.doJSON(ctx, newCall(http.MethodGet, "/v1/cluster/timers", repeatAlways), &out)
	return out, err
}

// Span is a duration that is written as in Go, such as 1m30s, in JSON.
type Span time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}
