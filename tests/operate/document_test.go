package operate

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/tests/readme"
	"github.com/latticekv/lattice/tests/running"
)

// guide is the document.
const guide = "docs/operate.md"

func read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(running.Root(t), guide))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// place is a service, and a folder in which scripts are run against it.
type place struct {
	*running.Service
	dir string
	env []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(running.Build(t, "cmd/lattice"), filepath.Join(bin, "lattice")); err != nil {
		t.Fatal(err)
	}
	s := running.Start(t, nil, "--data-dir="+filepath.Join(t.TempDir(), "data"))
	env := append(running.Environment(), "LATTICE_SERVER="+s.URL, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return &place{s, t.TempDir(), env}
}

// run carries a script out and returns what it wrote, and how it ended.
func (p *place) run(t *testing.T, script string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (p *place) must(t *testing.T, script string) string {
	t.Helper()
	out, err := p.run(t, script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// pairs is how many keys the writers keep equal to a partner by atomic batches.
const pairs = 50

// write goes on until told to stop: in each batch a pair of keys gets one value.
func (p *place) write(t *testing.T, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		body := fmt.Sprintf(`{"atomic":true,"operations":[{"op":"set","key":"a/%[1]d","text":"%[2]d"},{"op":"set","key":"b/%[1]d","text":"%[2]d"}]}`, n%pairs, n)
		resp, err := p.Client.Post(p.URL+"/v1/trees/orders/batch", "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		// While the script replaces the tree it is deleted for a moment.
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict && resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a write was answered with %d", resp.StatusCode)
		}
	}
}

// TestGuideDoesWhatItSays runs its scripts one after the other. The backups are
// made while the tree is written to.
func TestGuideDoesWhatItSays(t *testing.T) {
	scripts := readme.Scripts(read(t))
	if len(scripts) < 5 {
		t.Fatalf("%d scripts: the guide shows too little, or is not read", len(scripts))
	}
	p := newPlace(t)
	p.must(t, `i=0; while [ $i -lt 1000 ]; do printf '{"key":"k/%05d","text":"value %d"}\n' $i $i; i=$((i+1)); done | lattice import orders - --format ndjson --progress none`)
	p.must(t, `lattice set orders expires soon --ttl 1h; lattice set other k v`)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { p.write(t, stop) })
	backedUp := false
	for _, script := range scripts {
		if !backedUp && strings.Contains(script.Command, "lattice load") {
			close(stop) // what is restored is compared with the backup, not with what came later
			writer.Wait()
			backedUp = true
		}
		if out, err := p.run(t, script.Command); err != nil {
			t.Fatalf("line %d: %v\n%s\n%s", script.Line, err, script.Command, out)
		}
	}
	if !backedUp {
		t.Fatal("the guide restores nothing")
	}
	p.checkRestored(t)
}

// checkRestored looks at the tree that the guide restored: every entry that stood
// still is there, and the pairs are whole.
func (p *place) checkRestored(t *testing.T) {
	t.Helper()
	for _, tree := range []string{"orders", "orders-restored"} {
		if n := strings.TrimSpace(p.must(t, "lattice count "+tree+" --prefix k/")); n != "1000" {
			t.Errorf("%s has %s of 1000 keys", tree, n)
		}
		sides := [2]map[string]string{{}, {}}
		for i, side := range []string{"a", "b"} {
			for line := range strings.Lines(p.must(t, "lattice scan "+tree+" --prefix "+side+"/")) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
				sides[i][strings.TrimPrefix(key, side)] = value
			}
		}
		if len(sides[0]) == 0 || fmt.Sprint(sides[0]) != fmt.Sprint(sides[1]) {
			t.Errorf("%s has halves of batches: %v and %v", tree, sides[0], sides[1])
		}
	}
	if out := p.must(t, "lattice get orders expires --json"); !strings.Contains(out, "expiresAt") {
		t.Errorf("the expiry is lost: %s", out)
	}
	if out := p.must(t, "cd backup/all && ls && sha256sum --quiet -c SHA256SUMS"); out != "SHA256SUMS\norders.ndjson.gz\norders.settings.json\nother.ndjson.gz\nother.settings.json\n" {
		t.Errorf("all trees are %q", out)
	}
}

// TestBackupOfAllTreesFailsWithItsSteps: a list that cannot be had is no empty one.
func TestBackupOfAllTreesFailsWithItsSteps(t *testing.T) {
	p := newPlace(t)
	p.must(t, "lattice set orders k v")
	for _, script := range readme.Scripts(read(t)) {
		if !strings.Contains(script.Command, "lattice trees list") {
			continue
		}
		for _, step := range []string{"trees list", "export", "trees show"} {
			hurt := strings.ReplaceAll(script.Command, "lattice "+step, "lattice --server http://127.0.0.1:1 "+step)
			if out, err := p.run(t, hurt+"\ntrue"); err == nil {
				t.Errorf("without %s it succeeds: %s", step, out)
			}
		}
		p.must(t, script.Command)
		return
	}
	t.Fatal("the guide shows no backup of all trees")
}

// TestDamagedBackupIsRefused: by its checksum, and by those who read it.
func TestDamagedBackupIsRefused(t *testing.T) {
	p := newPlace(t)
	p.must(t, `for i in 1 2; do head -c 9000 /dev/urandom | lattice set orders "$i" -; done
lattice export orders o.ndjson.gz --snapshot --progress none; sha256sum o.ndjson.gz >o.sum
gunzip -c o.ndjson.gz >o.ndjson; head -c 9000 o.ndjson.gz >cut; mv cut o.ndjson.gz; lattice set orders late late`)
	for script, want := range map[string]string{
		"sha256sum -c o.sum":                                    "FAILED",
		"lattice load back o.ndjson.gz --progress none":         "cut off or damaged",
		"lattice verify export orders o.ndjson.gz":              "cut off or damaged",
		"lattice export none o2.ndjson.gz --snapshot":           "tree_not_found",
		"lattice export orders no/folder.ndjson --snapshot":     "does not exist",
		"lattice load orders --progress none <o.ndjson":         "tree_not_empty",
		"lattice trees recover orders":                          "not deleted",
		"lattice trees create x && lattice trees purge x --yes": "not deleted",
	} {
		if out, err := p.run(t, script); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q\n%s", script, err, want, out)
		}
	}
	if out, err := p.run(t, "lattice count back"); err == nil && strings.TrimSpace(out) != "0" {
		t.Errorf("half a backup was loaded: %s", out)
	}
}

// TestOptionsOfTheGuideHaveTheirDefaults compares the table of sizes.
func TestOptionsOfTheGuideHaveTheirDefaults(t *testing.T) {
	document, checked := read(t), 0
	for _, d := range options.Describe() {
		for line := range strings.Lines(document) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			if len(cells) != 3 || cells[1] != "`"+d.Name+"`" {
				continue
			}
			checked++
			if got := strings.ReplaceAll(strings.TrimSuffix(cells[2], " |"), " ", ""); got != strings.ReplaceAll(d.Default, " ", "") {
				t.Errorf("%s is %s by default, the guide says %s", d.Name, d.Default, got)
			}
		}
	}
	if checked < 5 {
		t.Errorf("%d options were compared", checked)
	}
}
