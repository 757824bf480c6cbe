package cli

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden help texts")

// TestHelp compares every help text with testdata/help; -update rewrites them.
func TestHelp(t *testing.T) {
	l, _ := fake(t)
	t.Setenv("COLUMNS", "100")
	for _, cmd := range []string{
		"", "get", "set", "delete", "scan", "count", "batch", "cursor", "cursor open", "cursor next", "cursor close", "import", "export", "load", "migrate", "migrate file", "verify", "verify export", "trees", "shards", "splits", "reshard", "loads", "diagnostics", "timers", "keys", "keys new",
		"loads list", "loads state", "loads commit", "loads abort", "trees list", "trees create", "trees show", "trees set", "trees delete", "trees recover", "trees purge",
	} {
		name := strings.ReplaceAll("lattice "+cmd, " ", "-")
		t.Run(name, func(t *testing.T) {
			got := l.ok("", append(strings.Fields(cmd), "--help")...)
			golden := filepath.Join("testdata", "help", strings.TrimSuffix(name, "-")+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := readString(t, golden); got != want {
				t.Errorf("help differs from %s; run with -update and look at the change\n%s", golden, got)
			}
			for line := range strings.Lines(got) {
				if len([]rune(line)) > 105 {
					t.Errorf("a line of %d characters: %s", len(line), line)
				}
			}
		})
	}
}
