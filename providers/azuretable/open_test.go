package azuretable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

// tokens hands out tokens that name their scopes, or fails.
type tokens struct{ err error }

func (s tokens) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if s.err != nil {
		return azcore.AccessToken{}, s.err
	}
	return azcore.AccessToken{Token: strings.Join(o.Scopes, " "), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func identified(t *testing.T, s tokens, script ...azfake.Answer) (*Table, *azfake.Service) {
	t.Helper()
	service := azfake.New(t, script...)
	table, err := New(t.Context(), Options{ServiceURL: "https://acc.table.core.windows.net", Credential: s, TableName: "tab", Lazy: true, Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	return table, service
}

func TestIdentityIsUsed(t *testing.T) {
	table, service := identified(t, tokens{}, ok("tag"))
	if _, err := table.Apply(t.Context(), "part", oneOp); err != nil {
		t.Fatal(err)
	}
	if got := service.Seen()[0].Header.Get("Authorization"); got != "Bearer "+storageAudience {
		t.Fatalf("authorization %q", got)
	}
}

// expiring hands out numbered tokens that live for an hour.
type expiring struct{ given int }

func (s *expiring) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	s.given++
	return azcore.AccessToken{Token: fmt.Sprint(s.given), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokenIsKeptAndReplacedBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := azfake.New(t, ok("tag"))
		table, err := New(t.Context(), Options{ServiceURL: "https://acc.table.core.windows.net", Credential: &expiring{}, TableName: "tab", Lazy: true, Transport: service})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"1", "1", "2"} {
			if i == 2 {
				// A clock that stands still for the test; a minute is left.
				<-time.After(59 * time.Minute)
			}
			if _, err := table.Apply(t.Context(), "part", oneOp); err != nil {
				t.Fatal(err)
			}
			if got := service.Seen()[i].Header.Get("Authorization"); got != "Bearer "+want {
				t.Errorf("request %d has authorization %q, want token %s", i, got, want)
			}
		}
	})
}

func TestMissingTokenHadNoEffect(t *testing.T) {
	table, service := identified(t, tokens{err: errors.New("no token")}, ok("tag"))
	_, err := table.Apply(t.Context(), "part", oneOp)
	wantOnly(t, err, store.ErrUnavailable)
	if n := len(service.Seen()); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

// TestSignatureAgreesWithTheSDK signs what the SDK has signed.
func TestSignatureAgreesWithTheSDK(t *testing.T) {
	key, err := newSharedKey("acc", fakeKey)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	service := azfake.New(t, azfake.Answer{Do: func(r *http.Request) (*http.Response, error) {
		checked++
		if got, want := "SharedKeyLite acc:"+key.signature(r.Header.Get("x-ms-date"), r), r.Header.Get("Authorization"); got != want {
			t.Errorf("%s: signed %q, the SDK %q", r.URL, got, want)
		}
		return nil, azfake.ErrReset
	}})
	client, err := aztables.NewServiceClientFromConnectionString(fakeString, &aztables.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: service, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tab := client.NewClient("tab")
	_, errGet := tab.GetEntity(t.Context(), "part", "key", nil)
	_, errList := tab.NewListEntitiesPager(nil).NextPage(t.Context())
	_, errAdd := tab.AddEntity(t.Context(), []byte(`{"PartitionKey":"p","RowKey":"r"}`), nil)
	if errGet == nil || errList == nil || errAdd == nil || checked != 3 {
		t.Fatalf("%d requests checked", checked)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"NoAccount":       {},
		"ShortName":       {ConnectionString: fakeString, TableName: "ab"},
		"LongName":        {ConnectionString: fakeString, TableName: strings.Repeat("t", 64)},
		"DigitFirst":      {ConnectionString: fakeString, TableName: "1abc"},
		"DashInName":      {ConnectionString: fakeString, TableName: "a-b-c"},
		"ReservedName":    {ConnectionString: fakeString, TableName: "Tables"},
		"NegativeTimeout": {ConnectionString: fakeString, TryTimeout: -1},
		"KeyNotBase64":    {ConnectionString: "AccountName=a;AccountKey=hush!;TableEndpoint=http://h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(t.Context(), o)
			wantOnly(t, err, store.ErrInvalid)
			if strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("error %q tells the key", err)
			}
		})
	}
}
