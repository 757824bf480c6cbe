package azuretable

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/core/store"
)

// canned answers every request at once with the same.
type canned struct {
	status            int
	contentType, body string
}

func (c canned) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		StatusCode: c.status, Header: http.Header{"Content-Type": {c.contentType}}, Request: req,
		ContentLength: int64(len(c.body)), Body: io.NopCloser(strings.NewReader(c.body)),
	}, nil
}

// BenchmarkClientCost is what a call costs this process, the service aside: the
// append of a log and a query of 100 rows of 1,000 bytes, here and with the
// client of the SDK.
func BenchmarkClientCost(b *testing.B) {
	appended := canned{http.StatusAccepted, batchType, reply(done(1), done(2))}
	var log []string
	for i := range 100 {
		log = append(log, logRow(fmt.Sprintf("%012d", i), strings.Repeat("v", 1000)))
	}
	queried := canned{http.StatusOK, acceptJSON, string(pageBody(log...))}
	data := make([]byte, 200)
	b.Run("append/lattice", func(b *testing.B) {
		table := cannedTable(b, appended)
		b.ReportAllocs()
		for range b.N {
			if _, err := table.Apply(b.Context(), "part", []store.Op{store.Insert("a", data), store.Replace("b", data, someTag)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append/sdk", func(b *testing.B) {
		client := cannedSDK(b, appended)
		b.ReportAllocs()
		for range b.N {
			if _, err := client.SubmitTransaction(b.Context(), []aztables.TransactionAction{
				{ActionType: aztables.TransactionTypeAdd, Entity: appendEntity(nil, "part", store.Insert("a", data))},
				{ActionType: aztables.TransactionTypeUpdateReplace, Entity: appendEntity(nil, "part", store.Insert("b", data)), IfMatch: to.Ptr(azcore.ETag(someTag))},
			}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("query/lattice", func(b *testing.B) {
		table := cannedTable(b, queried)
		b.ReportAllocs()
		for range b.N {
			if page, err := table.Range(b.Context(), "part", store.RangeQuery{}); err != nil || len(page.Rows) != 100 {
				b.Fatal(err)
			}
		}
	})
	b.Run("query/sdk", func(b *testing.B) {
		client := cannedSDK(b, queried)
		b.ReportAllocs()
		for range b.N {
			page, err := client.NewListEntitiesPager(nil).NextPage(b.Context())
			if err != nil || len(page.Entities) != 100 {
				b.Fatal(err)
			}
			for _, raw := range page.Entities {
				var e aztables.EDMEntity
				if err := e.UnmarshalJSON(raw); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func cannedTable(b *testing.B, c canned) *Table {
	b.Helper()
	table, err := New(b.Context(), Options{ConnectionString: fakeString, TableName: "tab", Lazy: true, Transport: c})
	if err != nil {
		b.Fatal(err)
	}
	return table
}

func cannedSDK(b *testing.B, c canned) *aztables.Client {
	b.Helper()
	service, err := aztables.NewServiceClientFromConnectionString(fakeString, &aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: c}})
	if err != nil {
		b.Fatal(err)
	}
	return service.NewClient("tab")
}
