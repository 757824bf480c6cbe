package azhttp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/latticekv/lattice/core/store"
)

type identity struct{}

func (identity) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, nil
}

func TestAccessNamesTheServices(t *testing.T) {
	const key = "c2VjcmV0"
	for _, tc := range []struct {
		name        string
		access      Access
		table, blob Endpoint
	}{
		{
			"Explicit",
			Access{ConnectionString: "AccountName=a;AccountKey=" + key + ";TableEndpoint=http://h:1/a/;BlobEndpoint=http://h:2/a;"},
			Endpoint{URL: "http://h:1/a", Name: "a", Key: key}, Endpoint{URL: "http://h:2/a", Name: "a", Key: key},
		},
		{
			"Suffix",
			Access{ConnectionString: "DefaultEndpointsProtocol=https; AccountName=a ;AccountKey=" + key + ";EndpointSuffix=core.example"},
			Endpoint{URL: "https://a.table.core.example", Name: "a", Key: key}, Endpoint{URL: "https://a.blob.core.example", Name: "a", Key: key},
		},
		{
			"Defaults",
			Access{ConnectionString: "AccountName=a;AccountKey=" + key},
			Endpoint{URL: "https://a.table.core.windows.net", Name: "a", Key: key}, Endpoint{URL: "https://a.blob.core.windows.net", Name: "a", Key: key},
		},
		{
			"Emulator",
			Access{ConnectionString: "UseDevelopmentStorage=true"},
			Endpoint{URL: "http://127.0.0.1:10002/" + developmentName, Name: developmentName, Key: developmentKey},
			Endpoint{URL: "http://127.0.0.1:10000/" + developmentName, Name: developmentName, Key: developmentKey},
		},
		{
			"Signature",
			Access{ConnectionString: "AccountName=a;SharedAccessSignature=?sv=1&sig=x%3D"},
			Endpoint{URL: "https://a.table.core.windows.net", SAS: "sv=1&sig=x%3D"}, Endpoint{URL: "https://a.blob.core.windows.net", SAS: "sv=1&sig=x%3D"},
		},
		{
			"AddressAndSignature",
			Access{ServiceURL: "https://h/", SAS: "?sig=x"},
			Endpoint{URL: "https://h", SAS: "sig=x"}, Endpoint{URL: "https://h", SAS: "sig=x"},
		},
		{
			"AddressAndIdentity",
			Access{ServiceURL: "https://h", Credential: identity{}},
			Endpoint{URL: "https://h", Credential: identity{}}, Endpoint{URL: "https://h", Credential: identity{}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := tc.access.Table(); err != nil || got != tc.table {
				t.Errorf("table: %+v, %v, want %+v", got, err, tc.table)
			}
			if got, err := tc.access.Blob(); err != nil || got != tc.blob {
				t.Errorf("blob: %+v, %v, want %+v", got, err, tc.blob)
			}
		})
	}
}

func TestContradictoryAccessIsInvalidAndKeepsItsSecrets(t *testing.T) {
	const secret = "hush"
	for name, access := range map[string]Access{
		"Nothing":              {},
		"AddressAlone":         {ServiceURL: "https://h"},
		"CredentialAlone":      {Credential: identity{}},
		"TwoCredentials":       {ServiceURL: "https://h", Credential: identity{}, SAS: secret},
		"TwoAddresses":         {ConnectionString: "UseDevelopmentStorage=true", ServiceURL: "https://h"},
		"StringAndSignature":   {ConnectionString: "UseDevelopmentStorage=true", SAS: secret},
		"NoPairs":              {ConnectionString: secret},
		"NoKey":                {ConnectionString: "AccountName=a"},
		"NoName":               {ConnectionString: "AccountKey=" + secret},
		"OtherServiceOnly":     {ConnectionString: "SharedAccessSignature=" + secret + ";QueueEndpoint=https://q"},
		"AddressWithSignature": {ServiceURL: "https://h/?" + secret, Credential: identity{}},
		"AddressWithUser":      {ServiceURL: "https://u:" + secret + "@h", Credential: identity{}},
		"AddressWithoutScheme": {ServiceURL: "h", Credential: identity{}},
		"AddressOfAFile":       {ServiceURL: "file:///" + secret, Credential: identity{}},
		"EndpointNotAnAddress": {ConnectionString: "AccountName=a;AccountKey=" + secret + ";TableEndpoint=%;BlobEndpoint=%"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resolve := range []func() (Endpoint, error){access.Table, access.Blob} {
				_, err := resolve()
				if !errors.Is(err, store.ErrInvalid) {
					t.Fatalf("got %v, want invalid argument", err)
				}
				if strings.Contains(err.Error(), secret) {
					t.Fatalf("error %q tells a secret", err)
				}
			}
		})
	}
}

func TestTimeoutHasADefaultAndNoNegative(t *testing.T) {
	for _, tc := range []struct {
		given, want time.Duration
		err         error
	}{{0, time.Minute, nil}, {time.Second, time.Second, nil}, {-1, 0, store.ErrInvalid}} {
		if got, err := CheckTimeout(tc.given, time.Minute); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %s, %v", tc.given, got, err)
		}
	}
}
