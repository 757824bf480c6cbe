package migration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/engines"
	"github.com/latticekv/lattice/tests/migration/oracle"
	"github.com/latticekv/lattice/tests/running"
)

// TestKeysThatExpireMeanwhileAreNoLoss has keys expire while they are read, and
// more between the reading and a comparison.
func TestKeysThatExpireMeanwhileAreNoLoss(t *testing.T) {
	const lasting, fleeting = 3000, 1500
	server := engines.StartRedis(t)
	client := server.Client(t)
	p, state := onBolt(t), t.TempDir()
	running.Build(t, "cmd/lattice") // which takes a while
	pipe := client.Pipeline()
	for i := range lasting {
		pipe.Set(t.Context(), key("lasting", i), "v", 0)
	}
	for i := range fleeting {
		// They expire over the 3 s that the reading takes, and the 3 s after.
		pipe.Set(t.Context(), key("fleeting", i), "v", time.Second+time.Duration(i)*4*time.Millisecond)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := &origin{Dataset: oracle.Dataset{Kind: oracle.Redis}, address: server.URL, secret: server.Password, flags: []string{"--source-env", addressVariable}}
	r := p.tool(t, o.environment(), o.command("migrate", "sessions", state, "--rate=1500", "--scan-count=500")...)
	if !r.isDone(t) {
		t.Fatal("the migration is not done")
	}
	a := r.report(t)
	t.Logf("%d read, %d loaded, %d expired at the source", a.Read, a.Loaded, a.Expired)
	if a.Loaded < lasting || a.Loaded > lasting+fleeting {
		t.Errorf("%d loaded", a.Loaded)
	}
	r = p.tool(t, o.environment(), o.command("verify", "sessions", state, "--values=all")...)
	if code := r.wait(); code != exitOK {
		t.Fatalf("a comparison after more keys have expired: exit code %d\n%s%s", code, r.out.String(), r.Output())
	}
	v := r.verification(t)
	if v.Total.Missing+v.Total.Extra+v.Total.Value+v.Total.Expiry != 0 || v.Total.Compared < lasting {
		t.Errorf("%+v", v.Total)
	}
}

func key(kind string, i int) string {
	return kind + ":" + strings.Repeat("x", i%5) + string(mustJSON(i))
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
