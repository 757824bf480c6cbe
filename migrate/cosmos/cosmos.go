// Package cosmos reads a container of Azure Cosmos DB for NoSQL for a migration.
//
// Every item becomes one record. Its value is the item as JSON, with the
// properties in their order and every number in the digits that the service
// gave; the properties that the service adds (_rid, _self, _etag, _attachments,
// _ts) are left out unless they are asked for. Its fields are "id", the
// partition key as "pk" (of a hierarchical one "pk1", "pk2", "pk3"), "_ts", and
// each property by its name; a partition key inside an object is also known by
// its path, as "address.city". Where a property has the name of one of the
// fields before it, the earlier one counts. A partition key that is missing or
// null is a nil field.
//
// Items are read by one query over all partitions, unordered, page by page with
// the service's continuation tokens. The gateway, which is all that the SDK
// speaks to, walks the partitions itself and follows them as they split; the SDK
// reads ranges of a container only from the change feed, which takes no filter.
// Sorting is left to the caller: the gateway does not order across partitions.
//
// Where the container has a time to live, expiry is _ts plus the item's ttl, or
// the container's, in seconds.
package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/migrate/source"
)

// The defaults of Options.
const (
	DefaultPageSize = 1000
	DefaultRetryFor = 10 * time.Minute
)

// Options say what to read and how.
type Options struct {
	// Endpoint is the account's URL, https://name.documents.azure.com.
	Endpoint string
	// Key is one of the account's keys, a read-only one is enough. If it is empty,
	// the identity that Azure's tools and hosts provide is used.
	Key string
	// ConnectionString may stand for both: AccountEndpoint=…;AccountKey=…;
	ConnectionString string
	// Database and Container name what is read.
	Database, Container string
	// Filter is a condition, as it would follow WHERE, in which c is the item;
	// empty is all.
	Filter string
	// KeepSystem keeps the properties that the service adds in the value.
	KeepSystem bool
	// PageSize is how many items a page has at most, 1 to 10,000; 0 is
	// DefaultPageSize. A throttled reader asks for fewer.
	PageSize int
	// RetryFor is how long a request is repeated that is throttled or fails for a
	// reason that passes; 0 is DefaultRetryFor.
	RetryFor time.Duration
	// HTTPClient sends the requests; nil is the SDK's own.
	HTTPClient *http.Client
	// OnWait, if not nil, is told of each wait and its cause.
	OnWait func(wait time.Duration, cause error)
}

// Source reads a container. It implements source.Source and source.Changing.
type Source struct {
	opts      Options
	client    *azcosmos.Client
	container *azcosmos.ContainerClient
	shape     shape
	// pageSize is what is asked for now.
	pageSize int
	// answered: the service has said something.
	answered bool
}

// New checks options; it does not connect. Its errors hold no secret.
func New(o Options) (*Source, error) {
	if o.ConnectionString != "" {
		endpoint, key, err := parseConnectionString(o.ConnectionString)
		if err != nil {
			return nil, err
		}
		if o.Endpoint != "" && strings.TrimRight(o.Endpoint, "/") != strings.TrimRight(endpoint, "/") {
			return nil, errors.New("the connection string is of another account than the endpoint: give one of them")
		}
		o.Endpoint, o.Key = endpoint, key
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the endpoint of the account is not of the form https://name.documents.azure.com")
	}
	o.Endpoint = u.Scheme + "://" + strings.ToLower(u.Host)
	if o.Key != "" {
		if _, err := azcosmos.NewKeyCredential(o.Key); err != nil {
			return nil, errors.New("the key of the account is not in base64: copy it whole from the portal, Settings > Keys")
		}
	}
	if o.Database == "" || o.Container == "" {
		return nil, errors.New("name the database and the container")
	}
	if o.Filter, err = condition(o.Filter); err != nil {
		return nil, err
	}
	if o.PageSize == 0 {
		o.PageSize = DefaultPageSize
	}
	if o.RetryFor == 0 {
		o.RetryFor = DefaultRetryFor
	}
	if o.PageSize < 1 || o.PageSize > 10_000 {
		return nil, fmt.Errorf("the page size is %d, it must be 1 to 10,000", o.PageSize)
	}
	if o.RetryFor < 0 {
		return nil, fmt.Errorf("the time to retry is %s, it must be positive", o.RetryFor)
	}
	return &Source{opts: o, pageSize: o.PageSize}, nil
}

// parseConnectionString takes the two parts that matter. Its errors quote
// nothing.
func parseConnectionString(text string) (endpoint, key string, err error) {
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "accountendpoint":
			endpoint = value
		case "accountkey":
			key = value
		}
	}
	if endpoint == "" || key == "" {
		return "", "", errors.New("the connection string is not of the form AccountEndpoint=…;AccountKey=…;")
	}
	return endpoint, key, nil
}

// condition takes WHERE off a filter, and refuses what is more than one.
func condition(filter string) (string, error) {
	filter = strings.TrimSpace(filter)
	if first, rest, ok := strings.Cut(filter, " "); ok && strings.EqualFold(first, "where") {
		filter = strings.TrimSpace(rest)
	}
	if first, _, _ := strings.Cut(filter, " "); strings.EqualFold(first, "select") {
		return "", errors.New("the query must be a condition, as it would follow WHERE: c.type = \"order\"")
	}
	return filter, nil
}

// query is the text of a query for items or what of them is selected.
func (s *Source) query(selected, also string) string {
	q := "SELECT " + selected + " FROM c"
	switch {
	case s.opts.Filter != "" && also != "":
		q += " WHERE (" + s.opts.Filter + ") AND " + also
	case s.opts.Filter != "":
		q += " WHERE (" + s.opts.Filter + ")"
	case also != "":
		q += " WHERE " + also
	}
	return q
}

// Inspect implements source.Source.
func (s *Source) Inspect(ctx context.Context) (source.Info, error) {
	resp, err := s.connect(ctx)
	if err != nil {
		return source.Info{}, err
	}
	info := source.Info{
		Kind: "cosmos", Identity: s.identity(), Version: "Cosmos DB for NoSQL",
		KeyFields: s.shape.keyFields(), KeyTemplate: s.shape.template(),
		Estimate: -1, Cut: cut(resp.RawResponse),
	}
	if n, ok := documents(resp.RawResponse); ok && s.opts.Filter == "" {
		info.Estimate = n
	}
	info.Notes = append(info.Notes, "Items that are written while others are read may come in either form, or be missing until a later pass.")
	if s.shape.timeToLive == nil {
		info.Notes = append(info.Notes, "The container has no time to live: a property ttl of an item is data like any other.")
	}
	if !s.opts.KeepSystem {
		info.Notes = append(info.Notes, "The properties _rid, _self, _etag, _attachments and _ts are left out of the values.")
	}
	return info, nil
}

// identity names the container and the filter.
func (s *Source) identity() string {
	id := s.opts.Endpoint + "/" + url.PathEscape(s.opts.Database) + "/" + url.PathEscape(s.opts.Container)
	if s.opts.Filter != "" {
		id += fmt.Sprintf(" where %q", s.opts.Filter)
	}
	return id
}

// Close implements source.Source.
func (s *Source) Close() error {
	if s.client != nil {
		s.client.Close()
	}
	s.client, s.container = nil, nil
	return nil
}
