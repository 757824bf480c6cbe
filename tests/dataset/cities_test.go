package dataset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDatasetIsLargeAndItsKeysAreUnique(t *testing.T) {
	rows := Cities(t)
	seen, beyondASCII := map[string]bool{}, 0
	for i, r := range rows {
		if seen[r.Key] || !utf8.ValidString(r.Key) || i%50 == 0 && !json.Valid([]byte(r.Value)) {
			t.Fatalf("row %q: a key twice, or no text, or no JSON: %s", r.Key, r.Value)
		}
		seen[r.Key] = true
		if strings.ContainsFunc(r.Key, func(c rune) bool { return c > 127 }) {
			beyondASCII++
		}
	}
	if len(seen) < leastRows || beyondASCII < 1000 {
		t.Errorf("%d keys, %d of them beyond ASCII", len(seen), beyondASCII)
	}
}

func TestValueHoldsTheFieldsInOrder(t *testing.T) {
	r, err := newRow(17, place{Name: `a "<b>" &`, Lat: "1.5", Lng: "-2", Country: "XX", Admin1: "01"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"nr":"17","name":"a \"<b>\" &","lat":"1.5","lng":"-2","country":"XX","admin1":"01","admin2":""}`
	var l line
	if err := json.Unmarshal([]byte(r.line+`v"}`), &l); err != nil || l.Key != r.Key || l.Text != r.Value {
		t.Errorf("%s: %v", r.line, err)
	}
	if r.Value != want || r.Key != `XX/a "<b>" &/000017` {
		t.Errorf("%s is %s", r.Key, r.Value)
	}
}

func TestDatasetThatCannotBeInstalledIsAnError(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	few := write("few.json", `[{"name":"a","country":"XX"}]`)
	cases := map[string]struct{ installer, want string }{
		"the installer fails": {"echo no network >&2; exit 1", "no network"},
		"the file is missing": {"echo /nowhere/at/all.json", "no such file"},
		"the file is no JSON": {"echo " + write("bad.json", "<html>"), "invalid character"},
		"too few rows":        {"echo " + few, "1 rows"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := load(write("install.sh", c.installer)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}
