package engines

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// Prometheus is a running Prometheus that keeps its data in a folder of its own.
type Prometheus struct {
	*running.Process
	// URL is where it answers, without a trailing slash.
	URL string
}

// StartPrometheus runs a Prometheus with a configuration file and returns when it
// is ready.
func StartPrometheus(t testing.TB, config string) Prometheus {
	t.Helper()
	program := filepath.Join(install(t, "install-engine.sh", "prometheus"), "prometheus")
	dir := owner{}.folder(t, "prometheus")
	var p Prometheus
	var addr string
	p.Process, addr = server{
		name: "prometheus",
		command: func(port int) *exec.Cmd {
			return exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+dir,
				fmt.Sprintf("--web.listen-address=%s:%d", host, port), "--log.level=warn")
		},
		ready: ready,
	}.start(t)
	p.URL = "http://" + addr
	return p
}

func ready(ctx context.Context, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/-/ready", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it is not ready: %s %s, %v", resp.Status, text, err)
	}
	return nil
}

// Promtool runs the tool that comes with Prometheus in a folder, and returns what
// it says.
func Promtool(t testing.TB, folder string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(install(t, "install-engine.sh", "prometheus"), "promtool"), args...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	return string(out), err
}
