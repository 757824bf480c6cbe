package backend

import (
	"reflect"
	"strings"
	"testing"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := env[name]
		return text, ok
	}
}

func TestEnvironmentSetsEveryField(t *testing.T) {
	env, fields := map[string]string{}, reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("env")
		if name == "" {
			t.Errorf("%s cannot be set from the environment", fields.Field(i).Name)
		}
		env[name] = "value of " + name
	}
	c := FromEnv(lookup(env), Azure)
	for i := range fields.NumField() {
		want := "value of " + fields.Field(i).Tag.Get("env")
		if got := reflect.ValueOf(c).Field(i).String(); got != want {
			t.Errorf("%s is %q, want %q", fields.Field(i).Name, got, want)
		}
	}
}

func TestEmptyEnvironmentGivesTheDefaults(t *testing.T) {
	want := Config{Store: Azure, DataDir: "./lattice-data", TableName: "lattice", ContainerName: "lattice"}
	for _, env := range []map[string]string{nil, {"LATTICE_STORE": "", "LATTICE_DATA_DIR": ""}} {
		if got := FromEnv(lookup(env), Azure); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestCheckTellsEveryFault(t *testing.T) {
	const secret = "AccountName=a;AccountKey=c2VjcmV0"
	cases := []struct {
		name   string
		config Config
		want   []string
	}{
		{"bolt", Config{Store: Bolt, DataDir: "d"}, nil},
		{"memory", Config{Store: Memory, DataDir: "d"}, nil},
		{"azurite", Config{Store: Azurite, DataDir: "d"}, nil},
		{"azure by connection string", Config{Store: Azure, DataDir: "d", ConnectionString: secret}, nil},
		{"azure by account", Config{Store: Azure, DataDir: "d", Account: "a0b"}, nil},
		{"azure by no name of an account", Config{Store: Azure, DataDir: "d", Account: "evil.example/x"}, []string{"3 to 24", "evil.example"}},
		{"azure by addresses", Config{Store: Azure, DataDir: "d", TableURL: "https://t", BlobURL: "https://b"}, nil},
		{"unknown store and no folder", Config{Store: "redis"}, []string{`store "redis"`, "data folder"}},
		{"azure by nothing", Config{Store: Azure, DataDir: "d"}, []string{ConnectionStringVariable}},
		{"azure by one address", Config{Store: Azure, DataDir: "d", TableURL: "https://t"}, []string{"both services"}},
		{"azure by signatures", Config{Store: Azure, DataDir: "d", TableURL: "https://t?sig=c2VjcmV0", BlobURL: "https://b?sig=c2VjcmV0"}, nil},
		{"azure by one signature", Config{Store: Azure, DataDir: "d", TableURL: "https://t?sig=c2VjcmV0", BlobURL: "https://b"}, []string{"which credential"}},
		{"azure by a cut signature", Config{Store: Azure, DataDir: "d", TableURL: "https://t?sig=c2VjcmV0", BlobURL: "https://b?sv=1&se=c2VjcmV0"}, []string{"blob service", "sig"}},
		{"azure by no addresses", Config{Store: Azure, DataDir: "d", TableURL: "t?sig=c2VjcmV0", BlobURL: "https://b?sig=c2VjcmV0"}, []string{"table service", "URL"}},
		{"azure by two ways", Config{Store: Azure, DataDir: "d", ConnectionString: secret, Account: "a"}, []string{"which one"}},
		{"azure by two other ways", Config{Store: Azure, DataDir: "d", Account: "a", BlobURL: "https://b"}, []string{"which one"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.config.Check()
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not tell %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "c2VjcmV0") {
				t.Errorf("%v tells the key", err)
			}
		})
	}
}

func TestAccountStandsForBothAddresses(t *testing.T) {
	table, blob, err := (&Config{Account: "acct"}).addresses()
	if table.url != "https://acct.table.core.windows.net" || blob.url != "https://acct.blob.core.windows.net" || table.sas+blob.sas != "" || err != nil {
		t.Fatalf("got %s and %s, %v", table, blob, err)
	}
}

func TestSignaturesAreTakenOffTheAddresses(t *testing.T) {
	table, blob, err := (&Config{TableURL: "https://t/?sv=1&sig=a", BlobURL: "https://b?sv=1&sig=b"}).addresses()
	if table != (address{"https://t", "sv=1&sig=a"}) || blob != (address{"https://b", "sv=1&sig=b"}) || err != nil {
		t.Fatalf("got %s and %s, %v", table, blob, err)
	}
}

func TestAzureWithoutAnAccountIsToldWhatToSet(t *testing.T) {
	c := Config{Store: Azure, DataDir: "d"}
	err := c.Check()
	for _, name := range []string{ConnectionStringVariable, "LATTICE_ACCOUNT", "--account", "LATTICE_TABLE_URL", "LATTICE_BLOB_URL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}
