package container

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

const version = "v1.2.3-test"

// TestImage builds the image once and looks at all of it.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an image")
	}
	i := newBuilder(t).build(t, version)
	t.Run("Config", func(t *testing.T) { testConfig(t, i) })
	t.Run("Files", func(t *testing.T) { testFiles(t, i) })
	t.Run("WithoutCredentials", func(t *testing.T) { testRefusal(t, i) })
	t.Run("Serves", func(t *testing.T) { testService(t, i) })
}

func testConfig(t *testing.T, i *image) {
	c := i.config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/local"}) || len(c.Cmd) != 0 || c.StopSignal != "SIGTERM" {
		t.Errorf("the image is %s", i)
	}
	if _, ok := c.Volumes["/data"]; !ok || len(c.Volumes) != 1 {
		t.Errorf("volumes %v", c.Volumes)
	}
	if _, ok := c.ExposedPorts["8080/tcp"]; !ok || len(c.ExposedPorts) != 1 {
		t.Errorf("ports %v", c.ExposedPorts)
	}
	if !slices.Equal(c.Healthcheck.Test, []string{"CMD", "/local", "--health"}) {
		t.Errorf("health is asked by %q", c.Healthcheck.Test)
	}
	for _, want := range []string{"LATTICE_LISTEN=0.0.0.0:8080", "LATTICE_DATA_DIR=/data", "LATTICE_LOG_FORMAT=json", "LATTICE_SHUTDOWN_GRACE_PERIOD=8s"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("environment %q lacks %s", c.Env, want)
		}
	}
}

func testFiles(t *testing.T, i *image) {
	files := i.files(t)
	want := []string{"data", "etc", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt", "local"}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("the image has %q, want %q", got, want)
	}
	for name, about := range files {
		owner := "|0:0"
		if name == "data" {
			owner = "|65532:65532"
		}
		if !strings.Contains(about, owner) || about[5] == 'w' || about[8] == 'w' {
			t.Errorf("%s is %s", name, about)
		}
	}
	if got := files["etc/ssl/certs/ca-certificates.crt"]; !strings.HasSuffix(got, digestOf(authorities)) {
		t.Errorf("the certificates are not those of the image that built: %s", got)
	}
	program := filepath.Join(t.TempDir(), "local")
	output(t, asRoot("install", "-m", "644", filepath.Join(i.root, "local"), program)...)
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program wants a loader, and libraries that are not there")
		}
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || info.Path != "github.com/latticekv/lattice/cmd/local" {
		t.Errorf("the program is %v, %v", info, err)
	}
}

func testRefusal(t *testing.T, i *image) {
	// The image's address with another port; it is given back at once.
	out, err := i.command([]string{"LATTICE_LISTEN=0.0.0.0:0"}).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "there are no credentials") {
		t.Fatalf("got %v: %s", err, out)
	}
}

// start runs the image's process and returns it with its address.
func start(t *testing.T, i *image, env ...string) (*running.Process, string) {
	t.Helper()
	p, err := running.Supervise(t, i.command(env))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case address := <-p.Listening():
		return p, address
	case <-p.Exited():
		t.Fatalf("the process ended:\n%s", p.Output())
	case <-time.After(30 * time.Second):
		t.Fatalf("the process does not listen:\n%s", p.Output())
	}
	return nil, ""
}

func ask(t *testing.T, method, address, secret, body string) (int, string) {
	t.Helper()
	got := running.Ask(t, http.DefaultClient, method, address, strings.NewReader(body), "Authorization", "Bearer "+secret)
	return got.Status, got.Body
}

func testService(t *testing.T, i *image) {
	secret, line, err := auth.NewKey(auth.Key{Name: "container", Role: auth.RoleWriter, Trees: auth.Patterns{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	running.Secret(t, secret)
	env := []string{"LATTICE_LISTEN=127.0.0.1:0", "LATTICE_AUTH_KEYS=" + line}
	before := i.files(t)

	p, address := start(t, i, env...)
	if status, body := ask(t, "GET", address+"/openapi.json", "", ""); status != 200 || !strings.Contains(body, version) {
		t.Errorf("description: %d %.200s, want the version %s", status, body, version)
	}
	if status, _ := ask(t, "PUT", address+"/v1/trees/demo/keys/greeting", "nobody", "hello"); status != 401 {
		t.Errorf("without a key: %d", status)
	}
	if status, body := ask(t, "PUT", address+"/v1/trees/demo/keys/greeting", secret, "hello"); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	health := []string{"LATTICE_LISTEN=0.0.0.0:" + at.Port()}
	if out, err := i.command(health, i.config.Healthcheck.Test[2:]...).CombinedOutput(); err != nil {
		t.Errorf("health of the living: %v: %s", err, out)
	}
	if err := p.Stop(); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	if out, err := i.command(health, i.config.Healthcheck.Test[2:]...).CombinedOutput(); err == nil {
		t.Errorf("health of the dead: %s", out)
	}

	again, address := start(t, i, env...)
	if status, body := ask(t, "GET", address+"/v1/trees/demo/keys/greeting", secret, ""); status != 200 || body != "hello" {
		t.Errorf("after a restart: %d %q", status, body)
	}
	if err := again.Stop(); err != nil {
		t.Fatal(err)
	}
	if after := i.files(t); !maps.Equal(after, before) {
		t.Errorf("files outside of /data changed: %v, before %v", after, before)
	}
	if out := output(t, asRoot("find", filepath.Join(i.root, "data"), "-mindepth", "1")...); out == "" {
		t.Error("nothing was written to /data")
	}
}
