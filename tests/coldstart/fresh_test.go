package coldstart

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	azuriteserver "github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/tests/running"
)

// TestReadsOfAFreshAccountCreateNothing: neither table nor container.
func TestReadsOfAFreshAccountCreateNothing(t *testing.T) {
	a := fresh(t)
	h := a.start(t)
	h.do(t, "GET", "/readyz", "", 200)
	h.do(t, "GET", "/v1/trees/t/keys/k", "", 404)
	if body := h.do(t, "GET", "/v1/trees", "", 200); !strings.Contains(body, `"trees":[]`) {
		t.Errorf("trees of a fresh account: %s", body)
	}
	for _, e := range a.Take() {
		if e.Method != http.MethodGet {
			t.Errorf("a read sent %s", e)
		}
	}
	// A tick writes down that it ran. Its row is the first one, so that table and
	// container are made; but there is nothing to put into the container.
	for _, timer := range []string{"monitor", "migrations", "transactions", "checkpoint", "collect"} {
		h.tick(t, timer)
	}
	for _, e := range a.Take() {
		if e.Service == "blob" && e.Method != http.MethodGet && !strings.Contains(e.String(), " container ") {
			t.Errorf("a tick with nothing to do sent %s", e)
		}
	}
}

// TestTwoProcessesFillAFreshAccountAtOnce: neither knows of the other, and every
// first write arrives.
func TestTwoProcessesFillAFreshAccountAtOnce(t *testing.T) {
	a := fresh(t)
	instances := []*handler{a.start(t), a.start(t)}
	const writers = 12
	large := strings.Repeat("x", 400<<10) // goes to a blob
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, h := range instances {
		for w := range writers {
			wg.Go(func() {
				<-start
				body := "small"
				if w%4 == 0 {
					body = large
				}
				h.do(t, "PUT", fmt.Sprintf("/v1/trees/t%d/keys/%d-%d", w%3, i, w), body, 201)
			})
		}
	}
	close(start)
	wg.Wait()
	made := map[string]int{}
	for _, e := range a.Take() {
		if e.Method == http.MethodPost && e.Target == "Tables" || strings.Contains(e.Target, "restype") || strings.HasSuffix(e.Target, " container") {
			made[fmt.Sprint(e.Service, " ", e.Status)]++
		}
	}
	t.Logf("creations: %v", made)
	if made["table 201"]+made["table 204"] != 1 || made["blob 201"] != 1 || made["table 409"] > 1 || made["blob 409"] > 1 {
		t.Errorf("creations: %v, want one of each, and at most one more that found it", made)
	}
	for tree := range 3 {
		want := fmt.Sprintf(`"count":%d,`, len(instances)*writers/3)
		if body := instances[tree%2].do(t, "GET", fmt.Sprintf("/v1/trees/t%d/count", tree), "", 200); !strings.Contains(body, want) {
			t.Errorf("tree %d: %s, want %s", tree, body, want)
		}
	}
	if err := instances[0].Stop(); err != nil {
		t.Error(err)
	}
}

// TestMissingPermissionIsToldToTheOperator: the log says what to do, the caller is
// told to come back, and when it is done the same process serves.
func TestMissingPermissionIsToldToTheOperator(t *testing.T) {
	a := fresh(t)
	key, err := aztables.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	sas, err := aztables.AccountSASSignatureValues{
		Protocol: aztables.SASProtocolHTTPSandHTTP, StartTime: time.Now().Add(-time.Hour), ExpiryTime: time.Now().Add(time.Hour),
		Permissions: "rdlau", ResourceTypes: "sco", Services: "bt",
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	limited := a.Through(fmt.Sprintf("TableEndpoint=%s;BlobEndpoint=%s;SharedAccessSignature=%s", a.tableURL, a.blobURL, sas.Encode()))
	h := a.start(t, "AZURE_STORAGE_CONNECTION_STRING="+limited, "LATTICE_REQUEST_TIMEOUT=2s", "LATTICE_ROUTING_RETRY_BUDGET=1s")
	h.do(t, "GET", "/v1/trees/t/keys/k", "", 404)
	body := h.do(t, "PUT", "/v1/trees/t/keys/k", "v", 503)
	if strings.Contains(body, "permission") || !strings.Contains(body, `"unavailable"`) {
		t.Errorf("the caller is told %s", body)
	}
	for _, want := range []string{"may not create it", "az storage container create", "Storage Blob Data Contributor"} {
		h.logs(t, want)
	}
	running.NoSecrets(t, "the log", h.Output())
	// Another credential makes the table.
	a.start(t).do(t, "PUT", "/v1/trees/t/keys/k", "v", 201)
	h.do(t, "PUT", "/v1/trees/t/keys/k", "v", 200)
}
