package delta

import (
	"fmt"
	"strings"
	"time"
)

// Cutover is what a checklist is filled in with.
type Cutover struct {
	// Source, Tree and Server are what is moved, and to where.
	Source, Tree, Server string
	// Delta and Verify are the commands to run.
	Delta, Verify string
	// Report is the last pass, Took how long it took.
	Report *Report
	Took   time.Duration
}

// Checklist is what is left to do until a tree takes the place of its source.
func Checklist(c Cutover) string {
	var b strings.Builder
	n := 0
	step := func(format string, args ...any) {
		n++
		fmt.Fprintf(&b, "  %d. %s\n", n, fmt.Sprintf(format, args...))
	}
	command := func(text string) { fmt.Fprintf(&b, "         %s\n", text) }
	fmt.Fprintf(&b, "To cut over from %s to tree %s at %s:\n", c.Source, c.Tree, c.Server)
	step("Repeat the delta pass until it is small. The last one wrote %d and deleted %d keys in %s.", c.Report.Written, c.Report.Deleted, c.Took.Round(100*time.Millisecond))
	command(c.Delta)
	step("Stop all that writes to the source, and wait for what is under way to end.")
	if strings.Contains(c.Delta, "--deletes") {
		step("Run the delta pass once more. From here on the source does not change any more.")
	} else {
		step("Run the delta pass once more, with --deletes if records were ever deleted at the source.")
	}
	command(c.Delta)
	step("Verify. Exit code 0 says that nothing differs; otherwise the differing keys are printed.")
	command(c.Verify)
	step("Point readers at the tree, then writers.")
	step("Keep the source readable, and unwritten, until you are content. To roll back before anybody writes to the tree, point the applications at the source again: nothing is lost. Afterwards, what was written to the tree is not in the source.")
	return b.String()
}
