package azuretable

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

const (
	serviceVersion = "2019-02-02"
	contentJSON    = "application/json"
	acceptJSON     = "application/json;odata=minimalmetadata"
	// maxEntityBody bounds the answer to a point query: a full row in base64 and
	// its names.
	maxEntityBody = 2 << 20
	// maxPageBody bounds the answer to a query. The emulator fills pages by rows
	// alone, which could be 700 MB; what exceeds the bound is asked for again.
	maxPageBody = 8 << 20
	// maxWriteBody bounds the answer to a write: some 500 bytes an operation.
	maxWriteBody = 1 << 20
	// maxErrorBody bounds what is read of an error.
	maxErrorBody = 64 << 10
	// maxPooledBuffer keeps the rare huge buffer out of the pool.
	maxPooledBuffer = 1 << 20
)

// wire makes exchanges with the service: one request, one whole answer.
type wire struct {
	pipeline runtime.Pipeline
	base     string
	sas      string
	timeout  time.Duration
}

func newWire(s azhttp.Endpoint, auth []policy.Policy, options policy.ClientOptions, timeout time.Duration) wire {
	return wire{
		pipeline: runtime.NewPipeline("aztables", "v1", runtime.PipelineOptions{PerRetry: auth}, &options),
		base:     s.URL,
		sas:      s.SAS,
		timeout:  timeout,
	}
}

// request is what differs between requests.
type request struct {
	method, path, query  string
	contentType, ifMatch string
	body                 []byte
}

// answer is a response whose body has arrived.
type answer struct {
	status            int
	etag, contentType string
	// nextPartition and nextRow say where a query goes on.
	nextPartition, nextRow string
	// cut says that the body was longer than the bound and is not whole.
	cut bool
	buf *bytes.Buffer
}

func (a *answer) body() []byte { return a.buf.Bytes() }

// release gives the body's memory back; nothing may point into it any more.
func (a *answer) release() {
	if a.buf.Cap() <= maxPooledBuffer {
		a.buf.Reset()
		buffers.Put(a.buf)
	}
	a.buf = nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (w *wire) read(ctx context.Context, path, query string, limit int64) (*answer, error) {
	return w.exchange(ctx, request{method: http.MethodGet, path: path, query: query}, false, limit)
}

func (w *wire) write(ctx context.Context, r request) (*answer, error) {
	return w.exchange(ctx, r, true, maxWriteBody)
}

// exchange sends a request and reads its answer. An answer that reports a failure
// is an error that wraps an *azhttp.StatusError.
func (w *wire) exchange(ctx context.Context, r request, write bool, limit int64) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	ctx, sent := azhttp.Watch(ctx)
	req, err := w.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := w.pipeline.Do(req)
	if err != nil {
		return nil, azhttp.Lost(ctx, err, write, sent)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, azhttp.Fail(readError(resp), write)
	}
	a := &answer{
		status:        resp.StatusCode,
		etag:          first(resp.Header, "Etag"),
		contentType:   first(resp.Header, "Content-Type"),
		nextPartition: first(resp.Header, "X-Ms-Continuation-Nextpartitionkey"),
		nextRow:       first(resp.Header, "X-Ms-Continuation-Nextrowkey"),
	}
	if err := a.fill(resp, limit); err != nil {
		return nil, azhttp.Lost(ctx, fmt.Errorf("read answer: %w", err), write, sent)
	}
	return a, nil
}

// first returns a header by its canonical name.
func first(h http.Header, canonical string) string {
	if v := h[canonical]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// prepare builds a request for the pipeline.
func (w *wire) prepare(ctx context.Context, r request) (*policy.Request, error) {
	url := w.base + r.path
	switch {
	case r.query != "" && w.sas != "":
		url += "?" + r.query + "&" + w.sas
	case r.query != "":
		url += "?" + r.query
	case w.sas != "":
		url += "?" + w.sas
	}
	req, err := runtime.NewRequest(ctx, r.method, url)
	if err != nil {
		// The cause quotes the URL, and with it the signature.
		return nil, fmt.Errorf("%w: the service address makes no URL", store.ErrInvalid)
	}
	runtime.SkipBodyDownload(req)
	h := req.Raw().Header
	h["X-Ms-Version"] = []string{serviceVersion}
	h["Dataserviceversion"] = []string{"3.0"}
	h["Accept"] = []string{acceptJSON}
	if r.ifMatch != "" {
		h["If-Match"] = []string{r.ifMatch}
	}
	if r.contentType == "" {
		return req, nil
	}
	h["Prefer"] = []string{"return-no-content"}
	return req, req.SetBody(streaming.NopCloser(bytes.NewReader(r.body)), r.contentType)
}

// fill reads the body, at most limit bytes of it.
func (a *answer) fill(resp *http.Response, limit int64) error {
	a.buf = buffers.Get().(*bytes.Buffer)
	if n := resp.ContentLength; n > 0 && n <= limit {
		a.buf.Grow(int(n) + bytes.MinRead)
	}
	n, err := a.buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		a.release()
		return err
	}
	if n > limit {
		a.cut = true
		a.buf.Truncate(int(limit))
	}
	return nil
}

// readError describes a refusal. The code stands in a header, or only in the
// body, which is JSON or XML as the service pleases.
func readError(resp *http.Response) *azhttp.StatusError {
	e := azhttp.NewStatusError(resp)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil && e.Code == "" {
		e.Code, _ = errorBody(body)
	}
	return e
}

// errorBody finds code and message in an error of the service; both are empty if
// it is not one.
func errorBody(body []byte) (code, message string) {
	var j struct {
		Error struct {
			Code    string `json:"code"`
			Message struct {
				Value string `json:"value"`
			} `json:"message"`
		} `json:"odata.error"`
	}
	if json.Unmarshal(body, &j) == nil {
		return j.Error.Code, j.Error.Message.Value
	}
	var x struct {
		Code    string
		Message string
	}
	if err := xml.Unmarshal(body, &x); err == nil || errors.Is(err, io.EOF) {
		return x.Code, x.Message
	}
	return "", ""
}
