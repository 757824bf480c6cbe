package auth

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	// As an operator should: the new file takes the place of the old one at once.
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// who returns the ID behind a token, "" if there is none.
func who(t *testing.T, a *Authenticator, token string) string {
	t.Helper()
	p, err := a.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		if !errors.Is(err, ErrUnauthenticated) || strings.Contains(err.Error(), token) {
			t.Fatalf("unexpected error: %v", err)
		}
		return ""
	}
	return p.ID
}

func TestKeysAreFoundByWhatTheyAre(t *testing.T) {
	c := newHandClock()
	first, firstLine := mustKey(t, reader("first"))
	second, secondLine := mustKey(t, Key{Name: "second", Role: RoleAdmin, Trees: Patterns{"*"}, Expires: c.Now().Time().Add(time.Hour)})
	a, err := New(Config{Keys: firstLine + ";" + secondLine}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := who(t, a, first); got != "key:first" {
		t.Errorf("the first key is %q", got)
	}
	if got := who(t, a, second); got != "key:second" {
		t.Errorf("the second key is %q", got)
	}
	for name, token := range map[string]string{
		"begin": first[:len(first)-1], "more": first + "A", "other case": strings.ToUpper(first), "the hash": strings.Split(strings.Fields(firstLine)[3], ":")[2],
		"name": "first", "both": first + second, "without prefix": strings.TrimPrefix(first, keyPrefix), "long": strings.Repeat("a", maxKeyLength+1),
	} {
		if got := who(t, a, token); got != "" {
			t.Errorf("%s: is %q", name, got)
		}
	}
	c.advance(time.Hour)
	if who(t, a, second) != "" || who(t, a, first) == "" {
		t.Error("a key does not end with its time")
	}
}

func TestKeysFileIsTakenOverWithoutRestart(t *testing.T) {
	c, log := newHandClock(), &logged{}
	file := filepath.Join(t.TempDir(), "keys")
	before, beforeLine := mustKey(t, reader("before"))
	after, afterLine := mustKey(t, reader("after"))
	fixed, fixedLine := mustKey(t, reader("fixed"))
	writeFile(t, file, beforeLine)
	a, err := New(Config{KeysFile: file, Keys: fixedLine}, c, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, b, f bool) {
		t.Helper()
		if got := who(t, a, before) != ""; got != b {
			t.Errorf("%s: the key before is known: %v", when, got)
		}
		if got := who(t, a, after) != ""; got != f {
			t.Errorf("%s: the key after is known: %v", when, got)
		}
		if who(t, a, fixed) == "" {
			t.Errorf("%s: the key of the environment is gone", when)
		}
	}
	expect("at the start", true, false)
	writeFile(t, file, beforeLine+"\n"+afterLine)
	c.advance(reloadInterval - 1)
	expect("too early", true, false)
	c.advance(1)
	expect("with both", true, true)
	writeFile(t, file, afterLine)
	c.advance(reloadInterval)
	expect("rotated", false, true)
	if n := strings.Count(log.String(), "taken over"); n != 2 {
		t.Errorf("two changes are told of %d times:\n%s", n, log)
	}
	for name, text := range map[string]string{"not valid": beforeLine + "\nnonsense " + before, "the same name": afterLine + "\n" + fixedLine} {
		writeFile(t, file, text)
		before := strings.Count(log.String(), "stay valid")
		for range 3 {
			c.advance(reloadInterval)
			expect(name, false, true)
		}
		if n := strings.Count(log.String(), "stay valid") - before; n != 1 {
			t.Errorf("%s: told of %d times", name, n)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c.advance(reloadInterval)
	expect("gone", false, true)
	if !strings.Contains(log.String(), "line 2") || !strings.Contains(log.String(), "stay valid") || !strings.Contains(log.String(), "fixed") {
		t.Errorf("the faults are not told of:\n%s", log)
	}
	writeFile(t, file, "# nobody\n")
	c.jump(reloadInterval) // frozen: the monotonic clock has stood still
	expect("emptied", false, false)
	for _, secret := range []string{before, after, fixed} {
		if strings.Contains(log.String(), secret) {
			t.Error("a key is in the log")
		}
	}
}

func TestFileThatChangesWithinItsTickIsReadAgain(t *testing.T) {
	c := newHandClock()
	file := filepath.Join(t.TempDir(), "keys")
	before, beforeLine := mustKey(t, reader("same"))
	after, afterLine := mustKey(t, reader("same"))
	stamp := c.Now().Time()
	put := func(line string) {
		t.Helper()
		writeFile(t, file, line)
		if err := os.Chtimes(file, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	put(beforeLine)
	a, err := New(Config{KeysFile: file}, c, (&logged{}).logger())
	if err != nil {
		t.Fatal(err)
	}
	put(afterLine) // the same size, the same time
	c.advance(reloadInterval)
	if who(t, a, before) != "" || who(t, a, after) == "" {
		t.Error("the change was not seen")
	}
}

func TestServiceDoesNotStartWithHalfOfItsKeys(t *testing.T) {
	_, line := mustKey(t, reader("a"))
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad"), filepath.Join(dir, "good")
	writeFile(t, bad, line+"\nnonsense")
	writeFile(t, good, line)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"pipe": {KeysFile: pipe},
		"line": {KeysFile: bad}, "missing": {KeysFile: filepath.Join(dir, "missing")}, "folder": {KeysFile: dir},
		"environment": {Keys: "nonsense"}, "same name in both": {KeysFile: good, Keys: line},
	} {
		if a, err := New(cfg, newHandClock(), nil); err == nil || a != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, err := New(Config{}, newHandClock(), nil); a != nil || err != nil {
		t.Errorf("nothing configured gave %v, %v", a, err)
	}
}
