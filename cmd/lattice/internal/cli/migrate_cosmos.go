package cli

import (
	"crypto/tls"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/latticekv/lattice/migrate/cosmos"
)

// migrateCosmosCmd migrates the items of a container of Cosmos DB.
type migrateCosmosCmd struct {
	migrateFlags
	address

	Endpoint     string `help:"URL of the account, in place of a connection string." placeholder:"URL" group:"Source"`
	KeyEnv       string `help:"Environment variable that holds the account's key; without it the sign-in of this machine is used." placeholder:"NAME" group:"Source"`
	Database     string `required:"" help:"Name of the database." placeholder:"NAME" group:"Source"`
	Container    string `required:"" help:"Name of the container." placeholder:"NAME" group:"Source"`
	Query        string `help:"Only items for which this holds: \"c.kind = 'order'\"." placeholder:"CONDITION" group:"Source"`
	KeepSystem   bool   `help:"Keep _rid, _self, _etag, _attachments and _ts in the value." group:"Source"`
	PageSize     int    `default:"1000" help:"Most items to ask for at a time." placeholder:"N" group:"Source"`
	SourceCACert string `name:"source-cacert" help:"Also trust the certificates in this file (PEM) at the source." placeholder:"FILE" group:"Source"`
}

// Help implements kong.HelpProvider.
func (migrateCosmosCmd) Help() string {
	return `The source is a connection string, AccountEndpoint=...;AccountKey=...; (a read-only key is enough), given with
--source-env or --source-file; or --endpoint with --key-env; or --endpoint alone, which uses the sign-in of
az login or of a managed identity.

The fields of a record are id, pk (the partition key; pk1, pk2, pk3 of a hierarchical one), _ts, and every
property by its name. Without --key-template the key is "{pk}/{id}", or "{id}" where id is the partition
key. The value is the item, numbers in all their digits, less the properties that the service adds. Where
the container has a time to live, expiry is carried over.

Items come unordered from all partitions. While the service throttles, the reader waits as long as it is
told to, up to --retry-for at a time, and asks for less at once.

Examples:

    lattice migrate cosmos orders --source-env COSMOS --database shop --container orders --dry-run
    lattice migrate cosmos orders --endpoint https://shop.documents.azure.com --key-env COSMOS_KEY \
      --database shop --container orders --query "c.kind = 'order'"`
}

// Run carries the command out.
func (c *migrateCosmosCmd) Run(e *env) error {
	o := cosmos.Options{
		Endpoint: c.Endpoint, Database: c.Database, Container: c.Container, Filter: c.Query, KeepSystem: c.KeepSystem,
		PageSize: c.PageSize, RetryFor: c.RetryFor, OnWait: c.waits(),
	}
	if err := c.account(e, &o); err != nil {
		return err
	}
	var err error
	if o.HTTPClient, err = c.httpClient(); err != nil {
		return err
	}
	src, err := cosmos.New(o)
	if err != nil {
		return usagef("%v", err)
	}
	c.shape = map[string]string{"keep-system": strconv.FormatBool(c.KeepSystem)}
	return c.run(e, src)
}

// account sets how to reach the account.
func (c *migrateCosmosCmd) account(e *env, o *cosmos.Options) (err error) {
	given := c.Source + c.SourceEnv + c.SourceFile
	switch {
	case c.Endpoint != "" && given != "":
		return usagef("give a connection string or --endpoint, not both")
	case c.Endpoint == "" && c.KeyEnv != "":
		return usagef("--key-env goes with --endpoint")
	case c.Endpoint == "":
		o.ConnectionString, err = c.resolve(e, os.LookupEnv)
		return err
	case c.KeyEnv == "":
		return nil
	}
	key, ok := os.LookupEnv(c.KeyEnv)
	if !ok || key == "" {
		return usagef("the environment has no %s", c.KeyEnv)
	}
	o.Key = key
	return nil
}

// requestTimeout bounds one request; the service answers or gives up in a
// minute.
const requestTimeout = 65 * time.Second

// httpClient trusts further authorities; nil is the SDK's own client.
func (c *migrateCosmosCmd) httpClient() (*http.Client, error) {
	roots, err := sourceRoots(c.SourceCACert)
	if err != nil || roots == nil {
		return nil, err
	}
	return &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}, nil
}
