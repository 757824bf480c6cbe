package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exported is a tree with values of every kind, and a file of it.
func exported(t *testing.T) (l *tool, path string) {
	l, _ = fake(t)
	l.ok(ndjson(1500), "import", "t")
	l.ok("\x00\xff\n", "set", "t", "binary", "-")
	l.ok("", "set", "t", "expires", "v", "--ttl", "1h")
	path = filepath.Join(t.TempDir(), "t.ndjson.gz")
	l.ok("", "export", "t", path, "--snapshot", "--progress", "none")
	l.ok("", "load", "back", path, "--progress", "none")
	return l, path
}

func TestVerifyExportAgreesWithWhatWasLoaded(t *testing.T) {
	l, path := exported(t)
	l.is(l.ok("", "verify", "export", "back", path), "Equal: 1,502 keys in the file, 1,502 in the tree back.\n")
	l.is(l.ok("", "verify", "export", "t", path), "Equal: 1,502 keys in the file, 1,502 in the tree t.\n")
	// Other forms of values say the same.
	l.ok("", "delete", "t", "binary")
	l.ok("", "delete", "back", "binary")
	l.ok(`{"a":[1,2]}`, "set", "back", "json", "-")
	text := l.ok("", "export", "t", "--as", "auto", "--progress", "none")
	text = strings.Replace(text, `{"key":"k000000"`, `{"key":"json","json":{"a": [1, 2]}}`+"\n"+`{"key":"k000000"`, 1)
	if out := l.ok(text+`{"end":true,"count":1502}`+"\n", "verify", "export", "back"); !strings.HasPrefix(out, "Equal: 1,502 ") {
		t.Errorf("%s", out)
	}
}

func TestVerifyExportTellsWhatDiffers(t *testing.T) {
	l, path := exported(t)
	l.ok("", "delete", "back", "k000003")
	l.ok("", "set", "back", "k000004", "other")
	l.ok("", "set", "back", "k0000041", "more")
	l.ok("", "set", "back", "z", "last")
	l.ok("", "set", "back", "expires", "v", "--ttl", "2h")
	r := l.run("", "verify", "export", "back", path)
	want := "expires expires at another time (line 2)\nk000003 is not in the tree (line 6)\nk000004 has another value (line 7)\n" +
		"k0000041 is not in the file\nz is not in the file\n" +
		"Not equal: 1,502 keys in the file, 1,503 in the tree back; 1 missing in the tree; 2 missing in the file; 1 with another value; 1 with another expiry.\n"
	if r.code != ExitNo || r.out != want || r.err != "" {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	r = l.run("", "verify", "export", "back", path, "--show", "1", "--json")
	var told struct {
		Equal        bool
		Verification struct {
			Read, Tree, Missing, Extra, Value, Expiry, Expired int64
			Differences                                        []difference
		}
	}
	if err := json.Unmarshal([]byte(r.out), &told); err != nil || r.code != ExitNo {
		t.Fatalf("exit %d, %v\n%s", r.code, err, r.out)
	}
	if v := told.Verification; told.Equal || v.Read != 1502 || v.Tree != 1503 || v.Missing != 1 || v.Extra != 2 || v.Value != 1 || v.Expiry != 1 || len(v.Differences) != 1 {
		t.Errorf("%s", r.out)
	}
	// An empty tree lacks everything; an empty file has nothing.
	l.ok("", "set", "one", "k", "v")
	l.ok("", "delete", "one", "k")
	if r = l.run("", "verify", "export", "one", path, "--show", "0"); r.code != ExitNo || !strings.HasPrefix(r.out, "Not equal: 1,502 keys in the file, 0 in the tree one; 1,502 missing in the tree") {
		t.Errorf("exit %d\n%s", r.code, r.out)
	}
	if r = l.run("", "verify", "export", "back"); r.code != ExitNo || !strings.Contains(r.out, "0 keys in the file, 1,503 in the tree back; 1,503 missing in the file") {
		t.Errorf("exit %d\n%s", r.code, r.out)
	}
}

func TestVerifyExportKnowsWhatHasExpired(t *testing.T) {
	l, _ := fake(t)
	l.ok("", "set", "t", "b", "v")
	past := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	file := `{"key":"a","value":"dg==","expiresAt":"` + past + `"}` + "\n" + `{"key":"b","value":"dg=="}` + "\n"
	l.is(l.ok(file, "verify", "export", "t"), "Equal: 2 keys in the file, 1 in the tree t; 1 expired since the export.\n")
}

func TestVerifyExportRefusesWhatIsNoExport(t *testing.T) {
	l, path := exported(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.ndjson.gz")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	l.fails(ExitFailed, "cut off or damaged", "", "verify", "export", "back", cut)
	l.fails(ExitFailed, "no export", `{"key":"b","value":""}`+"\n"+`{"key":"a","value":""}`+"\n", "verify", "export", "back")
	l.fails(ExitFailed, "the end line counts 3 rows, 1 were read", `{"key":"a","value":""}`+"\n"+`{"end":true,"count":3}`+"\n", "verify", "export", "back")
	l.fails(ExitFailed, "malformed JSON", "key,value\n", "verify", "export", "back")
	l.fails(ExitFailed, "no such file", "", "verify", "export", "back", filepath.Join(t.TempDir(), "none"))
	l.fails(ExitNo, "tree_not_found", "", "verify", "export", "none", path)
	l.fails(ExitUsage, "--show", "", "verify", "export", "back", path, "--show", "-1")
}
