package engines

import (
	"crypto/rand"
	"encoding/base64"
	"os/exec"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/tests/running"
)

// Cosmos is a running emulator of Cosmos DB. It forgives more than the service:
// it takes any key, and what works here may not work there.
type Cosmos struct {
	*running.Process
	// URL is the account's endpoint.
	URL string
	// Key is that of the account.
	Key string
	// ConnectionString names both.
	ConnectionString string
}

// serveCosmos is a program for node: it serves the module named by its argument
// on a port that the system chooses. Unlike the emulator's own program it keeps
// connections alive, so that thousands of requests do not use up the ports.
const serveCosmos = `
const { createHttpServer } = require(process.argv[1]);
const server = createHttpServer({ keepAlive: true });
server.listen(0, "127.0.0.1", () => console.log("listening on http://127.0.0.1:" + server.address().port));
`

// StartCosmos runs an emulator without databases and returns when it answers.
func StartCosmos(t testing.TB) Cosmos {
	t.Helper()
	module := install(t, "install-cosmos.sh")
	p, err := running.Supervise(t, exec.Command("node", "-e", serveCosmos, module))
	if err != nil {
		t.Fatal(err)
	}
	c := Cosmos{Process: p}
	select {
	case c.URL = <-p.Listening():
	case <-p.Exited():
		t.Fatalf("the Cosmos DB emulator ended while it started:\n%s", p.Output())
	case <-time.After(startTimeout):
		t.Fatalf("the Cosmos DB emulator does not answer:\n%s", p.Output())
	}
	showIfFailed(t, "the Cosmos DB emulator", p)
	var key [64]byte
	_, _ = rand.Read(key[:])
	c.Key = base64.StdEncoding.EncodeToString(key[:])
	c.ConnectionString = "AccountEndpoint=" + c.URL + "/;AccountKey=" + c.Key + ";"
	return c
}

// Client returns a client of the account.
func (c Cosmos) Client(t testing.TB) *azcosmos.Client {
	t.Helper()
	credential, err := azcosmos.NewKeyCredential(c.Key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(c.URL, credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
