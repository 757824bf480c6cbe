package azurite

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// dieWithParent has the kernel end the child when this process ends in whatever
// way, and puts it into a group of its own, so that an interrupt at the terminal
// reaches it through Stop alone.
func dieWithParent(cmd *exec.Cmd, gentle bool) {
	signal := syscall.SIGKILL
	if gentle {
		signal = syscall.SIGTERM
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: signal, Setpgid: true}
}

// launch starts the process and sees to its end. The kernel ties the death signal
// to the thread that started the child, not to the process; so one thread does
// nothing but start it and wait.
func (s *Server) launch() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// The exit status of a killed process says nothing; what it printed does.
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	return <-started
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
