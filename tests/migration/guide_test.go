package migration

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/readme"
	"github.com/latticekv/lattice/tests/running"
)

// guide is the document whose commands are run.
const guide = "docs/migration.md"

// TestGuideDoesWhatItSays runs every script of the guide, one after the other,
// against sources that hold something. Only the addresses are others.
func TestGuideDoesWhatItSays(t *testing.T) {
	const count = 400
	text, err := os.ReadFile(filepath.Join(running.Root(t), guide))
	if err != nil {
		t.Fatal(err)
	}
	scripts := readme.Scripts(string(text))
	if len(scripts) < 7 {
		t.Fatalf("%d scripts: the guide shows too little, or is not read", len(scripts))
	}
	postgres := postgresOrigin(t, count)
	maria, redis, cosmos, sqlite := mariadbOrigin(t, count), redisOrigin(t, count), cosmosOrigin(t, count), sqliteOrigin(t)
	db, err := sql.Open("pgx", postgres.address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	change := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	change(`ALTER TABLE orders ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now()`)
	p := onBolt(t)
	box := newSandbox(t, p, map[string]string{
		"postgres://app:secret@db.example:5432/shop":                   postgres.address,
		"redis://:secret@cache.example:6379/0":                         redis.address,
		"mysql://app:secret@sql.example:3306/shop":                     maria.address,
		"AccountEndpoint=https://shop.example:443/;AccountKey=secret;": cosmos.address,
	})
	if err := os.Symlink(sqlite.Address, filepath.Join(box.dir, "cities.db")); err != nil {
		t.Fatal(err)
	}
	passes := 0
	for _, script := range scripts {
		if strings.Contains(script.Command, "--since state") {
			// What the pass is to bring over.
			change(`UPDATE orders SET note = 'changed', updated_at = now() WHERE id % 50 = 3`)
			change(`DELETE FROM orders WHERE id % 50 = 4`)
			passes++
		}
		box.run(t, script)
	}
	if passes != 1 {
		t.Errorf("%d delta passes", passes)
	}
	for _, o := range []struct {
		*origin
		tree string
	}{{redis, "sessions"}, {sqlite, "cities"}, {cosmos, "items"}} {
		o.check(t, p, o.tree)
	}
	// What was compared before the pass is equal after it as well.
	for _, script := range scripts {
		if strings.Contains(script.Command, "lattice verify postgres") {
			box.run(t, script)
		}
	}
}

// sandbox is a folder in which scripts run one after the other; what one
// exports the next one sees.
type sandbox struct {
	dir     string
	env     []string
	replace *strings.Replacer
}

func newSandbox(t *testing.T, p *place, addresses map[string]string) *sandbox {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(running.Build(t, "cmd/lattice"), filepath.Join(bin, "lattice")); err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for shown, real := range addresses {
		pairs = append(pairs, shown, real)
	}
	env := append(running.Environment(), "LATTICE_SERVER="+p.URL, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return &sandbox{dir: t.TempDir(), env: env, replace: strings.NewReplacer(pairs...)}
}

// run carries out a script, of which every command must succeed.
func (s *sandbox) run(t *testing.T, script readme.Step) {
	t.Helper()
	const before, after = "set -eu\nif [ -f .exports ]; then . ./.exports; fi\n", "\nexport -p >.exports\n"
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", "-c", before+s.replace.Replace(script.Command)+after)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s, line %d: %v\n%s\noutput: %s", guide, script.Line, err, script.Command, out.String())
	}
}

func TestSandboxKeepsWhatIsExported(t *testing.T) {
	box := &sandbox{dir: t.TempDir(), env: running.Environment(), replace: strings.NewReplacer("shown", "real")}
	box.run(t, readme.Step{Command: "export A='shown b'\n"})
	box.run(t, readme.Step{Command: "test \"$A\" = 'real b'\n"})
}
