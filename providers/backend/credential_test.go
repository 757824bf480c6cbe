package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/latticekv/lattice/core/store"
	azuriteserver "github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/tests/azurite"
)

// sign makes a signature of the emulator's account for the services, b or t or
// both, with the permissions on table and container and what is in them.
func sign(t *testing.T, services, permissions, resources string, ends time.Time) string {
	t.Helper()
	if services == "b" {
		key, err := service.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := sas.AccountSignatureValues{
			Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: ends, Permissions: permissions, ResourceTypes: resources,
		}.SignWithSharedKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return signed.Encode()
	}
	key, err := aztables.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := aztables.AccountSASSignatureValues{
		Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: ends, Permissions: permissions, ResourceTypes: resources, Services: services,
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed.Encode()
}

// signed is a configuration of addresses with signatures.
func signed(t *testing.T, e *azurite.Emulator, table, container, permissions, resources string, ends time.Time) Config {
	t.Helper()
	return Config{
		Store: Azure, DataDir: "d", TableName: table, ContainerName: container,
		TableURL: e.TableURL() + "?" + sign(t, "t", permissions, resources, ends), BlobURL: e.BlobURL() + "/?" + sign(t, "b", permissions, resources, ends),
	}
}

// signatureOf returns what must not be told.
func signatureOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Query().Get("sig") == "" {
		t.Fatalf("no signature: %v", err)
	}
	return u.Query().Get("sig")
}

func TestSignaturesInTheAddressesServe(t *testing.T) {
	e, ends := azurite.Shared(t), time.Now().Add(time.Hour)
	table, container := e.TableName(t), e.ContainerName(t)
	b := mustOpen(t, signed(t, e, table, container, "rwdlacu", "sco", ends))
	probe(t, b)
	if want := "ends at " + ends.UTC().Format(time.RFC3339); !strings.Contains(b.Description, want) {
		t.Errorf("described as %q, want %q", b.Description, want)
	}
}

// confined is a configuration of addresses with signatures for one table and one
// container, neither of which they allow to create.
func confined(t *testing.T, e *azurite.Emulator, table, container string) Config {
	t.Helper()
	ends := time.Now().Add(time.Hour)
	tables, err := aztables.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	ofTable, err := aztables.SASSignatureValues{Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: ends, TableName: table, Permissions: "raud"}.Sign(tables)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := service.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	ofContainer, err := sas.BlobSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: ends, ContainerName: container, Permissions: "rcwdl"}.SignWithSharedKey(blobs)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Store: Azure, DataDir: "d", TableName: table, ContainerName: container,
		TableURL: e.TableURL() + "?" + ofTable, BlobURL: e.BlobURL() + "?" + ofContainer.Encode(),
	}
}

func TestSignaturesOfOneTableAndOneContainerServe(t *testing.T) {
	e := azurite.Shared(t)
	table, container := e.TableName(t), e.ContainerName(t)
	if b, err := Open(t.Context(), confined(t, e, table, container)); err == nil || !strings.Contains(err.Error(), "may not create it") {
		t.Fatalf("what does not exist: got %+v, %v", b, err)
	}
	mustOpen(t, signed(t, e, table, container, "rwdlacu", "sco", time.Now().Add(time.Hour)))
	b := mustOpen(t, confined(t, e, table, container))
	probe(t, b)
	if page, err := b.Blobs.List(t.Context(), "", ""); err != nil || len(page.Blobs) != 1 {
		t.Errorf("listed %+v, %v", page, err)
	}
	if err := b.Blobs.Delete(t.Context(), "a/blob"); err != nil {
		t.Error(err)
	}
}

func TestConnectionStringWithASignatureServes(t *testing.T) {
	e, ends := azurite.Shared(t), time.Now().Add(time.Hour)
	c := Config{
		Store: Azure, DataDir: "d", TableName: e.TableName(t), ContainerName: e.ContainerName(t),
		ConnectionString: "TableEndpoint=" + e.TableURL() + ";BlobEndpoint=" + e.BlobURL() + ";SharedAccessSignature=" + sign(t, "bt", "rwdlacu", "sco", ends),
	}
	b := mustOpen(t, c)
	probe(t, b)
	if !strings.Contains(b.Description, "ends at") {
		t.Errorf("described as %q", b.Description)
	}
}

