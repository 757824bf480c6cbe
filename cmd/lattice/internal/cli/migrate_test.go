package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/migrate"
	"github.com/latticekv/lattice/migrate/source"
)

const cities = "country,id,name,people\nfr,2,Lyon,522228\nfr,1,Paris,2133111\nde,10,Köln,1073096\nde,9,Ulm,128928\n"

func TestMigrateFile(t *testing.T) {
	l, s := fake(t)
	csv := file(t, "cities.csv", cities)
	state := t.TempDir()
	args := []string{"migrate", "file", "cities", csv, "--key-template", "city/{country}/{id:4}", "--numbers", "--state", state}
	out := l.ok("", append(args, "--preview", "2")...)
	for _, want := range []string{"city/fr/0001", "4 records read: 4 loaded in 1 chunk.", "Tree cities has 4 live keys.", "Migration completed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	l.is(l.ok("", "scan", "cities", "--keys-only"), "city/de/0009\ncity/de/0010\ncity/fr/0001\ncity/fr/0002\n")
	if v, _ := s.Value("cities", "city/de/0010"); string(v) != `{"country":"de","id":10,"name":"Köln","people":1073096}` {
		t.Errorf("%s", v)
	}
	// What is done is not done again.
	if out := l.ok("", args...); !strings.Contains(out, "4 records read: 4 loaded") || s.Requests("PUT chunk") != 1 {
		t.Errorf("%q, %d chunks", out, s.Requests("PUT chunk"))
	}
	l.fails(ExitUsage, `--value was not given and is now "column:name"`, "", append(args, "--value", "column:name")...)
	l.fails(ExitNo, "the tree is not empty", "", "migrate", "file", "cities", csv, "--state", t.TempDir())
}

func TestMigrateStopsAtRejects(t *testing.T) {
	l, s := fake(t)
	csv := file(t, "cities.csv", cities+"it,,Roma,2755309\nit,a/b,Pisa,1\nfr,1,Paris again,1\n")
	state := t.TempDir()
	args := []string{"migrate", "file", "cities", csv, "--key-template", "city/{country}/{id}", "--state", state}
	r := l.fails(ExitNo, "too many rejected records: 3, and 0 are allowed", "", args...)
	for _, want := range []string{"rejected: cities.csv:6: field \"id\", part of the key, is empty", "rejected: cities.csv:7: ", "cities.csv:8: its key is that of cities.csv:3"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%q lacks %q", r.err, want)
		}
	}
	if s.Len("cities") != 0 || strings.Contains(r.out, "completed in") {
		t.Fatalf("%d keys were loaded: %s", s.Len("cities"), r.out)
	}
	r = l.fails(ExitNo, "7 records read: 4 loaded in 1 chunk, 3 rejected", "", append(args, "--max-rejects=-1")...)
	if s.Len("cities") != 4 || !strings.Contains(r.out, "Migration completed") {
		t.Fatalf("%d keys: %s", s.Len("cities"), r.out)
	}
	if lines := strings.Count(readString(t, filepath.Join(state, "rejects.ndjson")), "\n"); lines != 3 {
		t.Errorf("%d rejects are listed", lines)
	}
}

func TestMigrateDryRun(t *testing.T) {
	l, s := fake(t)
	csv := file(t, "cities.csv", cities+"de,9,Ulm,128928\nde,,x,1\n")
	state := filepath.Join(t.TempDir(), "state")
	args := []string{"migrate", "file", "cities", csv, "--key-template", "city/{country}/{id:4}", "--state", state, "--dry-run"}
	r := l.fails(ExitNo, "", "", args...)
	for _, want := range []string{"6 records read: 4 to load in about 1 chunk, 1 rejected, 1 seen twice, 0 expired", "city/de/0009\n  city/de/0010\n  city/fr/0001",
		"a/a/9  4 keys, such as city/de/0009", "First key that comes twice: cities.csv:5 and cities.csv:6", "cities.csv:7: field \"id\""} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q lacks %q", r.out, want)
		}
	}
	if s.Requests("PUT bulk-load") != 0 {
		t.Error("a dry run began a load")
	}
	if left, err := os.ReadDir(filepath.Dir(state)); err != nil || len(left) != 0 {
		t.Errorf("a dry run left %v, %v", left, err)
	}
	if out := l.ok("", append(args, "--sample", "3")...); !strings.Contains(out, "Of the first 3 records: 3 to load") {
		t.Error(out)
	}
}

// Each line is an object, and the last one is the report.
func TestMigrateForPrograms(t *testing.T) {
	l, _ := fake(t)
	csv := file(t, "cities.csv", cities)
	out := l.ok("", "--json", "migrate", "file", "cities", csv, "--key-template", "{country}/{id}", "--state", t.TempDir())
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last struct {
		Report struct {
			Complete                              bool
			Read, Loaded, TotalLiveKeys, Rejected int64
		}
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("%q is no JSON", line)
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if r := last.Report; !r.Complete || r.Read != 4 || r.Loaded != 4 || r.TotalLiveKeys != 4 {
		t.Fatalf("%s", out)
	}
}

func TestMigrateUsage(t *testing.T) {
	l, _ := fake(t)
	csv := file(t, "cities.csv", cities)
	for want, args := range map[string][]string{
		"--sample goes with --dry-run":     {"--sample", "3"},
		"--max-rejects must be":            {"--max-rejects=-2"},
		"character 7: there is no field":   {"--key-template", "city/{nr}"},
		"needs a unit":                     {"--ttl-column", "people"},
		"json or column:NAME":              {"--value", "xml"},
		"--rate must be a positive number": {"--rate=-1"},
	} {
		l.fails(ExitUsage, want, "", append([]string{"migrate", "file", "t", csv, "--state", t.TempDir()}, args...)...)
	}
}

func TestAddressStaysOutOfTheProcessList(t *testing.T) {
	lookup := func(name string) (string, bool) { return "redis://u:secret@h/0", name == "SRC" }
	e := &env{Console: Console{In: strings.NewReader(" from-stdin\n")}}
	for want, a := range map[string]address{
		"redis://u:secret@h/0": {SourceEnv: "SRC"}, "from-stdin": {SourceFile: "-"}, "from-file": {SourceFile: file(t, "a", "from-file\n")}, "plain": {Source: "plain"},
	} {
		if got, err := a.resolve(e, lookup); err != nil || got != want {
			t.Errorf("%+v: %q, %v", a, got, err)
		}
	}
	for _, a := range []address{{}, {Source: "a", SourceEnv: "SRC"}, {SourceEnv: "NONE"}, {SourceFile: file(t, "b", " ")}} {
		if got, err := a.resolve(e, lookup); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %q, %v", a, got, err)
		}
	}
}

