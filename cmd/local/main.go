// Command local serves Lattice on this machine, and runs the schedule that a
// cloud host would run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	s, err := parse(os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, errHelp) {
		return
	}
	if err != nil {
		fail(exitUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// Once the first signal has come, the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	work := run
	if s.Health {
		work = health
	}
	if err := work(ctx, s, os.Stderr); err != nil {
		fail(exitFailure, err)
	}
}

// fail tells every fault on a line of its own and ends the process.
func fail(status int, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(os.Stderr, "local: %s\n", strings.TrimSpace(line))
	}
	os.Exit(status)
}
