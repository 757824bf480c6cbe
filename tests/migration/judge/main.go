// Command judge fills the source of a migration, and compares the tree in the
// end. It is a program of its own because tests run under the race detector,
// which makes them slow, and this is much work.
//
// Usage: judge fill DATASET, or judge verify DATASET SERVICE TREE, where DATASET
// is an oracle.Dataset as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/latticekv/lattice/tests/migration/oracle"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: judge fill|verify DATASET [SERVICE TREE]")
	}
	var d oracle.Dataset
	if err := json.Unmarshal([]byte(args[1]), &d); err != nil {
		return fmt.Errorf("the dataset: %w", err)
	}
	switch {
	case args[0] == "fill" && len(args) == 2:
		return d.Fill(ctx)
	case args[0] == "verify" && len(args) == 4:
		return d.Verify(ctx, args[2], args[3])
	}
	return fmt.Errorf("no such task: %s with %d arguments", args[0], len(args)-1)
}
