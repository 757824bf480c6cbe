//go:build !linux

package subprocess

import (
	"os"
	"os/exec"
)

// Start starts the command, sees to its end, and returns a channel that is
// closed when it has ended. These systems cannot tie it to the life of this
// process.
func Start(cmd *exec.Cmd, _ bool) (exited <-chan struct{}, err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		// How it ended is in cmd.ProcessState.
		_ = cmd.Wait()
		close(ended)
	}()
	return ended, nil
}

// Terminate asks a process to end.
func Terminate(p *os.Process) error { return p.Signal(os.Interrupt) }
