// Package infra checks what can be checked offline of the templates in infra/
// and of docs/deploy.md: that they parse, that they name only what exists, in
// themselves and in the code, and that they grant no more than is needed. Each
// check is a function from the files to what it objects to; the tests run all of
// them over the repository, and each over planted faults.
package infra

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// plant is a fault for a check to find: in a file, the text old becomes new.
type plant struct{ file, old, new string }

// check is one rule over the files F.
type check[F any] struct {
	name string
	// run returns every breach.
	run    func(F) []string
	plants []plant
}

// texts are the contents of files by their paths under the root.
type texts map[string]string

func read(t *testing.T, paths ...string) texts {
	t.Helper()
	all := texts{}
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(running.Root(t), path))
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	return all
}

// with returns the texts with a fault in them.
func (all texts) with(t *testing.T, p plant) texts {
	t.Helper()
	changed := texts{}
	for path, text := range all {
		changed[path] = text
	}
	if changed[p.file] = strings.Replace(all[p.file], p.old, p.new, 1); changed[p.file] == all[p.file] {
		t.Fatalf("%s has no %q to replace", p.file, p.old)
	}
	return changed
}

// runChecks runs all checks over the files, and each over its faults.
func runChecks[F any](t *testing.T, all texts, load func(texts) (F, error), checks []check[F]) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			files, err := load(all)
			if err != nil {
				t.Fatal(err)
			}
			for _, breach := range c.run(files) {
				t.Error(breach)
			}
			if len(c.plants) == 0 {
				t.Error("nobody knows whether this check can fail")
			}
			for _, p := range c.plants {
				files, err := load(all.with(t, p))
				if err != nil {
					t.Errorf("%s with %q: %v", p.file, p.new, err)
				} else if len(c.run(files)) == 0 {
					t.Errorf("not found: %s with %q", p.file, p.new)
				}
			}
		})
	}
}

// breaches collects what a check objects to.
type breaches []string

func (b *breaches) add(format string, args ...any) { *b = append(*b, fmt.Sprintf(format, args...)) }

// want objects to a value that is not the one wanted.
func (b *breaches) want(what, got, want string) {
	if got != want {
		b.add("%s is %q, want %q", what, got, want)
	}
}
