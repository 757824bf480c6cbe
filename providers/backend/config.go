// Package backend opens the table and the blob store that a configuration
// names: the one place that knows all providers. Every program of the service
// is configured by the same Config, from flags or from the environment alone.
package backend

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// The stores to choose from.
const (
	// Bolt is a folder on this machine, durable.
	Bolt = "bolt"
	// Memory is lost with the process.
	Memory = "memory"
	// Azurite is the storage emulator; one is started if none answers.
	Azurite = "azurite"
	// Azure is an Azure Storage account.
	Azure = "azure"
)

// ConnectionStringVariable is the environment variable with the connection
// string of the account. It is a secret, and so no flag.
const ConnectionStringVariable = "AZURE_STORAGE_CONNECTION_STRING"

// Config says where the state is. The tags are the flags, environment
// variables, defaults and help texts of every program.
type Config struct {
	// Store is one of the constants of this package.
	Store string `name:"store" env:"LATTICE_STORE" default:"bolt" placeholder:"NAME" help:"Where the state is: bolt (a folder), memory (lost at the end), azurite (the emulator, started if none answers) or azure (a storage account). Default ${default}."`
	// DataDir is the folder of bolt, of an Azurite that is started, and of a
	// self-signed certificate.
	DataDir string `name:"data-dir" env:"LATTICE_DATA_DIR" default:"./lattice-data" placeholder:"DIR" help:"Folder of the state on this machine. Default ${default}."`
	// Account is the name of a storage account of the public cloud.
	Account string `name:"account" env:"LATTICE_ACCOUNT" placeholder:"NAME" help:"Storage account of the public cloud, used with the identity that the environment offers, if there is no ${connection} in the environment."`
	// TableURL and BlobURL are the addresses of the services, for other clouds.
	// Both may hold a shared access signature each, which is never shown.
	TableURL string `name:"table-url" env:"LATTICE_TABLE_URL" placeholder:"URL" help:"Address of the table service, instead of an account of the public cloud. It may hold a shared access signature (?sv=…&sig=…); give that in the environment, where other users do not see it."`
	BlobURL  string `name:"blob-url" env:"LATTICE_BLOB_URL" placeholder:"URL" help:"Address of the blob service, likewise."`
	// TableName and ContainerName are created when they do not exist: see Open and
	// OpenLazily.
	TableName     string `name:"table-name" env:"LATTICE_TABLE_NAME" default:"lattice" placeholder:"NAME" help:"Table in the account. Default ${default}."`
	ContainerName string `name:"container-name" env:"LATTICE_CONTAINER_NAME" default:"lattice" placeholder:"NAME" help:"Blob container in the account. Default ${default}."`
	// ConnectionString holds the key of the account; it is never shown.
	ConnectionString string `kong:"-" env:"AZURE_STORAGE_CONNECTION_STRING"`
}

// FromEnv reads a configuration from the environment. Without LATTICE_STORE
// the store is defaultStore.
func FromEnv(lookup func(string) (string, bool), defaultStore string) Config {
	c := Config{}
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		v.Field(i).SetString(tag.Get("default"))
		if text, ok := lookup(tag.Get("env")); ok && text != "" {
			v.Field(i).SetString(text)
		}
	}
	if text, ok := lookup("LATTICE_STORE"); !ok || text == "" {
		c.Store = defaultStore
	}
	return c
}

// accountName is what Azure Storage allows; anything else would end up in the
// address of another host.
var accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

// Check returns every fault of the configuration, joined. (A method named
// Validate would be called by the command-line parser, which stops at the first.)
func (c *Config) Check() error {
	var faults []error
	if all := []string{Bolt, Memory, Azurite, Azure}; !slices.Contains(all, c.Store) {
		faults = append(faults, fmt.Errorf("store %q is not one of %s", c.Store, strings.Join(all, ", ")))
	}
	if c.DataDir == "" {
		faults = append(faults, errors.New("the data folder has no name"))
	}
	if c.Store == Azure {
		faults = append(faults, c.validateAccount())
	}
	return errors.Join(faults...)
}

func (c *Config) validateAccount() error {
	switch byURL := c.TableURL != "" || c.BlobURL != ""; {
	case c.ConnectionString != "":
		if c.Account != "" || byURL {
			return fmt.Errorf("%s and an account or address are given: which one is meant?", ConnectionStringVariable)
		}
	case c.Account != "" && byURL:
		return errors.New("an account and an address are given: which one is meant?")
	case c.Account != "" && !accountName.MatchString(c.Account):
		return fmt.Errorf("account %q: the name of a storage account is 3 to 24 lower-case letters and digits", c.Account)
	case c.Account == "" && (c.TableURL == "" || c.BlobURL == ""):
		return fmt.Errorf("store azure needs %s in the environment, an account (LATTICE_ACCOUNT, --account), or the addresses of both services (LATTICE_TABLE_URL and LATTICE_BLOB_URL)", ConnectionStringVariable)
	case c.ConnectionString == "" && c.Account == "":
		_, _, err := c.addresses()
		return err
	}
	return nil
}

// address is where a service of the account answers, and the signature that is
// the credential there; it is empty if an identity is.
type address struct{ url, sas string }

// addresses returns those of both services. The errors quote no signature.
func (c *Config) addresses() (table, blob address, err error) {
	if c.Account != "" {
		return address{url: "https://" + c.Account + ".table.core.windows.net"}, address{url: "https://" + c.Account + ".blob.core.windows.net"}, nil
	}
	if table.url, table.sas, err = azhttp.SplitURL(c.TableURL); err != nil {
		return table, blob, fmt.Errorf("address of the table service: %w", err)
	}
	if blob.url, blob.sas, err = azhttp.SplitURL(c.BlobURL); err != nil {
		return table, blob, fmt.Errorf("address of the blob service: %w", err)
	}
	if (table.sas == "") != (blob.sas == "") {
		err = errors.New("one address of the account holds a shared access signature and the other does not: which credential is meant?")
	}
	return table, blob, err
}
