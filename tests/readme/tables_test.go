package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/tests/running"
)

// firstSplitOption and lastSplitOption enclose the options of splits, in the
// order of their declaration.
const (
	firstSplitOption = "AutoSplitEnabled"
	lastSplitOption  = "MigrationsInterval"
)

func TestGuideToSplitsListsEveryTunableWithItsDefault(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(running.Root(t), "docs/splitting.md"))
	if err != nil {
		t.Fatal(err)
	}
	among, checked := false, 0
	for _, d := range options.Describe() {
		among = among || d.Name == firstSplitOption
		if !among {
			continue
		}
		perTree := ""
		if d.Scope == options.ScopeTree {
			perTree = "yes"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", d.Name, d.Default, perTree, d.Doc)
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("the table lacks the row\n%s", row)
		}
		if checked++; d.Name == lastSplitOption {
			break
		}
	}
	if checked < 10 {
		t.Errorf("%d options were compared", checked)
	}
}
