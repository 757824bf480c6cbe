// Command generate writes the function.json files of the Azure function app:
// one for each timer, from the table of schedules, and one for each group of
// HTTP routes. Run it after a change of either:
//
//	go generate ./functions/azurefunc
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	dir := flag.String("dir", "infra/azurefunc", "the folder of the function app")
	level := flag.String("level", anonymous, "what the platform asks of callers before Lattice does: anonymous, function or admin")
	flag.Parse()
	if err := run(*dir, *level, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes all files below dir, each into the folder that names its function.
func run(dir, level string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if !slices.Contains([]string{anonymous, "function", "admin"}, level) {
		return fmt.Errorf("--level is %q, want anonymous, function or admin", level)
	}
	for name, text := range files(level) {
		folder := filepath.Join(dir, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "function.json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
