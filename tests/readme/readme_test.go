package readme

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

// shown is the address that the document shows.
const shown = "http://127.0.0.1:8080"

func TestReadmeDoesWhatItSays(t *testing.T) {
	steps := read(t, "README.md")
	for _, must := range []string{"curl ", "bin/lattice "} {
		if n := countPrefix(steps, must); n < 5 {
			t.Fatalf("%d commands begin with %q: the document shows too little, or is not read", n, must)
		}
	}
	carryOut(t, steps)
}

func TestGuideToSplitsDoesWhatItSays(t *testing.T) {
	steps := read(t, "docs/splitting.md")
	if n := countPrefix(steps, "bin/lattice "); n < 5 {
		t.Fatalf("%d commands: the document shows too little, or is not read", n)
	}
	carryOut(t, steps)
}

func read(t *testing.T, document string) []Step {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(running.Root(t), document))
	if err != nil {
		t.Fatal(err)
	}
	return Steps(string(text))
}

// carryOut runs the commands against a service of their own.
func carryOut(t *testing.T, steps []Step) {
	t.Helper()
	service := running.Start(t, nil, "--data-dir="+filepath.Join(t.TempDir(), "data"))
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(running.Build(t, "cmd/lattice"), filepath.Join(dir, "bin", "lattice")); err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(step.Command, shown, service.URL))
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		cmd.Env = append(os.Environ(), "LATTICE_SERVER="+service.URL)
		// A refusal that the document shows is an output like any other.
		runErr := cmd.Run()
		if err := step.Check(stdout.String()); err != nil {
			t.Errorf("%v\ncommand: %s\nend: %v\nerrors: %s", err, step.Command, runErr, stderr.String())
		}
	}
}

func countPrefix(steps []Step, prefix string) int {
	n := 0
	for _, step := range steps {
		if strings.HasPrefix(step.Command, prefix) {
			n++
		}
	}
	return n
}

func TestStepsAreTheCommandsOfConsoleBlocks(t *testing.T) {
	steps := Steps("# T\n```sh\n$ not this\n```\ntext\n```console\n$ a \\\n  b\nout\nmore\n$ c\n```\n$ nor this\n")
	want := []Step{{Line: 7, Command: "a \\\n  b", Want: "out\nmore\n"}, {Line: 11, Command: "c"}}
	if len(steps) != 2 || steps[0] != want[0] || steps[1] != want[1] {
		t.Fatalf("got %+v", steps)
	}
}

func TestScriptsAreTheBlocksForTheShell(t *testing.T) {
	scripts := Scripts("# T\n```console\n$ not this\n```\ntext\n```sh\na \\\n  b\nc\n```\n```\nnor this\n```\n```sh\nd\n```\nor this\n")
	want := []Step{{Line: 7, Command: "a \\\n  b\nc\n"}, {Line: 15, Command: "d\n"}}
	if len(scripts) != 2 || scripts[0] != want[0] || scripts[1] != want[1] {
		t.Fatalf("got %+v", scripts)
	}
}

func TestCheckAcceptsWhatIsShownAlone(t *testing.T) {
	cases := []struct {
		want, output string
		ok           bool
	}{
		{"a\n", "a", true}, {"a\n", "a\n", true}, {"a\n", "ab", false}, {"a\n", "", false}, {"", "", true}, {"", "a", false},
		{"{\"v\":\"…\"}\n", "{\"v\":\"12\"}\n", true}, {"{\"v\":\"…\"}\n", "{\"w\":\"12\"}\n", false},
		{"x…y\n", "x\n\ny", true}, {"x…y\n", "x", false}, {"a.c\n", "abc", false},
	}
	for _, c := range cases {
		if err := (Step{Want: c.want}).Check(c.output); (err == nil) != c.ok {
			t.Errorf("shown %q, output %q: %v", c.want, c.output, err)
		}
	}
}