// The differing keys are named, and nothing is called completed.
func TestMigrateTellsWhatDiffers(t *testing.T) {
	l, s := fake(t)
	state := t.TempDir()
	args := []string{"migrate", "file", "cities", file(t, "cities.csv", cities), "--key-template", "{country}/{id}", "--state", state}
	s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/commit") {
			s.Intercept = nil
			l.ok("", "set", "cities", "fr/1", "other")
			l.ok("", "delete", "cities", "fr/2")
			l.ok("", "set", "cities", "fr/3", "new")
		}
		return false
	}
	r := l.fails(ExitNo, "the tree differs from the source", "", args...)
	for _, want := range []string{"value differs: fr/1 (cities.csv:3)", "missing: fr/2 (cities.csv:2)", "extra: fr/3", "Not completed."} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q lacks %q", r.out, want)
		}
	}
	l.fails(ExitNo, "1 missing, 1 extra, 1 with another value", "", args...)
}

// A signal stops in good order, and the same command goes on.
func TestMigrateIsInterrupted(t *testing.T) {
	l, s := fake(t)
	args := []string{"migrate", "file", "cities", file(t, "cities.csv", cities), "--key-template", "{country}/{id}", "--state", t.TempDir(), "--chunk-entries", "1"}
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/chunks/2") {
			cancel(ErrInterrupted)
		}
		return false
	}
	l.ctx = ctx
	r := l.fails(ExitInterrupted, "the same command goes on", "", args...)
	if strings.Contains(r.out, "completed in") {
		t.Error(r.out)
	}
	l.ctx, s.Intercept = t.Context(), nil
	if out := l.ok("", args...); !strings.Contains(out, "4 records read: 4 loaded in 4 chunks") || s.Len("cities") != 4 {
		t.Error(out)
	}
}

// MIGRATION-LESSONS 13: the first line comes within two seconds, whatever the
// migration waits for, and each phase has a line of its own.
func TestMigrateIsNeverSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &safeBuffer{}
		c := newMigrateConsole(&env{Console: Console{Err: out, Out: out}}, progress.Lines)
		c.phase("connect")
		time.Sleep(1900 * time.Millisecond)
		if got := out.String(); got != "connect: 0 rows, 0 rows/s\n" {
			t.Errorf("%q", got)
		}
		c.notify(migrate.Event{Kind: migrate.EventPhase, Text: "read"})
		c.stats.Total.Store(1000)
		for range 10 {
			c.stats.Done.Add(50)
			c.stats.Bytes.Add(5 << 10)
			time.Sleep(490 * time.Millisecond)
		}
		c.stats.Rejected.Add(1)
		c.notify(migrate.Event{Kind: migrate.EventReject, Text: "rejected: row 7", Fault: &source.Fault{}})
		time.Sleep(13500 * time.Millisecond)
		c.stop()
		lines := strings.Split(out.String(), "\n")
		for _, want := range []string{"read: 350 rows, 116 rows/s, 35.0 KiB, 35%, 6s left", "rejected: row 7", "read: 500 rows, 0 rows/s, 50.0 KiB, 50%, 1 failed, nothing has moved for 13s"} {
			if !slices.Contains(lines, want) {
				t.Errorf("%q lacks %q", lines, want)
			}
		}
	})
}

func TestMigrateInTheOrderOfTheSource(t *testing.T) {
	l, s := fake(t)
	args := func(content string, more ...string) []string {
		return append([]string{"migrate", "file", "cities", file(t, "cities.csv", content), "--key-template", "{id:4}", "--order", "source", "--state", t.TempDir()}, more...)
	}
	l.fails(ExitNo, "key \"0001\" of cities.csv:3 follows key \"0002\" of cities.csv:2", "", args(cities)...)
	if s.Len("cities") != 0 {
		t.Fatal("something was loaded")
	}
	l.ok("", "loads", "abort", "cities", loadOf(t, l))
	if out := l.ok("", args("id\n1\n2\n2\n10\n")...); !strings.Contains(out, "4 records read: 3 loaded in 1 chunk, 1 seen twice") {
		t.Error(out)
	}
}

// loadOf is the operation id in the message of a load that is refused because
// another one is open.
func loadOf(t *testing.T, l *tool) string {
	t.Helper()
	r := l.run("", "migrate", "file", "cities", file(t, "c.csv", cities), "--key-template", "{id:4}", "--state", t.TempDir())
	id := regexp.MustCompile(`migrate-[0-9A-Z]+`).FindString(r.err)
	if r.code != ExitNo || id == "" {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	return id
}
