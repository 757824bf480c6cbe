package engines

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// owner is the user that a server runs as; the zero value is that of the test.
type owner struct {
	credential *syscall.Credential
}

// unprivileged returns the user of the test, or, if that is root, the named one.
func unprivileged(t testing.TB, name string) owner {
	t.Helper()
	if os.Geteuid() != 0 {
		return owner{}
	}
	account, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("the server does not run as root: %v", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return owner{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// as has the command run as the owner.
func (o owner) as(cmd *exec.Cmd) *exec.Cmd {
	if o.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.credential}
	}
	return cmd
}
