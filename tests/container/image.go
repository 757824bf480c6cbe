// Package container builds the image of the Dockerfile, for real and without a
// network, and runs what is in it as a container host would: as the image's
// user, in its file system, with its environment.
//
// The image is built by buildah, which needs no daemon. The Go toolchain is the
// one that runs the test, mounted where the Dockerfile looks for it: no image of
// a registry takes part. Building and changing the root folder need the rights of
// root, by sudo where the test has other ones; without them it fails.
package container

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// asRoot returns the command line that does what args say as root.
func asRoot(args ...string) []string {
	if os.Getuid() == 0 {
		return args
	}
	return append([]string{"sudo", "-n"}, args...)
}

// output runs a command to its end and returns what it printed.
func output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// builder is a buildah with a store of its own.
type builder struct {
	program string
	store   string
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Fatal("images are built on Linux alone")
	}
	folder := output(t, filepath.Join(running.Root(t), "scripts/install-engine.sh"), "buildah")
	b := &builder{program: filepath.Join(folder, "buildah"), store: t.TempDir()}
	if os.Getuid() != 0 {
		// What root wrote there only root can remove.
		t.Cleanup(func() {
			_ = exec.Command("sudo", "-n", "rm", "-rf", filepath.Join(b.store, "root"), filepath.Join(b.store, "run")).Run()
		})
	}
	return b
}

// run runs a command of buildah.
func (b *builder) run(t *testing.T, args ...string) string {
	t.Helper()
	line := []string{
		b.program, "--storage-driver", "vfs",
		"--root", filepath.Join(b.store, "root"), "--runroot", filepath.Join(b.store, "run"),
	}
	return output(t, asRoot(append(line, args...)...)...)
}

// authorities stand for the certificates that an image with Go has.
const authorities = "-----BEGIN CERTIFICATE-----\nthose of the image that built\n-----END CERTIFICATE-----\n"

// goImage makes an image with what the Dockerfile expects of GO_IMAGE but the
// toolchain.
func (b *builder) goImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"authorities": authorities, "Dockerfile": "FROM scratch\nCOPY authorities /etc/ssl/certs/ca-certificates.crt\nWORKDIR /tmp\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, "bud", "--isolation", "chroot", "-t", "localhost/go", dir)
	return "localhost/go"
}

// config is what an image says of the process in it.
type config struct {
	User         string
	Env          []string
	Entrypoint   []string
	Cmd          []string
	Volumes      map[string]struct{}
	ExposedPorts map[string]struct{}
	StopSignal   string
	Healthcheck  struct{ Test []string }
}

// image is a built one, with its files in a folder.
type image struct {
	config config
	root   string
}

// build builds the Dockerfile of the checkout.
func (b *builder) build(t *testing.T, version string) *image {
	t.Helper()
	// Read, so that a result for another Dockerfile is not taken from the cache.
	for _, name := range []string{"Dockerfile", ".dockerignore"} {
		if _, err := os.ReadFile(filepath.Join(running.Root(t), name)); err != nil {
			t.Fatal(err)
		}
	}
	env := strings.Fields(output(t, "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE"))
	if len(env) != 3 {
		t.Fatalf("go env says %q", env)
	}
	b.run(t, "bud", "--isolation", "chroot", "--format", "docker", "-t", "localhost/lattice",
		"--build-arg", "GO_IMAGE="+b.goImage(t), "--build-arg", "VERSION="+version,
		"--build-context", "modcache="+env[1], "-v", env[0]+":/usr/local/go:ro", "-v", env[2]+":/gocache",
		// Whoever asks the network for something finds nobody.
		"--build-arg", "HTTPS_PROXY=http://127.0.0.1:1", "--build-arg", "HTTP_PROXY=http://127.0.0.1:1",
		running.Root(t))
	i := &image{}
	var about struct{ Docker struct{ Config config } }
	if err := json.Unmarshal([]byte(b.run(t, "inspect", "--type", "image", "localhost/lattice")), &about); err != nil {
		t.Fatal(err)
	}
	i.config = about.Docker.Config
	from := b.run(t, "from", "localhost/lattice")
	i.root = b.run(t, "mount", from)
	t.Cleanup(func() {
		line := asRoot(b.program, "--storage-driver", "vfs", "--root", filepath.Join(b.store, "root"), "--runroot", filepath.Join(b.store, "run"), "rm", from)
		_ = exec.Command(line[0], line[1:]...).Run()
	})
	return i
}

// command is the image's process with more arguments, and variables over those of
// the image.
func (i *image) command(env []string, args ...string) *exec.Cmd {
	line := append(asRoot("env", "-i"), i.config.Env...)
	line = append(line, env...)
	line = append(line, "chroot", "--userspec="+i.config.User, i.root)
	line = append(line, i.config.Entrypoint...)
	line = append(line, args...)
	return exec.Command(line[0], line[1:]...)
}

// files describes every file of the image but those below /data: mode, owner, and
// what is in it.
func (i *image) files(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	list := output(t, asRoot("find", i.root, "-path", filepath.Join(i.root, "data", "*"), "-prune", "-o", "-printf", `%P|%M|%U:%G\n`)...)
	for line := range strings.Lines(list) {
		name, about, _ := strings.Cut(strings.TrimSpace(line), "|")
		if name != "" {
			found[name] = about
		}
	}
	for name := range found {
		if !fs.ValidPath(name) {
			t.Fatalf("file %q", name)
		}
		if strings.HasPrefix(found[name], "-") {
			found[name] += "|" + digest(output(t, asRoot("sha256sum", filepath.Join(i.root, name))...))
		}
	}
	return found
}

func digest(sum string) string {
	hash, _, _ := strings.Cut(sum, " ")
	return hash
}

// digestOf is the digest of a text as files tells it.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// String describes the image for messages.
func (i *image) String() string { return fmt.Sprintf("%+v", i.config) }
