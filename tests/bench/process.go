package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// program is the service, built at the first need.
var program struct{ folder, path string }

// build compiles the service.
func build(ctx context.Context) (string, error) {
	if program.path != "" {
		return program.path, nil
	}
	folder, err := os.MkdirTemp("", "lattice-bench-")
	if err != nil {
		return "", err
	}
	program.folder = folder
	path := filepath.Join(folder, "local")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/latticekv/lattice/cmd/local").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the service: %w\n%s", err, out)
	}
	program.path = path
	return path, nil
}

func removeProgram() error {
	if program.folder == "" {
		return nil
	}
	return os.RemoveAll(program.folder)
}

// service is a running process of the service.
type service struct {
	cmd *exec.Cmd
	url string
}

const (
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
)

// launch starts a service on a free port and waits for its address.
func launch(ctx context.Context, connection, id string, leases bool) (*service, error) {
	path, err := build(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--listen=127.0.0.1:0", "--store=azure", "--table-name="+id, "--container-name="+id,
		"--log-level=error", "--data-dir="+program.folder, fmt.Sprintf("--leases=%v", leases))
	cmd.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING="+connection)
	output, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s := &service{cmd: cmd}
	address := make(chan string, 1)
	go func() {
		defer close(address)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
				address <- strings.TrimSpace(url)
			}
		}
	}()
	select {
	case s.url = <-address:
	case <-time.After(startLimit):
	}
	if s.url == "" {
		return nil, errors.Join(errors.New("the service does not start"), s.stop())
	}
	return s, nil
}

// stop ends the service as an operator does, and by force if that does not help.
func (s *service) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the service: %w", err)
	}
	force := time.AfterFunc(stopLimit, func() { _ = s.cmd.Process.Kill() })
	defer force.Stop()
	return s.cmd.Wait()
}
