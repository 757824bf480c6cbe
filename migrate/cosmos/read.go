package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"

	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/migrate/source"
)

type pages = iter.Seq2[source.Page, error]

// position is where an enumeration stands.
type position struct {
	// Token is the service's continuation token.
	Token string `json:"token"`
	// Container is the resource that gave it, Since the cut it was read with.
	Container string `json:"container"`
	Since     string `json:"since,omitempty"`
}

// Read implements source.Source. A position stays good while the container
// exists, also after its partitions have split.
func (s *Source) Read(ctx context.Context, from source.Position) pages {
	return s.read(ctx, "", from)
}

// ReadSince implements source.Changing: it yields the items whose _ts is at or
// after the cut, in seconds since 1970.
func (s *Source) ReadSince(ctx context.Context, cut string, from source.Position) pages {
	if n, err := strconv.ParseInt(cut, 10, 64); err != nil || n < 0 {
		return func(yield func(source.Page, error) bool) {
			yield(source.Page{}, errors.New("the cut of a Cosmos DB source is a number of seconds since 1970, as an earlier run saved it"))
		}
	}
	return s.read(ctx, cut, from)
}

func (s *Source) read(ctx context.Context, since string, from source.Position) pages {
	return func(yield func(source.Page, error) bool) {
		token, err := s.begin(ctx, since, from)
		for first := true; err == nil && (first || token != ""); first = false {
			var page source.Page
			if page, token, err = s.page(ctx, since, token); err == nil && !yield(page, nil) {
				return
			}
		}
		if err != nil {
			yield(source.Page{}, err)
		}
	}
}

// begin connects and returns the token to go on with.
func (s *Source) begin(ctx context.Context, since string, from source.Position) (string, error) {
	if s.container == nil {
		if _, err := s.connect(ctx); err != nil {
			return "", err
		}
	}
	if from == nil {
		return "", nil
	}
	var p position
	if err := json.Unmarshal(from, &p); err != nil || p.Token == "" {
		return "", errors.New("the saved position is no position of a Cosmos DB source")
	}
	if p.Container != s.shape.resource {
		return "", fmt.Errorf("%w: the container was created anew", source.ErrRestart)
	}
	if p.Since != since {
		return "", fmt.Errorf("%w: it belongs to an enumeration with another cut", source.ErrRestart)
	}
	return p.Token, nil
}

// page reads one page and returns the token of the next, empty at the end.
func (s *Source) page(ctx context.Context, since, token string) (source.Page, string, error) {
	also := ""
	if since != "" {
		also = "c._ts >= " + since
	}
	items, next, err := s.ask(ctx, s.query("*", also), token)
	if err != nil {
		return source.Page{}, "", err
	}
	if next != "" && next == token && len(items) == 0 {
		return source.Page{}, "", fmt.Errorf("%s: the service gives the same empty page again and again", s.identity())
	}
	page := source.Page{Records: make([]source.Record, 0, len(items))}
	for _, item := range items {
		r, fault := s.record(item)
		if fault != nil {
			page.Faults = append(page.Faults, *fault)
			continue
		}
		page.Records = append(page.Records, r)
	}
	if next != "" {
		page.Next, err = json.Marshal(position{Token: next, Container: s.shape.resource, Since: since})
	}
	return page, next, err
}

// ask sends a query for a page, waiting as the service asks.
func (s *Source) ask(ctx context.Context, query, token string) (items []json.RawMessage, next string, err error) {
	err = s.retry(ctx, func() error {
		o := &azcosmos.QueryOptions{PageSizeHint: int32(s.pageSize)}
		if token != "" {
			o.ContinuationToken = &token
		}
		// No partition key: all of them.
		resp, err := s.container.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), o).NextPage(ctx)
		if err != nil {
			return err
		}
		items, err = documentsOf(resp)
		next = ""
		if resp.ContinuationToken != nil {
			next = *resp.ContinuationToken
		}
		return err
	})
	switch {
	case token != "" && badToken(err):
		return nil, "", fmt.Errorf("%w: the service does not know its continuation token any more", source.ErrRestart)
	case err != nil:
		return nil, "", s.explain(err)
	}
	s.pageSize = min(s.pageSize+s.pageSize/4+1, s.opts.PageSize)
	return items, next, nil
}

// errAnswer: the service answered in a form that its protocol does not know.
var errAnswer = errors.New("the service's answer has an unexpected form")

// documentsOf takes the items from the answer itself: the SDK's copies have
// been through an encoder that writes characters anew.
func documentsOf(resp azcosmos.QueryItemsResponse) ([]json.RawMessage, error) {
	body, err := azruntime.Payload(resp.RawResponse)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Documents []json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Documents == nil || len(answer.Documents) != len(resp.Items) {
		return nil, errAnswer
	}
	return answer.Documents, nil
}

// Count counts the items that Read would yield, by reading their ids: across
// partitions the gateway counts nothing itself.
func (s *Source) Count(ctx context.Context) (int64, error) {
	token, err := s.begin(ctx, "", nil)
	if err != nil {
		return 0, err
	}
	var count int64
	for first := true; first || token != ""; first = false {
		items, next, err := s.ask(ctx, s.query("c.id", ""), token)
		if err != nil {
			return 0, err
		}
		if next != "" && next == token && len(items) == 0 {
			return 0, fmt.Errorf("%s: the service gives the same empty page again and again", s.identity())
		}
		count += int64(len(items))
		token = next
	}
	return count, nil
}
