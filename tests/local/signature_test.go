package local

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	azuriteserver "github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

// TestSignatureOfTheEnvironmentServesAndIsNeverTold also kills the storage: it is
// in errors of the network that addresses are told.
func TestSignatureOfTheEnvironmentServesAndIsNeverTold(t *testing.T) {
	e, ends := azurite.Start(t), time.Now().Add(time.Hour)
	tables, err := aztables.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	ofTable, err := aztables.AccountSASSignatureValues{
		Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: ends, Permissions: "rwdlacu", ResourceTypes: "sco", Services: "t",
	}.Sign(tables)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := service.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	ofBlobs, err := sas.AccountSignatureValues{
		Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: ends, Permissions: "rwdlac", ResourceTypes: "sco",
	}.SignWithSharedKey(blobs)
	if err != nil {
		t.Fatal(err)
	}
	// What a process writes is searched for these when the test ends.
	for _, signed := range []string{ofTable.Encode(), ofBlobs.Encode()} {
		query, err := url.ParseQuery(signed)
		if err != nil {
			t.Fatal(err)
		}
		running.Secret(t, query.Get("sig"))
	}
	s := running.Start(t, []string{
		"LATTICE_TABLE_URL=" + e.TableURL() + "?" + ofTable.Encode(), "LATTICE_BLOB_URL=" + e.BlobURL() + "?" + ofBlobs.Encode(),
	}, "--store=azure", "--log-level=debug", "--request-timeout=3s", "--routing-retry-budget=1s")
	put(t, s, "a", "1")
	wantValue(t, s, "a", "1")
	if !strings.Contains(s.Output(), "by a signature that ends at "+ends.UTC().Format(time.RFC3339)) {
		t.Errorf("nobody is told when the signature ends:\n%s", s.Output())
	}
	e.Kill()
	status, body := send(t, s, "PUT", "/v1/trees/t/keys/a", "2")
	if status < 500 {
		t.Errorf("without a storage: %d %s", status, body)
	}
	running.NoSecrets(t, "the answer", body)
	eventually(t, s, func() bool { return strings.Contains(s.Output(), "connection refused") })
}
