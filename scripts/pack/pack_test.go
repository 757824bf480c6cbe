package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lay writes files into a new folder, in the order of the arguments: name,
// content, name, content.
func lay(t *testing.T, files ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		at := filepath.Join(folder, files[i])
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func mustPack(t *testing.T, folder string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.zip")
	size, err := pack(folder, out)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(out)
	if err != nil || int64(len(packed)) != size {
		t.Fatalf("%d bytes, said %d: %v", len(packed), size, err)
	}
	return packed
}

func TestZipHoldsTheFilesWithCleanModes(t *testing.T) {
	folder := lay(t, "run", "#!", "host.json", "{}", "timer/function.json", "[]", "empty", "")
	for name, mode := range map[string]os.FileMode{"run": 0o710, "host.json": 0o666} {
		if err := os.Chmod(filepath.Join(folder, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	packed := mustPack(t, folder)
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range z.File {
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.Name+" "+f.Mode().String()+" "+string(text))
		if !f.Modified.Equal(stamp) {
			t.Errorf("%s is of %s", f.Name, f.Modified)
		}
	}
	want := []string{"empty -rw-r--r-- ", "host.json -rw-r--r-- {}", "run -rwxr-xr-x #!", "timer/function.json -rw-r--r-- []"}
	if !slices.Equal(got, want) {
		t.Fatalf("entries %q, want %q", got, want)
	}
}

func TestSameFilesGiveTheSameZip(t *testing.T) {
	one := lay(t, "a", "1", "b/c", strings.Repeat("x", 1<<16), "z", "2")
	other := lay(t, "z", "2", "b/c", strings.Repeat("x", 1<<16), "a", "1")
	long := time.Date(2001, 2, 3, 4, 5, 6, 0, time.Local)
	if err := os.Chtimes(filepath.Join(other, "a"), long, long); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mustPack(t, one), mustPack(t, other)) {
		t.Fatal("two zips of the same files differ")
	}
}

func TestWhatHasNoPlaceIsRefusedAndNothingChanges(t *testing.T) {
	linked := lay(t, "a", "1")
	if err := os.Symlink("a", filepath.Join(linked, "b")); err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{
		".env": lay(t, "a", "1", ".env", "KEY=x"), "f/local.settings.json": lay(t, "f/local.settings.json", "{}"),
		".git": lay(t, ".git/config", ""), "b is no regular file": linked,
		"nothing to pack": t.TempDir(), "no such file": filepath.Join(t.TempDir(), "absent"),
	}
	for want, folder := range folders {
		dir := t.TempDir()
		out := filepath.Join(dir, "out.zip")
		if err := os.WriteFile(out, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := pack(folder, out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
		left, err := os.ReadDir(dir)
		if text, readErr := os.ReadFile(out); err != nil || readErr != nil || string(text) != "before" || len(left) != 1 {
			t.Errorf("%s: %q and %d files are left", want, text, len(left))
		}
	}
}

func TestCommandLine(t *testing.T) {
	folder, out := lay(t, "a", "1"), filepath.Join(t.TempDir(), "out.zip")
	var said strings.Builder
	if err := run([]string{"-out", out, folder}, &said); err != nil || said.String() != out+": 0.0 MB\n" {
		t.Fatalf("said %q: %v", said.String(), err)
	}
	for _, args := range [][]string{{}, {folder}, {"-out", out}, {"-out", out, folder, folder}} {
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q gave %v", args, err)
		}
	}
}
