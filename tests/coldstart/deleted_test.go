package coldstart

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/latticekv/lattice/tests/azurite"
)

// named is the value of a variable in the account's environment.
func (a *account) named(t *testing.T, variable string) string {
	t.Helper()
	for _, e := range a.env {
		if value, ok := strings.CutPrefix(e, variable+"="); ok {
			return value
		}
	}
	t.Fatalf("no %s", variable)
	return ""
}

// wantNothingMade fails if anything was sent that creates or writes successfully.
func (a *account) wantNothingMade(t *testing.T) {
	t.Helper()
	for _, e := range a.Take() {
		if e.Method != http.MethodGet && e.Status < 300 {
			t.Errorf("sent %s", e)
		}
	}
}

// TestDeletedTableIsNotMadeAnewByAColdProcess: an empty one would say that no tree
// of those in the container ever was.
func TestDeletedTableIsNotMadeAnewByAColdProcess(t *testing.T) {
	a := fresh(t)
	a.checkpointed(t)
	table := a.named(t, "LATTICE_TABLE_NAME")
	tables, err := aztables.NewServiceClientFromConnectionString(azurite.Shared(t).ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.DeleteTable(t.Context(), table, nil); err != nil {
		t.Fatal(err)
	}
	a.Take()
	h := a.start(t)
	h.do(t, "GET", "/v1/trees/t/keys/"+key(1), "", 500)
	h.do(t, "GET", "/v1/trees", "", 500)
	h.do(t, "PUT", "/v1/trees/t/keys/"+key(1), "v", 500)
	h.do(t, "PUT", "/v1/trees/other", "{}", 500)
	for _, timer := range []string{"monitor", "migrations", "transactions", "checkpoint", "collect"} {
		if answer := h.do(t, "POST", "/"+timer, `{"Data":{},"Metadata":{}}`, 200); !strings.Contains(answer, `"ok":false`) {
			t.Errorf("timer %s: %s", timer, answer)
		}
	}
	a.wantNothingMade(t)
	h.logs(t, "table "+table+" is gone")
	h.logs(t, "container "+a.named(t, "LATTICE_CONTAINER_NAME")+" holds data")
}

func TestDeletedContainerIsNotMadeAnew(t *testing.T) {
	a := fresh(t)
	a.checkpointed(t)
	container := a.named(t, "LATTICE_CONTAINER_NAME")
	blobs, err := azblob.NewClientFromConnectionString(azurite.Shared(t).ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.DeleteContainer(t.Context(), container, nil); err != nil {
		t.Fatal(err)
	}
	a.Take()
	h := a.start(t)
	h.do(t, "PUT", "/v1/trees/t/keys/large", strings.Repeat("x", 400<<10), 500)
	h.logs(t, "container "+container+" is gone")
	h.do(t, "GET", "/v1/trees/t/keys/"+key(1), "", 500)
	for _, e := range a.Take() {
		if e.Service == "blob" && e.Method != http.MethodGet && e.Status < 300 {
			t.Errorf("sent %s", e)
		}
	}
}
