package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

// node is a place where a service runs, is stopped or killed, and runs again,
// at the same address and over the same storage.
type node struct {
	*running.Service
	env, args []string
	address   string
}

// onBolt is a node with a folder of its own.
func onBolt(t *testing.T) *node {
	return &node{args: []string{"--data-dir=" + filepath.Join(t.TempDir(), "data"), "--log-level=warn"}}
}

// onAzurite is a node of an emulator; nodes with the same table name share
// their trees.
func onAzurite(t *testing.T, e *azurite.Emulator, table, container string) *node {
	return &node{
		env: []string{"AZURE_STORAGE_CONNECTION_STRING=" + e.ConnectionString()},
		args: []string{
			"--store=azurite", "--table-name=" + table, "--container-name=" + container,
			"--data-dir=" + t.TempDir(), "--log-level=warn",
		},
	}
}

func (n *node) start(t *testing.T) {
	t.Helper()
	args := n.args
	if n.address != "" {
		args = append(args[:len(args):len(args)], "--listen="+n.address)
	}
	n.Service = running.Start(t, n.env, args...)
	at, err := url.Parse(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	n.address = at.Host
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
}

// treePath is the path of a resource of a tree.
func treePath(tree, resource string, query url.Values) string {
	path := "/v1/trees/" + tree + "/" + resource
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// do sends a request; the caller closes the body.
func (n *node) do(ctx context.Context, method, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return n.Client.Do(req)
}

// ask sends a request and decodes the answer, which must be a success.
func (n *node) ask(t *testing.T, method, path, body string, into any) {
	t.Helper()
	resp, err := n.do(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d, %v: %.300s", method, path, resp.StatusCode, err, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// tool is a run of the command-line tool.
type tool struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

// tool prepares a run against the node; it ends with the test.
func (n *node) tool(t *testing.T, args ...string) *tool {
	l := &tool{cmd: exec.CommandContext(t.Context(), running.Build(t, "cmd/lattice"), args...)}
	l.cmd.Env = append(os.Environ(), "LATTICE_SERVER="+n.URL, "LATTICE_TOKEN=")
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.err
	return l
}

// lattice runs the tool to a good end and returns its output.
func (n *node) lattice(t *testing.T, args ...string) []byte {
	t.Helper()
	l := n.tool(t, args...)
	if err := l.cmd.Run(); err != nil {
		t.Fatalf("lattice %v: %v\n%s%s\nthe service:\n%s", args, err, l.out.String(), l.err.String(), n.Output())
	}
	return l.out.Bytes()
}

// account is what an import says of itself.
type account struct {
	Read, Written, Rejected, Skipped, Unsettled, Settled int64
	Seconds                                              float64
	Complete                                             bool
}

func (l *tool) account(t *testing.T) account {
	t.Helper()
	var a account
	if err := json.Unmarshal(l.out.Bytes(), &a); err != nil {
		t.Fatalf("an import says %q %q: %v", l.out.String(), l.err.String(), err)
	}
	return a
}

// source is a file of rows, and what the import needs to be told of it.
type source struct {
	rows  []Row
	path  string
	flags []string
}

func (s source) args(tree string, more ...string) []string {
	args := append([]string{"import", tree, s.path, "--json", "--progress=none"}, s.flags...)
	return append(args, more...)
}

func ndjsonFile(t *testing.T, rows []Row) source {
	t.Helper()
	return newSource(t, rows, "cities.ndjson.gz", WriteNDJSON)
}

func csvFile(t *testing.T, rows []Row) source {
	t.Helper()
	return newSource(t, rows, "cities.csv", WriteCSV, "--key-template="+KeyTemplate)
}

func newSource(t *testing.T, rows []Row, name string, write func(io.Writer, []Row) error, flags ...string) source {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := write(f, rows); err != nil {
		t.Fatal(err)
	}
	return source{rows: rows, path: path, flags: flags}
}

// load imports a source as a whole.
func (n *node) load(t *testing.T, tree string, s source) {
	t.Helper()
	l := n.tool(t, s.args(tree)...)
	if err := l.cmd.Run(); err != nil {
		t.Fatalf("import: %v\n%s%s\nthe service:\n%s", err, l.out.String(), l.err.String(), n.Output())
	}
	a, want := l.account(t), int64(len(s.rows))
	if a.Read != want || a.Written != want || a.Rejected != 0 || a.Unsettled != 0 || !a.Complete {
		t.Fatalf("import of %d rows: %s", want, l.out.String())
	}
	t.Logf("imported %d rows in %.1f s, %.0f rows/s", want, a.Seconds, float64(want)/a.Seconds)
}

// timed logs how long a step took, and what that means for so many rows.
func timed(t *testing.T, what string, rows int, step func()) {
	t.Helper()
	start := time.Now()
	step()
	took, rate := time.Since(start), ""
	if took > 0 && rows > 0 {
		rate = fmt.Sprintf(", %.0f rows/s", float64(rows)/took.Seconds())
	}
	t.Logf("%s: %s%s", what, took.Round(time.Millisecond), rate)
}

// pick returns a short name for a failure message.
func pick(key string) string { return fmt.Sprintf("%.80q", key) }