func TestReadOnlySignatureReadsAndSaysWhyItDoesNotWrite(t *testing.T) {
	e, ends := azurite.Shared(t), time.Now().Add(time.Hour)
	table, container := e.TableName(t), e.ContainerName(t)
	probe(t, mustOpen(t, signed(t, e, table, container, "rwdlacu", "sco", ends)))
	c := signed(t, e, table, container, "rl", "sco", ends)
	b := mustOpen(t, c)
	expect(t, b)
	_, row := b.Table.Apply(t.Context(), "p", []store.Op{store.Insert("other", nil)})
	_, data := b.Blobs.Put(t.Context(), "other", nil, store.Create)
	for what, err := range map[string]error{"row": row, "blob": data, "deletion": b.Blobs.Delete(t.Context(), "a/blob")} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "lacks the permission") {
			t.Errorf("%s: got %v, want the reason", what, err)
		}
		for _, address := range []string{c.TableURL, c.BlobURL} {
			if strings.Contains(fmt.Sprint(err), signatureOf(t, address)) {
				t.Errorf("%s: the error tells the signature", what)
			}
		}
	}
	expect(t, b)
}

func TestRefusedSignaturesAreExplained(t *testing.T) {
	e := azurite.Shared(t)
	table, container := e.TableName(t), e.ContainerName(t)
	soon := time.Now().Add(time.Hour)
	for name, tc := range map[string]struct {
		config Config
		want   string
	}{
		"ended":            {signed(t, e, table, container, "rwdlacu", "sco", time.Now().Add(-time.Minute)), "ended at"},
		"forged":           {forged(signed(t, e, table, container, "rwdlacu", "sco", soon)), "403"},
		"of other service": {swapped(signed(t, e, table, container, "rwdlacu", "sco", soon)), "403"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			b, err := Open(ctx, tc.config)
			if err == nil {
				t.Fatalf("opened %s", b.Description)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			for _, address := range []string{tc.config.TableURL, tc.config.BlobURL} {
				if strings.Contains(fmt.Sprint(err), signatureOf(t, address)) {
					t.Errorf("the error tells the signature: %v", err)
				}
			}
		})
	}
}

// forged claims to live longer than was signed.
func forged(c Config) Config {
	c.TableURL = strings.Replace(c.TableURL, "se=20", "se=21", 1)
	return c
}

func swapped(c Config) Config {
	_, table, _ := strings.Cut(c.TableURL, "?")
	at, blobs, _ := strings.Cut(c.BlobURL, "?")
	c.TableURL, c.BlobURL = strings.Replace(c.TableURL, table, blobs, 1), at+"?"+table
	return c
}

func TestExpiryOfTheFirstSignatureCounts(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	first, err := checkExpiry(now, "se=2030-01-03&sig=x", "se=2030-01-02&sig=x", "sig=x")
	if err != nil || !first.Equal(now.AddDate(0, 0, 1)) {
		t.Errorf("got %s, %v", first, err)
	}
	if none, err := checkExpiry(now, "sig=x"); err != nil || !none.IsZero() {
		t.Errorf("got %s, %v", none, err)
	}
	if _, err := checkExpiry(now, "se=2030-01-03&sig=x", "se=2030-01-01&sig=x"); err == nil || !strings.Contains(err.Error(), "2030-01-01T00:00:00Z") {
		t.Errorf("got %v", err)
	}
}

// TestManagedIdentityOfTheEnvironmentIsAsked plays the endpoint by which function
// apps hand out tokens of their identities.
func TestManagedIdentityOfTheEnvironmentIsAsked(t *testing.T) {
	asked := make(chan *http.Request, 8)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"token","expires_on":"%d","resource":"x","token_type":"Bearer"}`, time.Now().Add(2*time.Hour).Unix())
	}))
	defer endpoint.Close()
	for _, name := range []string{"AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("IDENTITY_ENDPOINT", endpoint.URL)
	t.Setenv("IDENTITY_HEADER", "hush")
	t.Setenv("AZURE_CLIENT_ID", "11111111-2222-3333-4444-555555555555")
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
	credential, err := identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := credential.(*azidentity.DefaultAzureCredential); !ok {
		t.Errorf("a %T, which the environment cannot choose", credential)
	}
	token, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
	if err != nil || token.Token != "token" {
		t.Fatalf("got %+v, %v", token, err)
	}
	r := <-asked
	if got := r.URL.Query(); got.Get("client_id") != "11111111-2222-3333-4444-555555555555" || got.Get("resource") != "https://storage.azure.com" || r.Header.Get("X-Identity-Header") != "hush" {
		t.Errorf("asked for %s with %v", r.URL, r.Header)
	}
}
