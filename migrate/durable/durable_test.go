package durable

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func open(t *testing.T, step Step) *Dir {
	t.Helper()
	d, err := Open(t.TempDir(), step)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWriteIsWholeOrNotAtAll(t *testing.T) {
	boom := errors.New("boom")
	stop := ""
	d := open(t, func(s string) error {
		if s == stop {
			return boom
		}
		return nil
	})
	if err := d.Write("a", []byte("old")); err != nil {
		t.Fatal(err)
	}
	want := "old"
	for _, s := range []string{"create a", "sync a", "rename a", "renamed a"} {
		stop = s
		if err := d.Write("a", []byte("new")); !errors.Is(err, boom) {
			t.Fatalf("%s: %v", s, err)
		}
		if s == "renamed a" {
			want = "new"
		}
		if got, err := d.Read("a"); err != nil || string(got) != want {
			t.Fatalf("after %s: %q, %v", s, got, err)
		}
	}
}

func TestSweepRemovesTheUnfinishedAlone(t *testing.T) {
	d := open(t, nil)
	if err := d.Write("kept", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create("lost"); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(); err != nil {
		t.Fatal(err)
	}
	names, err := d.Names()
	if err != nil || strings.Join(names, " ") != "kept" {
		t.Fatalf("%q, %v", names, err)
	}
	if _, err := d.Read("lost"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestJournalForgetsWhatItsOwnerDoesNotKnow(t *testing.T) {
	d := open(t, nil)
	j, err := d.Journal("j", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Append([]byte("one\n")), j.Sync(), j.Append([]byte("two\n")), j.Close()); err != nil {
		t.Fatal(err)
	}
	if j, err = d.Journal("j", 4); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Append([]byte("three\n")), j.Close()); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.Read("j"); string(got) != "one\nthree\n" {
		t.Fatalf("%q", got)
	}
	if _, err := d.Journal("j", 100); err == nil || !strings.Contains(err.Error(), "cut off or changed") {
		t.Fatal(err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	d := open(t, nil)
	l, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second lock: %v", err)
	}
	l.Unlock()
	l, err = d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestFullDiskIsNamed(t *testing.T) {
	err := explain("write x", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "run the same command again") {
		t.Fatal(err)
	}
	// Linux has a device that is always full.
	f, ferr := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if ferr != nil {
		return
	}
	full := &File{File: f, name: "x"}
	if _, err := full.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
}
