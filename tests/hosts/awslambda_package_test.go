package hosts

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// packaged runs the package script for a host and returns the folder with what
// it made.
func packaged(t *testing.T, host string) string {
	t.Helper()
	dist := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(running.Root(t), "scripts", "package.sh"), host)
	cmd.Env = append(running.Environment(), "DIST="+dist)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return dist
}

func TestLambdaPackagesAreDeployable(t *testing.T) {
	dist := packaged(t, "awslambda")
	machines := map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64}
	for arch, machine := range machines {
		at := filepath.Join(dist, "lattice-awslambda-"+arch+".zip")
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MB", info.Name(), float64(info.Size())/1e6)
		if info.Size() > 50<<20 {
			t.Errorf("%s has %d bytes; Lambda takes 50 MB that are uploaded", at, info.Size())
		}
		z, err := zip.OpenReader(at)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		if len(z.File) != 1 || z.File[0].Name != "bootstrap" || z.File[0].Mode() != 0o755 {
			t.Fatalf("%s has %d entries, the first is %s %s", at, len(z.File), z.File[0].Name, z.File[0].Mode())
		}
		program, err := readEntry(z.File[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := checkProgram(program, machine); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		for _, secret := range []string{running.Root(t), "BEGIN PRIVATE KEY", "BEGIN RSA PRIVATE KEY"} {
			if n := bytes.Count(program, []byte(secret)); n > 0 {
				t.Errorf("%s has %q in it", at, secret)
			}
		}
		if arch == runtime.GOARCH {
			serves(t, program)
		}
	}
}

// serves runs the packaged program as the host does.
func serves(t *testing.T, program []byte) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(at, program, 0o755); err != nil {
		t.Fatal(err)
	}
	l := startProgram(t, at, "LATTICE_STORE=memory", "LATTICE_LAMBDA_RESPONSE_STREAM=true")
	if a := l.call(t, "PUT", "/v1/trees/t/keys/k", "", "v"); a.status != 201 {
		t.Errorf("the packaged program answers %s", a)
	}
}

func readEntry(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// checkProgram demands a static program for a processor.
func checkProgram(program []byte, machine elf.Machine) error {
	e, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	if e.Machine != machine || e.Class != elf.ELFCLASS64 {
		return fmt.Errorf("it is for %s", e.Machine)
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("it is linked dynamically")
		}
	}
	return nil
}

func TestPackageScriptKnowsItsHosts(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(running.Root(t), "scripts", "package.sh"), "mainframe")
	cmd.Env = append(running.Environment(), "DIST="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "mainframe") {
		t.Errorf("%v: %s", err, out)
	}
}
