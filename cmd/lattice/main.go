// Command lattice talks to a Lattice service: single keys, ranges, files in
// and out, and the administration of trees. Run "lattice --help".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/latticekv/lattice/cmd/lattice/internal/cli"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal asks to stop in good order, the second insists.
		<-signals
		cancel(cli.ErrInterrupted)
		<-signals
		os.Exit(cli.ExitInterrupted)
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], cli.System()))
}
