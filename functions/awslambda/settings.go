package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/options"
)

const (
	// streamVariable says that the function URL has the invoke mode
	// RESPONSE_STREAM: events do not tell. Requests through an HTTP API, which
	// knows no streams, are answered whole all the same.
	streamVariable = "LATTICE_LAMBDA_RESPONSE_STREAM"
	// basePathVariable is what stands in front of the service's own paths, such
	// as the mapping of a custom domain: "/store".
	basePathVariable = "LATTICE_LAMBDA_BASE_PATH"
	// timeoutVariable is the function's time-out in seconds. Lambda does not set
	// it, the runtime interface emulator needs it, and a template may.
	timeoutVariable = "AWS_LAMBDA_FUNCTION_TIMEOUT"
)

// settings are those of this host alone.
type settings struct {
	stream   bool
	basePath string
	// timeout is 0 if it is not known.
	timeout time.Duration
}

// readSettings reads the environment. The error joins every fault.
func readSettings(lookup func(string) (string, bool)) (s settings, err error) {
	var faults []error
	switch text, _ := lookup(streamVariable); text {
	case "true":
		s.stream = true
	case "", "false":
	default:
		faults = append(faults, fmt.Errorf("%s=%q is neither true nor false", streamVariable, text))
	}
	if text, _ := lookup(basePathVariable); text != "" {
		s.basePath = strings.TrimSuffix(text, "/")
		if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?# ") {
			faults = append(faults, fmt.Errorf("%s=%q is no path that begins with a slash", basePathVariable, text))
		}
	}
	if text, _ := lookup(timeoutVariable); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 16)
		if err != nil || seconds == 0 {
			faults = append(faults, fmt.Errorf("%s=%q is no number of seconds", timeoutVariable, text))
		}
		s.timeout = time.Duration(seconds) * time.Second
	}
	return s, errors.Join(faults...)
}

// pageBytes is the default size of a page: that of the service where answers are
// streamed, and otherwise what fits into an answer.
func (s settings) pageBytes(otherwise int64) int64 {
	if s.stream {
		return otherwise
	}
	return min(otherwise, maxPageBytes)
}

// misfits names the options that ask for more time than an invocation of the
// given length has. They are cut then, request by request.
func misfits(o *options.Options, invocation time.Duration) (names []string) {
	left := invocation - marginOf(invocation)
	if o.RequestTimeout > left {
		names = append(names, fmt.Sprintf("RequestTimeout (%s)", o.RequestTimeout))
	}
	if o.TickBudget > left {
		names = append(names, fmt.Sprintf("TickBudget (%s)", o.TickBudget))
	}
	return names
}

// warnOfMisfits logs options that do not fit. It does so at once if the function's
// time-out is known, and otherwise at the first invocation, whose deadline tells.
func warnOfMisfits(o *options.Options, timeout time.Duration, logger *slog.Logger) func(window) {
	warn := func(timeout time.Duration) {
		if names := misfits(o, timeout); len(names) > 0 {
			logger.Warn("options exceed the time of an invocation and are cut to it: raise the function's time-out, or lower them",
				"options", strings.Join(names, ", "), "timeout", timeout.Round(time.Second).String(), "margin", marginOf(timeout).String())
		}
	}
	if timeout > 0 {
		warn(timeout)
		return func(window) {}
	}
	var once sync.Once
	return func(w window) {
		if w.finish.IsZero() {
			return
		}
		once.Do(func() {
			end := w.cut.Add(w.cut.Sub(w.finish))
			warn(time.Until(end))
		})
	}
}
