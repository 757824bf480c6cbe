package cosmos

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// connect reads the container's properties. The SDK remembers for minutes that
// an account did not answer, so each attempt has a client of its own.
func (s *Source) connect(ctx context.Context) (azcosmos.ContainerResponse, error) {
	var resp azcosmos.ContainerResponse
	err := s.retry(ctx, func() (err error) {
		if err = s.Close(); err != nil {
			return err
		}
		if s.client, err = s.newClient(); err != nil {
			return err
		}
		container, err := s.client.NewContainer(s.opts.Database, s.opts.Container)
		if err != nil {
			return err
		}
		resp, err = container.Read(ctx, &azcosmos.ReadContainerOptions{PopulateQuotaInfo: true})
		if err == nil {
			s.container = container
		}
		return err
	})
	if err != nil {
		return resp, s.explain(err)
	}
	s.shape, err = shapeOf(resp.ContainerProperties)
	if err != nil {
		return resp, fmt.Errorf("%s: %w", s.identity(), err)
	}
	return resp, nil
}

func (s *Source) newClient() (*azcosmos.Client, error) {
	// Waiting is done here, where it can be told and bounded.
	o := &azcosmos.ClientOptions{}
	o.Retry = policy.RetryOptions{MaxRetries: -1}
	if s.opts.HTTPClient != nil {
		o.Transport = s.opts.HTTPClient
	}
	if s.opts.Key == "" {
		identity, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, err
		}
		return azcosmos.NewClient(s.opts.Endpoint, identity, o)
	}
	key, err := azcosmos.NewKeyCredential(s.opts.Key)
	if err != nil {
		return nil, err
	}
	return azcosmos.NewClientWithKey(s.opts.Endpoint, key, o)
}

// shape is what the container says of its items.
type shape struct {
	// resource identifies the container: one that was created anew under its name
	// has another.
	resource string
	// paths are those of the partition key, each by its steps.
	paths [][]string
	// timeToLive is in seconds, -1 for none unless the item has one; nil where
	// the container takes no notice of it.
	timeToLive *int32
}

func shapeOf(p *azcosmos.ContainerProperties) (shape, error) {
	if p == nil || len(p.PartitionKeyDefinition.Paths) == 0 {
		return shape{}, fmt.Errorf("the service does not tell the container's partition key: containers without one cannot be read")
	}
	sh := shape{resource: p.ResourceID, timeToLive: p.DefaultTimeToLive}
	for _, path := range p.PartitionKeyDefinition.Paths {
		steps := steps(path)
		if len(steps) == 0 {
			return shape{}, fmt.Errorf("the partition key path %q has an unknown form", path)
		}
		sh.paths = append(sh.paths, steps)
	}
	return sh, nil
}

// steps divides a path such as /address/"zip/code".
func steps(path string) []string {
	var out []string
	for path != "" {
		if path[0] != '/' || len(path) == 1 {
			return nil
		}
		path = path[1:]
		end := strings.IndexByte(path, '/')
		if path[0] == '"' || path[0] == '\'' {
			shut := strings.IndexByte(path[1:], path[0])
			if shut < 0 {
				return nil
			}
			out = append(out, path[1:1+shut])
			path = path[shut+2:]
			continue
		}
		if end < 0 {
			end = len(path)
		}
		out = append(out, path[:end])
		path = path[end:]
	}
	return out
}

// byID: the partition key is the id, which then identifies an item alone.
func (sh shape) byID() bool {
	return len(sh.paths) == 1 && len(sh.paths[0]) == 1 && sh.paths[0][0] == "id"
}

// names are those of the partition key's fields.
func (sh shape) names() []string {
	if len(sh.paths) == 1 {
		return []string{"pk"}
	}
	var names []string
	for i := range sh.paths {
		names = append(names, "pk"+strconv.Itoa(i+1))
	}
	return names
}

func (sh shape) keyFields() []string {
	if sh.byID() {
		return []string{"id"}
	}
	return append(sh.names(), "id")
}

func (sh shape) template() string {
	return "{" + strings.Join(sh.keyFields(), "}/{") + "}"
}

// cutMargin is how far before the service's clock a cut lies: machines of the
// service stamp items by clocks of their own, and a replica that is read may lag.
const cutMargin = 5 * time.Minute

// cut is the moment of a response, less the margin, in seconds as _ts counts
// them; empty if the response tells no time.
func cut(resp *http.Response) string {
	if resp == nil {
		return ""
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return ""
	}
	return strconv.FormatInt(now.Add(-cutMargin).Unix(), 10)
}

// documents is how many items the service counts in the container.
func documents(resp *http.Response) (int64, bool) {
	if resp == nil {
		return 0, false
	}
	for part := range strings.SplitSeq(resp.Header.Get("x-ms-resource-usage"), ";") {
		if text, ok := strings.CutPrefix(part, "documentsCount="); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}
