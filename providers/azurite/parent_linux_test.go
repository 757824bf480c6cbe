package azurite_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/latticekv/lattice/providers/azurite"
)

// TestMain lets this binary play a parent that is killed.
func TestMain(m *testing.M) {
	if o := os.Getenv("AZURITE_TEST_PARENT"); o != "" {
		s, err := azurite.Start(context.Background(), azurite.Options{Program: o})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.PID(), s.TableURL())
		select {}
	}
	os.Exit(m.Run())
}

func TestServerDiesWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "AZURITE_TEST_PARENT="+program(t))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var url string
	if _, err := fmt.Fscan(out, &pid, &url); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("the parent was not killed")
	}
	// The kernel has signalled the child by now; its port closes with it.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for answers(t, url) {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the server outlived its parent")
		}
	}
}

func answers(t *testing.T, url string) bool {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}
