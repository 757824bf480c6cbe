package telemetry

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

const (
	// failurePause is the time between two lines that tell of failed exports.
	failurePause = time.Minute
	// maxFailureBytes bounds what such a line quotes.
	maxFailureBytes = 400
)

// failures tells the log of exports that failed, a line a minute at most. A
// collector that is away is away for every batch.
type failures struct {
	logger  *slog.Logger
	secrets []string

	mu      sync.Mutex
	next    time.Time
	skipped int
}

// Handle implements otel.ErrorHandler.
func (f *failures) Handle(err error) {
	if skipped, ok := f.due(time.Now()); ok {
		f.logger.Warn("telemetry was not sent", "error", f.clean(err), "notTold", skipped)
	}
}

// due reports whether a line may be written now, and how many were not.
func (f *failures) due(now time.Time) (skipped int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Before(f.next) {
		f.skipped++
		return 0, false
	}
	skipped, f.skipped, f.next = f.skipped, 0, now.Add(failurePause)
	return skipped, true
}

// clean is the text of an error without what a collector echoes of our headers.
func (f *failures) clean(err error) string {
	text := err.Error()
	for _, secret := range f.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
	}
	if len(text) > maxFailureBytes {
		text = text[:maxFailureBytes] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

// listen takes over what OpenTelemetry has to complain of. That is one place for
// the whole process; its own log is shut, since it quotes variables.
func listen(f *failures) {
	otel.SetErrorHandler(f)
	otel.SetLogger(logr.Discard())
}
