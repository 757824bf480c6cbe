package migration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/engines"
	"github.com/latticekv/lattice/tests/migration/oracle"
	"github.com/latticekv/lattice/tests/running"
)

// addressVariable names the environment variable that tells the tool where the
// source is.
const addressVariable = "SOURCE_ADDRESS"

// origin is a source that holds a dataset.
type origin struct {
	oracle.Dataset
	// address is what the tool is told, by the environment.
	address string
	// secret is what the tool must never show.
	secret string
	// flags are those of the source, with its address.
	flags []string
	// after are arguments behind the tree.
	after []string
}

// command is the arguments that migrate the dataset into a tree; verb is
// "migrate" or "verify".
func (o *origin) command(verb, tree, state string, more ...string) []string {
	args := append([]string{verb, o.Kind, tree}, o.after...)
	return append(append(append(args, o.flags...), "--state", state, "--json", "--progress=none"), more...)
}

// environment is that of the tool.
func (o *origin) environment() []string { return []string{addressVariable + "=" + o.address} }

// judge runs the program that fills and compares.
func (o *origin) judge(t *testing.T, task string, args ...string) error {
	t.Helper()
	text, err := json.Marshal(o.Dataset)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), running.Build(t, "tests/migration/judge"), append([]string{task, string(text)}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (o *origin) fill(t *testing.T) *origin {
	t.Helper()
	if err := o.judge(t, "fill"); err != nil {
		t.Fatal(err)
	}
	return o
}

// check compares a tree with the dataset.
func (o *origin) check(t *testing.T, p *place, tree string) {
	t.Helper()
	if err := o.judge(t, "verify", p.service.URL, tree); err != nil {
		t.Fatalf("tree %s: %v", tree, err)
	}
}

// The sources, with as many records as asked for.

func redisOrigin(t *testing.T, count int) *origin {
	t.Helper()
	server := engines.StartRedis(t)
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.Redis, Seed: 1, Count: count, Base: time.Now(), Address: server.URL},
		address: server.URL, secret: server.Password, flags: []string{"--source-env", addressVariable, "--binary-keys=percent"},
	}
	return o.fill(t)
}

func postgresOrigin(t *testing.T, count int) *origin {
	t.Helper()
	server := engines.StartPostgres(t)
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.Postgres, Seed: 2, Count: count, Address: server.DSN},
		address: server.DSN, secret: server.Password,
		flags: []string{"--source-env", addressVariable, "--table=orders", "--key-template", oracle.OrderTemplate},
	}
	return o.fill(t)
}

func mariadbOrigin(t *testing.T, count int) *origin {
	t.Helper()
	server := engines.StartMariaDB(t)
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.MySQL, Seed: 3, Count: count, Address: server.DSN},
		address: server.URL, secret: server.Password,
		flags: []string{"--source-env", addressVariable, "--table=orders", "--key-template", oracle.OrderTemplate},
	}
	return o.fill(t)
}

func cosmosOrigin(t *testing.T, count int) *origin {
	t.Helper()
	server := engines.StartCosmos(t)
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.Cosmos, Seed: 4, Count: count, Address: server.URL, Key: server.Key},
		address: server.ConnectionString, secret: server.Key,
		flags: []string{"--source-env", addressVariable, "--database=shop", "--container=items", "--page-size=5000", "--key-template", oracle.ItemTemplate},
	}
	return o.fill(t)
}

// sqliteOrigin is the public dataset.
func sqliteOrigin(t *testing.T) *origin {
	t.Helper()
	cities, err := exec.CommandContext(t.Context(), filepath.Join(running.Root(t), "scripts", "install-dataset.sh")).Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cities.db")
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.SQLite, Address: file, Cities: strings.TrimSpace(string(cities))},
		flags:   []string{"--table=cities", "--key-template", oracle.CityTemplate}, after: []string{file},
	}
	return o.fill(t)
}

// fileOrigin is a file of NDJSON.
func fileOrigin(t *testing.T, count int) *origin {
	t.Helper()
	file := filepath.Join(t.TempDir(), "orders.ndjson")
	o := &origin{
		Dataset: oracle.Dataset{Kind: oracle.File, Seed: 5, Count: count, Address: file},
		flags:   []string{"--key-template", oracle.OrderTemplate}, after: []string{file},
	}
	return o.fill(t)
}

// report is the account that the tool gives in the end.
type report struct {
	Phase      string
	Complete   bool
	Read       int64
	Mapped     int64
	Rejected   int64
	Duplicates int64
	Expired    int64 `json:"expiredAtSource"`
	Loaded     int64
	Expiring   int64
	Chunks     int64
	LiveKeys   int64 `json:"totalLiveKeys"`
	OverLimit  int64
	Verified   *bool
	Rejects    string
	Lossy      []struct {
		Field, What string
		Count       int64
	} `json:"lossyConversions"`
}

// report reads the account off the end of the output.
func (r *run) report(t *testing.T) report {
	t.Helper()
	var last string
	for line := range strings.Lines(r.out.String()) {
		last = line
	}
	var out struct{ Report *report }
	if err := json.Unmarshal([]byte(last), &out); err != nil || out.Report == nil {
		t.Fatalf("no report at the end: %v\n%s%s", err, r.out.String(), r.Output())
	}
	return *out.Report
}

// keepsSecret looks for the secret in what the tool printed and left behind.
func (o *origin) keepsSecret(t *testing.T, r *run, state string) {
	t.Helper()
	if o.secret == "" {
		return
	}
	if strings.Contains(r.out.String()+r.Output(), o.secret) {
		t.Errorf("the tool shows the secret:\n%s%s", r.out.String(), r.Output())
	}
	err := filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), o.secret) {
			t.Errorf("the secret stands in %s", path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}
