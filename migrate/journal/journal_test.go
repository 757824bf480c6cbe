package journal_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
)

type state struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func folder(t *testing.T) *durable.Dir {
	t.Helper()
	d, err := durable.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSaveAndLoad(t *testing.T) {
	d := folder(t)
	var s state
	if ok, err := journal.Load(d, "s.json", &s); ok || err != nil {
		t.Fatal(ok, err)
	}
	for n := range 3 {
		if err := journal.Save(d, "s.json", state{n, "<&>"}); err != nil {
			t.Fatal(err)
		}
		if ok, err := journal.Load(d, "s.json", &s); !ok || err != nil || s.N != n || s.Text != "<&>" {
			t.Fatal(ok, err, s)
		}
	}
}

func TestDamageIsRefused(t *testing.T) {
	d := folder(t)
	if err := journal.Save(d, "s.json", state{12345, "abc"}); err != nil {
		t.Fatal(err)
	}
	good, err := d.Read("s.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", "{", strings.Replace(string(good), "12345", "12346", 1), strings.Replace(string(good), `"format":1`, `"format":2`, 1),
		string(good[:len(good)/2]),
	} {
		if err := os.WriteFile(d.Join("s.json"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		var s state
		if _, err := journal.Load(d, "s.json", &s); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := d.Write("s.json", good); err != nil {
		t.Fatal(err)
	}
	var other struct{ X int }
	if _, err := journal.Load(d, "s.json", &other); !errors.Is(err, journal.ErrCorrupt) {
		t.Fatalf("a state of another kind: %v", err)
	}
}

func TestFileIsCutBack(t *testing.T) {
	d := folder(t)
	f, err := journal.Open(d, "f.ndjson", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Line("one <1>"); err != nil {
		t.Fatal(err)
	}
	known, err := f.Sync()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Line("two"), f.Close()); err != nil {
		t.Fatal(err)
	}
	if f, err = journal.Open(d, "f.ndjson", known); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 70_000)
	if err := errors.Join(f.Line("three"), f.Line(long)); err != nil {
		t.Fatal(err)
	}
	size, err := f.Sync()
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = journal.Lines(d, "f.ndjson", size, func(b []byte) (bool, error) {
		got = append(got, string(b))
		return true, nil
	})
	if err != nil || strings.Join(got, " ") != `"one <1>" "three" "`+long+`"` {
		t.Fatal(len(got), err)
	}
	if _, err := journal.Open(d, "f.ndjson", size+1); err == nil {
		t.Fatal("a file shorter than known was opened")
	}
}
