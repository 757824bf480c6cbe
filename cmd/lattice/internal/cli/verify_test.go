package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// citiesMoved migrates a file of cities; args are for verify and delta.
func citiesMoved(t *testing.T) (l *tool, csv, state string, args []string) {
	t.Helper()
	l, _ = fake(t)
	csv, state = file(t, "cities.csv", cities), t.TempDir()
	args = []string{"file", "cities", csv, "--key-template", "city/{country}/{id:4}", "--state", state}
	l.ok("", append([]string{"migrate"}, args...)...)
	return l, csv, state, args
}

func rewrite(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (l *tool) says(out string, wants ...string) {
	l.t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			l.t.Errorf("%q lacks %q", out, want)
		}
	}
}

func TestVerify(t *testing.T) {
	l, _, state, args := citiesMoved(t)
	args = append([]string{"verify"}, args...)
	out := l.ok("", append(args, "--prefix-depth", "2")...)
	l.says(out, "  city/de/\n", "  city/fr/\n", "  in all\n", "4 records read from the source", "Equal: 4 keys and 4 values compared", "live keys on", "Digest of the source ")
	if again := l.ok("", append(args, "--prefix-depth", "2")...); again != out {
		t.Errorf("another run says\n%s\nand not\n%s", again, out)
	}

	l.ok("", "delete", "cities", "city/de/0009")
	l.ok("", "set", "cities", "city/fr/0001", "other")
	l.ok("", "set", "cities", "city/us/0001", "theirs")
	r := l.fails(ExitNo, "Not equal: of 4 keys: 1 missing, 1 extra, 1 with another value", "", args...)
	l.says(r.out, "missing: city/de/0009 (", "cities.csv:5)", "value differs: city/fr/0001 (", "extra: city/us/0001\n")
	if n := strings.Count(readString(t, filepath.Join(state, "comparison", "verify.ndjson")), "\n"); n != 3 {
		t.Errorf("%d differences are listed", n)
	}
	if r := l.run("", append(args, "--target-prefix", "city/", "--values", "none", "--show", "1")...); r.code != ExitNo || strings.Count(r.out, "missing: ") != 1 || strings.Contains(r.out, "extra: ") {
		t.Errorf("%d %s", r.code, r.out)
	}
}

func TestVerifyForPrograms(t *testing.T) {
	l, _, _, args := citiesMoved(t)
	l.ok("", "delete", "cities", "city/de/0009")
	r := l.fails(ExitNo, "", "", append([]string{"--json", "verify"}, args...)...)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var last struct {
		Equal        bool
		Verification struct {
			Total struct{ Source, Target, Missing int64 }
			First []struct{ Class, Key string }
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err, r.out)
	}
	v := last.Verification
	if last.Equal || v.Total.Source != 4 || v.Total.Target != 3 || v.Total.Missing != 1 || len(v.First) != 1 || v.First[0].Key != "city/de/0009" {
		t.Errorf("%+v", last)
	}
}

func TestVerifyCountsWhatCannotBeRead(t *testing.T) {
	l, csv, _, args := citiesMoved(t)
	rewrite(t, csv, cities+"it,,Roma,1\n")
	r := l.fails(ExitNo, "Not equal: some records of the source could not be compared", "", append([]string{"verify"}, args...)...)
	l.says(r.out, "1 record could not be compared:\n", "cities.csv:6: ")
}

// TestVerifyHelp shows the flags of migrate as far as they mean something.
func TestVerifyHelp(t *testing.T) {
	l, _ := fake(t)
	out := l.ok("", "verify", "file", "--help")
	l.says(out, "Forget an unfinished verification", "--values=", "Compare only the keys of the tree", "Name of the tree to compare")
	for _, hidden := range []string{"--dry-run", "--deletes", "--max-rejects", "Delta pass", "--chunk-bytes", "--yes"} {
		if strings.Contains(out, hidden) {
			t.Errorf("the help tells of %s", hidden)
		}
	}
	l.says(l.ok("", "migrate", "file", "--help"), "--deletes", "--dry-run", "Delta pass")
}

func TestVerifyUsage(t *testing.T) {
	l, csv, state, args := citiesMoved(t)
	args = append([]string{"verify"}, args...)
	for want, more := range map[string][]string{
		"--sample-share must be": {"--sample-share", "200%"}, "--prefix-depth must be": {"--prefix-depth", "0"}, "--tolerance must be": {"--tolerance", "0s"},
		"--show must be": {"--show", "0"}, "--range-keys must be": {"--range-keys", "0"}, "--separator must": {"--separator", ""},
		"for \"lattice migrate\"": {"--dry-run"}, "--deletes goes with": {"--deletes"}, "--rate must be": {"--rate=-1"},
		`--value was not given and is now "column:name"`: {"--value", "column:name"},
	} {
		l.fails(ExitUsage, want, "", append(args, more...)...)
	}
	l.fails(ExitUsage, "the tree was", "", "verify", "file", "others", csv, "--key-template", "city/{country}/{id:4}", "--state", state)
}

