package azurite

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

func TestSharedIsOneServerThatAnswers(t *testing.T) {
	first, second := Shared(t), Shared(t)
	if first != second {
		t.Fatal("two shared emulators in one binary")
	}
	for _, url := range []string{first.BlobURL(), first.TableURL()} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatalf("get %s: %v", url, err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Server"); !strings.HasPrefix(got, "Azurite") {
			t.Errorf("%s is served by %q", url, got)
		}
	}
}

func TestStartedServerEndsWithItsTest(t *testing.T) {
	var e *Emulator
	t.Run("its test", func(t *testing.T) {
		e = Start(t)
		if err := syscall.Kill(e.PID(), 0); err != nil {
			t.Fatalf("process %d: %v", e.PID(), err)
		}
	})
	if e.alive() {
		t.Fatal("the server outlived its test")
	}
	if err := syscall.Kill(e.PID(), 0); err == nil {
		t.Fatalf("process %d is still there", e.PID())
	}
}

func TestKilledSharedServerIsReplaced(t *testing.T) {
	first := Shared(t)
	first.Kill()
	if second := Shared(t); second == first || !second.alive() {
		t.Fatal("a dead emulator was handed out")
	}
}

func TestNamesAreFresh(t *testing.T) {
	e := Shared(t)
	seen := map[string]bool{}
	for range 100 {
		for _, name := range []string{e.TableName(t), e.ContainerName(t)} {
			if seen[name] {
				t.Fatalf("name %q twice", name)
			}
			seen[name] = true
		}
	}
	if name := e.TableName(t); strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		t.Errorf("table name %q holds more than letters and digits", name)
	}
}
