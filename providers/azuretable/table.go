package azuretable

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// storageAudience is whom a token is for, in every cloud.
const storageAudience = "https://storage.azure.com/.default"

// Table is a table of an Azure storage account. It is safe for concurrent use
// and needs no closing.
type Table struct {
	wire     wire
	name     string
	boundary string
	reads    azhttp.Retry
}

var _ store.Table = (*Table)(nil)

// New opens a table and creates it if it does not exist. ErrInvalid for options
// that cannot work; else the errors of a read.
func New(ctx context.Context, o Options) (*Table, error) {
	service, err := o.resolve()
	if err != nil {
		return nil, fmt.Errorf("open table: %w", err)
	}
	auth, err := authentication(service)
	if err != nil {
		return nil, fmt.Errorf("open table: %w", err)
	}
	options := azhttp.ClientOptions(o.Transport)
	t := &Table{
		name:     o.TableName,
		boundary: newBoundary(),
		reads:    azhttp.Reads,
		wire:     newWire(service, auth, options, o.TryTimeout),
	}
	if o.SkipCreate {
		return t, nil
	}
	client, err := serviceClient(service, options)
	if err != nil {
		return nil, fmt.Errorf("open table: %w: %w", store.ErrInvalid, err)
	}
	if err := t.reads.Do(ctx, func(ctx context.Context) error { return t.create(ctx, client) }); err != nil {
		return nil, fmt.Errorf("create table %s: %w", o.TableName, err)
	}
	return t, nil
}

// authentication returns the policies that run once for each try.
func authentication(s azhttp.Endpoint) ([]policy.Policy, error) {
	switch {
	case s.Credential != nil:
		return []policy.Policy{runtime.NewBearerTokenPolicy(s.Credential, []string{storageAudience}, nil)}, nil
	case s.SAS != "":
		return nil, nil
	}
	key, err := newSharedKey(s.Name, s.Key)
	return []policy.Policy{key}, err
}

// newBoundary returns what separates the parts of a transaction. Bodies hold
// only JSON of our own making, in which it cannot occur.
func newBoundary() string {
	var raw [16]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// create makes the table; one that exists is as good, also where the credential
// may only use it.
func (t *Table) create(ctx context.Context, client *aztables.ServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, t.wire.timeout)
	defer cancel()
	ctx, sent := azhttp.Watch(ctx)
	_, err := client.CreateTable(ctx, t.name, nil)
	if err == nil {
		return nil
	}
	refused := azhttp.FromSDK(err)
	switch {
	case refused == nil:
		return azhttp.Lost(ctx, err, false, sent)
	case refused.Code == string(aztables.TableAlreadyExists):
		return nil
	case refused.Denied():
		return t.find(ctx)
	}
	return azhttp.Fail(refused, false)
}

// find looks for the table by a read: a credential for this table alone is not
// allowed to create it.
func (t *Table) find(ctx context.Context) error {
	answer, err := t.wire.read(ctx, t.entityPath("none", "none"), "", maxEntityBody)
	var refused *azhttp.StatusError
	switch {
	case err == nil:
		answer.release()
		return nil
	case errors.Is(err, store.ErrNotFound):
		return nil
	case errors.As(err, &refused) && refused.Code == string(aztables.TableNotFound):
		return fmt.Errorf("it does not exist, and the credential may not create it: %w", err)
	}
	return err
}

func serviceClient(s azhttp.Endpoint, options policy.ClientOptions) (*aztables.ServiceClient, error) {
	o := &aztables.ClientOptions{ClientOptions: options}
	switch {
	case s.Credential != nil:
		return aztables.NewServiceClient(s.URL, s.Credential, o)
	case s.SAS != "":
		return aztables.NewServiceClientWithNoCredential(s.URL+"/?"+s.SAS, o)
	}
	key, err := aztables.NewSharedKeyCredential(s.Name, s.Key)
	if err != nil {
		return nil, err
	}
	return aztables.NewServiceClientWithSharedKey(s.URL, key, o)
}

// Get implements store.Table with a point query.
func (t *Table) Get(ctx context.Context, partition, key string) (store.Row, error) {
	if err := store.CheckContext(ctx); err != nil {
		return store.Row{}, err
	}
	if err := store.CheckGet(partition, key); err != nil {
		return store.Row{}, err
	}
	var row store.Row
	err := t.reads.Do(ctx, func(ctx context.Context) (err error) {
		row, err = t.get(ctx, partition, key)
		return err
	})
	if err != nil {
		return store.Row{}, fmt.Errorf("get row %s/%s: %w", partition, key, err)
	}
	return row, nil
}

func (t *Table) get(ctx context.Context, partition, key string) (store.Row, error) {
	answer, err := t.wire.read(ctx, t.entityPath(partition, key), "", maxEntityBody)
	if err != nil {
		return store.Row{}, err
	}
	defer answer.release()
	if answer.cut {
		return store.Row{}, store.Corruptf("answer of more than %d bytes", maxEntityBody)
	}
	return decodeEntity(answer.body(), partition, key)
}

// Range implements store.Table with a filter on the row key.
func (t *Table) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	if err := store.CheckContext(ctx); err != nil {
		return store.Page{}, err
	}
	if err := store.CheckRange(partition, q); err != nil {
		return store.Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = store.MaxPageRows
	}
	if q.To != "" && q.From >= q.To {
		return store.Page{}, nil
	}
	page, err := t.page(ctx, partition, q)
	if err != nil {
		return store.Page{}, fmt.Errorf("query rows of %s: %w", partition, err)
	}
	return page, nil
}

func (t *Table) entityPath(partition, key string) string {
	return "/" + t.name + "(PartitionKey='" + partition + "',RowKey='" + key + "')"
}
