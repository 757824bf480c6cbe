// Package running builds the project's programs and runs them as processes of
// their own, as their users do: for tests that need the real thing.
package running

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Root returns the top folder of the checkout.
func Root(t testing.TB) string {
	t.Helper()
	at, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			t.Fatal("no go.mod above the test")
		}
		at = filepath.Dir(at)
	}
}

// builds remembers the programs built by this test binary.
var builds struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// Build compiles a program, such as "cmd/local" or the import path of a tool of
// this module, once per test binary and returns its path. Main removes the
// results.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if path := builds.paths[pkg]; path != "" {
		return path
	}
	if builds.dir == "" {
		t.Fatal("call running.Main from TestMain")
	}
	path := filepath.Join(builds.dir, filepath.Base(pkg))
	source := "./" + pkg
	if strings.Contains(pkg, ".") {
		source = pkg
	}
	cmd := exec.Command("go", "build", "-o", path, source)
	cmd.Dir = Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	builds.paths[pkg] = path
	return path
}

// Main runs the tests of a package that builds programs, and tidies up.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "lattice-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	builds.dir, builds.paths = dir, map[string]string{}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
