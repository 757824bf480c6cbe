package engines

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/tests/running"
)

func TestRedisKeepsAKey(t *testing.T) {
	c := StartRedis(t).Client(t)
	if err := c.Set(t.Context(), "a\x00b", "c", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), "a\x00b").Result(); err != nil || got != "c" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestPostgresDoesNotSortByBytes(t *testing.T) {
	db := StartPostgres(t).Open(t)
	var less bool
	if err := db.QueryRowContext(t.Context(), `SELECT 'a'::text < 'B'::text`).Scan(&less); err != nil || !less {
		t.Fatalf("a < B is %v, %v", less, err)
	}
}

func TestMariaDBIgnoresCase(t *testing.T) {
	db := StartMariaDB(t).Open(t)
	for _, statement := range []string{"CREATE TABLE t (k VARCHAR(10) PRIMARY KEY)", "INSERT INTO t VALUES ('a')"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES ('A')"); err == nil {
		t.Fatal("a and A are two keys")
	}
}

func TestCosmosKeepsAnItem(t *testing.T) {
	client := StartCosmos(t).Client(t)
	if _, err := client.CreateDatabase(t.Context(), azcosmos.DatabaseProperties{ID: "d"}, nil); err != nil {
		t.Fatal(err)
	}
	database, err := client.NewDatabase("d")
	if err != nil {
		t.Fatal(err)
	}
	properties := azcosmos.ContainerProperties{ID: "c", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}}}
	if _, err := database.CreateContainer(t.Context(), properties, nil); err != nil {
		t.Fatal(err)
	}
	container, err := client.NewContainer("d", "c")
	if err != nil {
		t.Fatal(err)
	}
	partition := azcosmos.NewPartitionKeyString("p")
	if _, err := container.CreateItem(t.Context(), partition, []byte(`{"id":"i","pk":"p","n":7}`), nil); err != nil {
		t.Fatal(err)
	}
	got, err := container.ReadItem(t.Context(), partition, "i", nil)
	if err != nil || !strings.Contains(string(got.Value), `"n":7`) {
		t.Fatalf("got %s, %v", got.Value, err)
	}
}

// TestServersLeaveNothing looks for processes and folders when the tests that
// started the servers have ended.
func TestServersLeaveNothing(t *testing.T) {
	t.Setenv("TMPDIR", openFolder(t))
	starts := map[string]func(t *testing.T) *running.Process{
		"redis":    func(t *testing.T) *running.Process { return StartRedis(t).Process },
		"postgres": func(t *testing.T) *running.Process { return StartPostgres(t).Process },
		"mariadb":  func(t *testing.T) *running.Process { return StartMariaDB(t).Process },
		"cosmos":   func(t *testing.T) *running.Process { return StartCosmos(t).Process },
	}
	for name, start := range starts {
		var pid int
		t.Run(name, func(t *testing.T) { pid = start(t).PID() })
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s, process %d, is still there: %v", name, pid, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "lattice-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// openFolder returns a folder that other users can reach.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "engines-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTakenPortIsLeftToItsOwner(t *testing.T) {
	first := StartRedis(t)
	second := Redis{Password: password()}
	taken := server{
		name:    "a program that ends",
		command: func(int) *exec.Cmd { return exec.Command("false") },
		ready:   second.ping,
	}
	p, err := running.Supervise(t, taken.command(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.await(t.Context(), p, first.Addr); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Fatalf("another server's answer was taken for ours: %v", err)
	}
}

func TestFolderIsReachableOnlyIfItsParentsAre(t *testing.T) {
	dir := openFolder(t)
	inner := filepath.Join(dir, "closed", "open")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if reachable(inner) != reachable(dir) {
		t.Error("an open folder in an open one is not reachable")
	}
	if err := os.Chmod(filepath.Dir(inner), 0o700); err != nil {
		t.Fatal(err)
	}
	if reachable(inner) {
		t.Error("a folder in a closed one is reachable")
	}
}