func TestDelta(t *testing.T) {
	l, csv, state, args := citiesMoved(t)
	migrate := append([]string{"migrate"}, args...)
	rewrite(t, csv, strings.Replace(cities, "Lyon,522228", "Lyon,522250", 1)+"it,1,Roma,2755309\n")
	out := l.ok("", append(migrate, "--since", "state")...)
	l.says(out, "5 records read: 2 written, 3 the same already.", "Delta pass completed in ", "To cut over from ", "to tree cities at "+l.url,
		"wrote 2 and deleted 0 keys", "with --deletes if", "migrate file cities "+csv+" --key-template 'city/{country}/{id:4}' --state "+state+" --since state\n",
		"verify file cities "+csv+" --key-template 'city/{country}/{id:4}' --state "+state+" --values all\n")
	l.ok("", append([]string{"verify"}, args...)...)
	if out := l.ok("", append(migrate, "--since", "state")...); !strings.Contains(out, "5 records read: 0 written, 5 the same already.") {
		t.Error(out)
	}
	// Deletions: the file has one city less, and somebody has added one.
	l.ok("", "set", "cities", "city/us/0001", "theirs")
	rewrite(t, csv, strings.Replace(cities, "de,9,Ulm,128928\n", "", 1)+"it,1,Roma,2755309\n")
	out = l.ok("", append(migrate, "--since", "state", "--deletes")...)
	l.says(out, "1 key deleted that the source has no more; 1 kept", "--state "+state+" --deletes --since state\n", "verify file cities "+csv)
	r := l.fails(ExitNo, "extra: city/us/0001", "", append([]string{"verify"}, args...)...)
	if strings.Contains(r.out, "city/de/0009") || strings.Contains(r.out, "missing: ") {
		t.Error(r.out)
	}
	// An empty file is not believed.
	rewrite(t, csv, "country,id,name,people\n")
	l.fails(ExitNo, "the source has no records at all", "", append(migrate, "--since", "state", "--deletes")...)
	l.ok("", append(migrate, "--since", "state", "--deletes", "--yes")...)
	l.is(l.ok("", "scan", "cities", "--keys-only"), "city/us/0001\n")
}

func TestDeltaUsage(t *testing.T) {
	l, csv, state, args := citiesMoved(t)
	migrate := append([]string{"migrate"}, args...)
	for want, more := range map[string][]string{
		"--deletes goes with --since": {"--deletes"}, "--max-deletes and --yes go with": {"--since", "state", "--yes"}, "--max-deletes must": {"--since", "state", "--deletes", "--max-deletes=-1"},
		"are for a migration":                 {"--since", "state", "--dry-run"},
		"cannot tell what has changed":        {"--since", "12"},
		`--value was not given and is now "j`: {"--since", "state", "--value", "json"},
	} {
		l.fails(ExitUsage, want, "", append(migrate, more...)...)
	}
	l.fails(ExitUsage, "holds no migration that was loaded", "", "migrate", "file", "cities", csv, "--since", "state", "--state", t.TempDir())
	l.fails(ExitUsage, "the tree was", "", "migrate", "file", "others", csv, "--key-template", "city/{country}/{id:4}", "--since", "state", "--state", state)
}

// TestCommandsKeepSecrets: what is shown again holds no address and no token.
func TestCommandsKeepSecrets(t *testing.T) {
	e := &env{args: []string{"--token", "hush", "migrate", "redis", "my tree", "--source=redis://u:hush@h", "--since", "12", "--deletes", "-y", "--max-deletes=5", "--match", "it's *"}}
	again, compare := e.commands()
	l := &tool{t: t}
	l.is(again, `lattice --token=… migrate redis 'my tree' --source=… --deletes --match 'it'\''s *' --since state`)
	l.is(compare, `lattice --token=… verify redis 'my tree' --source=… --match 'it'\''s *' --values all`)
}

func TestLiteralPrefix(t *testing.T) {
	for template, want := range map[string]string{"": "", "{id}": "", "order/{id}": "order/", "a{{b}}/{id}": "a{b}/", "plain": "plain"} {
		if got := literalPrefix(template); got != want {
			t.Errorf("%q: %q, want %q", template, got, want)
		}
	}
}
