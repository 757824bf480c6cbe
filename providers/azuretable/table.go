package azuretable

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
	place    *azhttp.Place
}

var _ store.Table = (*Table)(nil)

// New opens a table. Unless the options say Lazy it asks the service whether the
// table exists, and creates it if not. ErrInvalid for options that cannot work;
// else the errors of a read.
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
	client, err := serviceClient(service, options)
	if err != nil {
		return nil, fmt.Errorf("open table: %w: %w", store.ErrInvalid, err)
	}
	t := &Table{
		name:     o.TableName,
		boundary: newBoundary(),
		reads:    azhttp.Reads,
		wire:     newWire(service, auth, options, o.TryTimeout),
	}
	t.place = newPlace(t, client)
	t.place.Unused, t.place.Prepare = o.Unused, o.Prepare
	if o.Lazy {
		return t, nil
	}
	if err := t.open(ctx); err != nil {
		return nil, err
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

func (t *Table) get(ctx context.Context, partition, key string) (row store.Row, err error) {
	found, err := t.place.Read(ctx, func() (err error) {
		row, err = t.point(ctx, partition, key)
		return err
	})
	if !found && err == nil {
		return store.Row{}, fmt.Errorf("%w: there is no table %s yet", store.ErrNotFound, t.name)
	}
	return row, err
}

// point asks for a row in one exchange.
func (t *Table) point(ctx context.Context, partition, key string) (store.Row, error) {
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
