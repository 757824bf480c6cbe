package cosmos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testKey is a key in form only.
const testKey = "c2VjcmV0LWtleS1vZi1hLXRlc3Q="

// gateway answers requests in this process, so that time may be virtual.
type gateway struct {
	// container is the description of the container.
	container string
	// items are what queries yield, in the order of the service.
	items []string
	// refuse is asked before each request to a container or a query; a status
	// other than 0 is the answer.
	refuse func(query bool) (status int, header map[string]string, body string)
	// queries are the texts of the queries that came, sizes the pages they asked
	// for, tokens those they went on with.
	queries []string
	sizes   []int
	tokens  []string
}

func newGateway(items ...string) *gateway {
	return &gateway{container: `{"id":"items","_rid":"rid-1","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, items: items}
}

func (g *gateway) open(t *testing.T, o Options) *Source {
	t.Helper()
	o.Endpoint, o.Key, o.Database, o.Container = "https://test.documents.example", testKey, "db", "items"
	o.HTTPClient = &http.Client{Transport: g}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// RoundTrip implements http.RoundTripper.
func (g *gateway) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.Trim(req.URL.Path, "/")
	if path == "" {
		return answer(req, http.StatusOK, nil, `{"id":"test","writableLocations":[{"name":"here","databaseAccountEndpoint":"https://test.documents.example/"}],`+
			`"readableLocations":[{"name":"here","databaseAccountEndpoint":"https://test.documents.example/"}]}`), nil
	}
	query := path == "dbs/db/colls/items/docs" && req.Method == http.MethodPost
	if g.refuse != nil {
		if status, header, body := g.refuse(query); status != 0 {
			if status < 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return answer(req, status, header, body), nil
		}
	}
	switch {
	case query:
		return g.query(req)
	case path == "dbs/db/colls/items":
		return answer(req, http.StatusOK, map[string]string{
			"x-ms-resource-usage": fmt.Sprintf("documentSize=0;documentsSize=1;documentsCount=%d;collectionSize=1", len(g.items)),
		}, g.container), nil
	}
	return answer(req, http.StatusNotFound, nil, `{"code":"NotFound","message":"no such thing"}`), nil
}

// query yields a page; its token is the number of the next item.
func (g *gateway) query(req *http.Request) (*http.Response, error) {
	var q struct{ Query string }
	if err := json.NewDecoder(req.Body).Decode(&q); err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(req.Header.Get("x-ms-max-item-count"))
	if err != nil || req.Header.Get("x-ms-documentdb-query-enablecrosspartition") != "true" || req.Header.Get("x-ms-documentdb-partitionkey") != "" {
		return nil, fmt.Errorf("not a query over all partitions: %v", req.Header)
	}
	token := req.Header.Get("x-ms-continuation")
	g.queries, g.sizes, g.tokens = append(g.queries, q.Query), append(g.sizes, size), append(g.tokens, token)
	at := 0
	if token != "" {
		if at, err = strconv.Atoi(token); err != nil {
			return answer(req, http.StatusBadRequest, nil, `{"code":"BadRequest","message":"Invalid Continuation Token"}`), nil
		}
	}
	end := min(at+size, len(g.items))
	header := map[string]string{}
	if end < len(g.items) {
		header["x-ms-continuation"] = strconv.Itoa(end)
	}
	return answer(req, http.StatusOK, header, `{"_rid":"rid-1","Documents":[`+strings.Join(g.items[at:end], ",")+`],"_count":1}`), nil
}

func answer(req *http.Request, status int, header map[string]string, body string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	for name, value := range header {
		h.Set(name, value)
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", Header: h,
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)), Request: req}
}

// times refuses the first n requests that are queries, or are not.
func times(n int, query bool, status int, header map[string]string, body string) func(bool) (int, map[string]string, string) {
	return func(isQuery bool) (int, map[string]string, string) {
		if isQuery != query || n == 0 {
			return 0, nil, ""
		}
		n--
		return status, header, body
	}
}

func numbered(n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id":"%d","pk":"p%d","_ts":1700000000,"_rid":"r","_self":"s","_etag":"e","_attachments":"a"}`, i, i%7)
	}
	return items
}
