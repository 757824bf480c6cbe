package migration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

// place is a service behind a relay: it is killed and runs again over the same
// storage, at an address that stays.
type place struct {
	*relay
	service   *running.Service
	env, args []string
}

// onBolt is a place with a folder of its own.
func onBolt(t *testing.T) *place {
	t.Helper()
	return newPlace(t, nil, "--data-dir="+filepath.Join(t.TempDir(), "data"), "--log-level=warn")
}

// onAzurite is a place in the emulator of this test binary, with tables of its
// own.
func onAzurite(t *testing.T) *place {
	t.Helper()
	e := azurite.Shared(t)
	return newPlace(t, []string{"AZURE_STORAGE_CONNECTION_STRING=" + e.ConnectionString()},
		"--store=azurite", "--table-name="+e.TableName(t), "--container-name="+e.ContainerName(t),
		// The lease of an instance that was killed is waited for.
		"--lease-duration=2s", "--data-dir="+t.TempDir(), "--log-level=warn")
}

func newPlace(t *testing.T, env []string, args ...string) *place {
	t.Helper()
	p := &place{relay: newRelay(t), env: env, args: args}
	p.start(t)
	return p
}

func (p *place) start(t *testing.T) {
	t.Helper()
	p.service = running.Start(t, p.env, p.args...)
	p.to(t, p.service.URL)
}

// run is one run of the tool.
type run struct {
	*running.Process
	// out is what it printed on standard output; what it said beside is in
	// Output. It may be read when the run has ended.
	out strings.Builder
}

// tool starts the tool against the place, with variables on top of the
// environment.
func (p *place) tool(t *testing.T, env []string, args ...string) *run {
	t.Helper()
	r := &run{}
	cmd := exec.Command(running.Build(t, "cmd/lattice"), args...)
	cmd.Env = append(append(running.Environment(), "LATTICE_SERVER="+p.URL), env...)
	cmd.Stdout = &r.out
	var err error
	if r.Process, err = running.Supervise(t, cmd); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait returns the exit code once the run has ended, -1 if it was killed.
func (r *run) wait() int {
	<-r.Exited()
	return r.ExitCode()
}
