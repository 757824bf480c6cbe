package engines

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// install runs an installer of this checkout, which does little when there is
// nothing to install, and returns the path that it prints.
func install(t testing.TB, script string, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(running.Root(t), "scripts", script), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", script, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// folder returns an empty folder that belongs to the owner and is removed when
// the test ends. The folder of t.TempDir is closed to other users.
func (o owner) folder(t testing.TB, name string) string {
	t.Helper()
	parent := os.TempDir()
	if o.credential != nil && !reachable(parent) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "lattice-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the folder of %s: %v", name, err)
		}
	})
	if err := o.own(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reachable reports whether every user may enter the folder.
func reachable(dir string) bool {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if at == filepath.Dir(at) {
			return true
		}
	}
}

// file writes a file that only the owner may read.
func (o owner) file(t testing.TB, path, text string) {
	t.Helper()
	err := os.WriteFile(path, []byte(text), 0o600)
	if err == nil {
		err = o.own(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run carries out a command to its end as the owner.
func (o owner) run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	o.as(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Path, err, out)
	}
}

func (o owner) own(path string) error {
	if o.credential == nil {
		return nil
	}
	if err := os.Chown(path, int(o.credential.Uid), int(o.credential.Gid)); err != nil {
		return fmt.Errorf("hand over %s: %w", path, err)
	}
	return nil
}
