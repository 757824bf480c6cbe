package subprocess

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts the command, sees to its end, and returns a channel that is
// closed when it has ended. The kernel sends it a signal when this process ends
// in whatever way: SIGTERM if gentle, else SIGKILL. It runs in a group of its
// own, so that an interrupt at the terminal reaches it through its owner alone.
// Credentials in cmd.SysProcAttr are kept.
func Start(cmd *exec.Cmd, gentle bool) (exited <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if gentle {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	started, ended := make(chan error, 1), make(chan struct{})
	// The kernel ties the death signal to the thread that started the child, not
	// to the process; so one thread does nothing but start it and wait.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// How it ended is in cmd.ProcessState.
		_ = cmd.Wait()
		close(ended)
	}()
	return ended, <-started
}

// Terminate asks a process to end.
func Terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
