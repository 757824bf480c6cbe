package funcshost

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Invocation is what the host makes of a timer's answer.
type Invocation struct {
	// Outputs are values by binding, Logs lines for the host's log.
	Outputs     map[string]any
	Logs        []string
	ReturnValue json.RawMessage
}

// OK reports whether the timer says that it succeeded.
func (i Invocation) OK() bool {
	var said struct{ OK bool }
	return json.Unmarshal(i.ReturnValue, &said) == nil && said.OK
}

// Payload is what the host sends when it calls a timer at a time.
func Payload(at time.Time, pastDue bool) string {
	const form = time.RFC3339Nano
	return fmt.Sprintf(`{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":{"Last":%q,"LastUpdated":%q,"Next":%q},"IsPastDue":%v}},`+
		`"Metadata":{"sys":{"MethodName":"timer","UtcNow":%q,"RandGuid":"35e6e68c-5583-436c-a277-5aec2b416ba8"}}}`,
		at.Add(-time.Minute).Format(form), at.Format(form), at.Add(time.Minute).Format(form), pastDue, at.UTC().Format(form))
}

// Invoke calls a timer as the host does, with a payload of any form. An error is
// a call that failed for the host: the function is unknown, the handler does not
// answer, or answers with something else than a success in the host's form; what
// it had to log is lost then.
func (f *front) Invoke(ctx context.Context, timer, payload string) (Invocation, error) {
	if !slices.Contains(f.app.timers, timer) {
		return Invocation{}, fmt.Errorf("the app has no timer %q", timer)
	}
	// The host does not know how long the body is.
	body := io.MultiReader(strings.NewReader(payload))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.address+"/"+timer, body)
	if err != nil {
		return Invocation{}, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	f.hostHeader(req.Header)
	a := f.send(req)
	if a.err != nil {
		return Invocation{}, fmt.Errorf("call timer %s: %w", timer, a.err)
	}
	if a.status < 200 || a.status > 299 {
		return Invocation{}, fmt.Errorf("timer %s answered %d; its logs are lost", timer, a.status)
	}
	var done Invocation
	if err := json.Unmarshal(a.body, &done); err != nil {
		return Invocation{}, fmt.Errorf("timer %s answered %q: %w", timer, a.body, err)
	}
	return done, nil
}
