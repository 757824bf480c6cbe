package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// leastThreats is how many rows the table of threats has at least.
const leastThreats = 20

// TestEveryThreatHasAControlAndTestsThatExist reads the table of docs/security.md:
// each row names tests, and the packages where they are.
func TestEveryThreatHasAControlAndTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(running.Root(t), "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Threats\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("there is no section of threats")
	}
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.Contains(cells[0], "---") || strings.TrimSpace(cells[0]) == "threat" {
			continue
		}
		rows++
		checkTests(t, strings.TrimSpace(cells[0]), cells[2])
		if strings.TrimSpace(cells[1]) == "" {
			t.Errorf("%s: no control", cells[0])
		}
	}
	if rows < leastThreats {
		t.Errorf("%d threats", rows)
	}
}

var (
	// namedTests are a package and the tests in it: `dir`: `TestA`, `TestB`.
	namedTests = regexp.MustCompile("`([a-z/]+)`: ((?:`Test[A-Za-z0-9]+`(?:, )?)+)")
	testName   = regexp.MustCompile(`Test[A-Za-z0-9]+`)
)

func checkTests(t *testing.T, threat, cell string) {
	t.Helper()
	packages := namedTests.FindAllStringSubmatch(cell, -1)
	if len(packages) == 0 {
		t.Errorf("%s: no test", threat)
	}
	checked := 0
	for _, p := range packages {
		source := testSource(t, p[1])
		for _, name := range testName.FindAllString(p[2], -1) {
			if checked++; !strings.Contains(source, "\nfunc "+name+"(t *testing.T) {") {
				t.Errorf("%s: %s has no %s", threat, p[1], name)
			}
		}
	}
	if all := len(testName.FindAllString(cell, -1)); all != checked {
		t.Errorf("%s: %d of %d tests stand with a package", threat, checked, all)
	}
}

// testSource is the text of a package's test files.
func testSource(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(running.Root(t), dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}
