//go:build !linux

package azurite

import (
	"os"
	"os/exec"
)

// dieWithParent does nothing: these systems have no such signal.
func dieWithParent(*exec.Cmd, bool) {}

// launch starts the process and sees to its end.
func (s *Server) launch() error {
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	return nil
}

func terminate(p *os.Process) error { return p.Signal(os.Interrupt) }
