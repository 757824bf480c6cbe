package hostile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/engines"
	"github.com/latticekv/lattice/tests/running"
)

// TestToolKeepsItsSecrets runs the tool with tokens and passwords, in vain and with
// success: neither its output, which package running searches, nor what it leaves
// in the state of a migration has any of them.
func TestToolKeepsItsSecrets(t *testing.T) {
	secret, line := adminKey(t)
	redis := engines.StartRedis(t)
	if err := redis.Client(t).Set(t.Context(), "hostile", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	running.Secret(t, secret, redis.Password, urlSecret, wrongKey)
	s := running.Start(t, []string{"LATTICE_AUTH_KEYS=" + line}, "--store=memory", "--data-dir="+t.TempDir(), "--log-level=debug")
	states := t.TempDir()
	state := func(name string) string { return filepath.Join(states, name) }
	at := closedPort(t)
	// The letters of a key end in two bits that are zero; in this one they are not,
	// so that it is another text whatever the key, and one that is well formed.
	wrong := secret[:len(secret)-1] + "B"
	for _, c := range []struct {
		name, source, token string
		args                []string
		says                string
		code                int
	}{
		{"a good token", "", secret, []string{"set", "t", "k", "v"}, "Created", 0},
		{"a wrong token", "", wrong, []string{"get", "t", "k"}, "does not accept the token", 3},
		{"a token with a space behind it", "", secret + " ", []string{"get", "t", "k"}, "v", 0},
		{"a token of two words", "", wrongKey + " " + wrongKey, []string{"get", "t", "k"}, "", 3},
		{"redis", redis.URL, secret, []string{"migrate", "redis", "sessions", "--source-env", "SRC", "--state", state("redis"), "--progress", "none"}, "verified", 0},
		{"redis again", redis.URL, secret, []string{"migrate", "redis", "sessions", "--source-env", "SRC", "--state", state("redis"), "--progress", "none"}, "Nothing was left to do", 0},
		{"redis, another password", "redis://:" + urlSecret + "@" + redis.Addr + "/0", secret, []string{"migrate", "redis", "others", "--source-env", "SRC", "--state", state("redis-2")}, "refuses the user name or the password", 3},
		{"redis away", "redis://user:" + urlSecret + "@" + at + "/0", secret, []string{"migrate", "redis", "others", "--source-env", "SRC", "--state", state("redis-3")}, "connection refused", 3},
		{"postgres away", "postgres://user:" + urlSecret + "@" + at + "/db", secret, []string{"migrate", "postgres", "others", "--source-env", "SRC", "--table", "t", "--state", state("postgres")}, "nothing listens at", 3},
		{"mysql away", "mysql://user:" + urlSecret + "@" + at + "/db", secret, []string{"migrate", "mysql", "others", "--source-env", "SRC", "--table", "t", "--state", state("mysql")}, "nothing listens at", 3},
		{"sqlserver away", "sqlserver://user:" + urlSecret + "@" + at + "?database=db", secret, []string{"migrate", "sqlserver", "others", "--source-env", "SRC", "--table", "t", "--state", state("sqlserver")}, "nothing listens at", 3},
		{"cosmos away", "AccountEndpoint=http://" + at + "/;AccountKey=" + wrongKey + ";", secret, []string{"migrate", "cosmos", "others", "--source-env", "SRC", "--database", "d", "--container", "c", "--state", state("cosmos")}, "connection refused", 3},
		{"an address that is none", "postgres://user:" + urlSecret + "@[::1:5432/db", secret, []string{"migrate", "postgres", "others", "--source-env", "SRC", "--table", "t", "--state", state("none")}, "not one of PostgreSQL", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := running.Run(t, []string{"LATTICE_SERVER=" + s.URL, "LATTICE_TOKEN=" + c.token, "SRC=" + c.source}, running.Build(t, "cmd/lattice"), c.args...)
			if err != nil {
				t.Fatal(err)
			}
			<-p.Exited()
			if p.ExitCode() != c.code || !strings.Contains(p.Output(), c.says) {
				t.Errorf("ended with %d, and says %s", p.ExitCode(), p.Output())
			}
		})
	}
	searchFiles(t, states)
}

// searchFiles looks for secrets in every file of a folder.
func searchFiles(t *testing.T, folder string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		running.NoSecrets(t, path, string(text))
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were searched: %v", files, err)
	}
}
