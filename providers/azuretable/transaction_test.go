package azuretable

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

const batchType = "multipart/mixed; boundary=batchresponse_b"

// reply builds the answer to a transaction out of inner responses.
func reply(responses ...string) string {
	var b strings.Builder
	b.WriteString("--batchresponse_b\r\nContent-Type: multipart/mixed; boundary=changesetresponse_c\r\n\r\n")
	for _, r := range responses {
		b.WriteString("--changesetresponse_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" + r + "\r\n")
	}
	b.WriteString("--changesetresponse_c--\r\n--batchresponse_b--\r\n")
	return b.String()
}

func done(n int) string {
	return azfake.Lines("HTTP/1.1 204 No Content", "DataServiceVersion: 3.0;", "ETag: "+tagOf(n), "")
}

func tagOf(n int) string { return fmt.Sprintf(`W/"datetime'2030-01-01T00%%3A00%%3A00.%07dZ'"`, n) }

func deleted() string { return azfake.Lines("HTTP/1.1 204 No Content", "DataServiceVersion: 1.0;", "") }

func refused(status int, code, message string) string {
	text, err := json.Marshal(message + "\nRequestId:x\nTime:y")
	if err != nil {
		panic(err)
	}
	return azfake.Lines(fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status)), "Content-ID: 7",
		"Content-Type: application/json;odata=minimalmetadata", "",
		`{"odata.error":{"code":"`+code+`","message":{"lang":"en-US","value":`+string(text)+`}}}`)
}

var threeOps = []store.Op{store.Insert("a", nil), store.Replace("b", nil, someTag), store.Delete("c", "")}

func TestTransactionReturnsAnETagForEachOperation(t *testing.T) {
	etags, err := readTransaction(batchType, []byte(reply(done(1), done(2), deleted())), threeOps)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.ETag{store.ETag(tagOf(1)), store.ETag(tagOf(2)), ""}
	if fmt.Sprint(etags) != fmt.Sprint(want) {
		t.Fatalf("got %q, want %q", etags, want)
	}
}

func TestTransactionReadsOtherLineBreaksAndQuotedBoundaries(t *testing.T) {
	body := strings.ReplaceAll(reply(done(1), done(2), deleted()), "\r\n", "\n")
	if _, err := readTransaction(`multipart/mixed; boundary="batchresponse_b"`, []byte(body), threeOps); err != nil {
		t.Fatal(err)
	}
	preamble := "ignored\r\n" + reply(done(1), done(2), deleted()) + "ignored"
	if _, err := readTransaction(batchType, []byte(preamble), threeOps); err != nil {
		t.Fatal(err)
	}
}

func TestTransactionAnswerThatIsNotWholeLeavesTheOutcomeUnknown(t *testing.T) {
	for name, body := range map[string]string{
		"Success": reply(done(1), done(2), deleted()),
		"Failure": reply(refused(409, "EntityAlreadyExists", "0:exists")),
	} {
		t.Run(name, func(t *testing.T) {
			whole := strings.TrimSuffix(body, "--\r\n")
			for n := range len(whole) {
				etags, err := readTransaction(batchType, []byte(whole[:n]), threeOps)
				if etags != nil || !errors.Is(err, store.ErrOutcomeUnknown) {
					t.Fatalf("the first %d of %d bytes: %v, %v, want outcome unknown", n, len(whole), etags, err)
				}
			}
		})
	}
}

func TestStrangeTransactionAnswersLeaveTheOutcomeUnknown(t *testing.T) {
	for name, tc := range map[string]struct{ contentType, body string }{
		"Empty":               {batchType, ""},
		"NoContentType":       {"", reply(done(1), done(2), deleted())},
		"JSON":                {"application/json", `{"odata.error":{}}`},
		"OtherBoundary":       {"multipart/mixed; boundary=x", reply(done(1), done(2), deleted())},
		"NoParts":             {batchType, reply()},
		"OnePartMissing":      {batchType, reply(done(1), done(2))},
		"OnePartTooMany":      {batchType, reply(done(1), done(2), deleted(), deleted())},
		"NoETag":              {batchType, reply(done(1), deleted(), deleted())},
		"NoStatusLine":        {batchType, reply("hello", done(2), deleted())},
		"StatusNotANumber":    {batchType, reply("HTTP/1.1 abc\r\n", done(2), deleted())},
		"StatusOutOfRange":    {batchType, reply("HTTP/1.1 999 X\r\n\r\n", done(2), deleted())},
		"Redirect":            {batchType, reply("HTTP/1.1 302 Found\r\n\r\n", done(2), deleted())},
		"InnerNotMultipart":   {batchType, "--batchresponse_b\r\nContent-Type: text/plain\r\n\r\nx\r\n--batchresponse_b--\r\n"},
		"TwoChangeSets":       {batchType, "--batchresponse_b\r\n\r\nx\r\n--batchresponse_b\r\n\r\ny\r\n--batchresponse_b--\r\n"},
		"FailedWithTimeout":   {batchType, reply(refused(500, "OperationTimedOut", "0:timed out"))},
		"FailedInternally":    {batchType, reply(refused(500, "InternalError", "0:oops"))},
		"DelimiterInsideLine": {batchType, "x --batchresponse_b--\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			etags, err := readTransaction(tc.contentType, []byte(tc.body), threeOps)
			if etags != nil || !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Fatalf("got %v, %v, want outcome unknown", etags, err)
			}
		})
	}
}

func TestTransactionNamesTheOperationThatFailed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		parts []string
		want  error
		index int
		key   string
	}{
		{"Exists", []string{refused(409, "EntityAlreadyExists", "0:The specified entity already exists.")}, store.ErrExists, 0, "a"},
		{"Precondition", []string{refused(412, "UpdateConditionNotSatisfied", "1:not satisfied")}, store.ErrPrecondition, 1, "b"},
		{"ReplacedRowIsGone", []string{refused(404, "ResourceNotFound", "1:gone")}, store.ErrPrecondition, 1, "b"},
		{"DeletedRowIsGone", []string{refused(404, "ResourceNotFound", "2:gone")}, store.ErrNotFound, 2, "c"},
		{"PlaceInsteadOfNumber", []string{done(1), refused(412, "UpdateConditionNotSatisfied", "not satisfied"), deleted()}, store.ErrPrecondition, 1, "b"},
		{"NeitherPlaceNorNumber", []string{refused(412, "UpdateConditionNotSatisfied", "not satisfied")}, store.ErrPrecondition, -1, ""},
		{"NumberOutOfRange", []string{refused(412, "UpdateConditionNotSatisfied", "3:not satisfied")}, store.ErrPrecondition, -1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readTransaction(batchType, []byte(reply(tc.parts...)), threeOps)
			var failed *store.OpError
			if !errors.Is(err, tc.want) || !errors.As(err, &failed) {
				t.Fatalf("got %v, want %v of an operation", err, tc.want)
			}
			if failed.Index != tc.index || failed.Key != tc.key {
				t.Fatalf("names operation %d on %q, want %d on %q", failed.Index, failed.Key, tc.index, tc.key)
			}
		})
	}
}

func TestTransactionFailuresOfTheServiceNameNoOperation(t *testing.T) {
	for _, tc := range []struct {
		response string
		want     error
	}{
		{refused(503, "ServerBusy", "0:busy"), store.ErrThrottled},
		{refused(429, "TooManyRequests", "0:busy"), store.ErrThrottled},
		{refused(404, "TableNotFound", "0:no table"), store.ErrUnavailable},
		{refused(413, "RequestBodyTooLarge", "0:large"), store.ErrTooLarge},
		{refused(400, "EntityTooLarge", "1:large"), store.ErrTooLarge},
		{refused(400, "InvalidInput", "1:what"), store.ErrInvalid},
		{"HTTP/1.1 412 Precondition Failed\r\nx-ms-error-code: ServerBusy\r\n\r\n<?xml", store.ErrThrottled},
	} {
		_, err := readTransaction(batchType, []byte(reply(tc.response)), threeOps)
		var failed *store.OpError
		if !errors.Is(err, tc.want) || errors.As(err, &failed) {
			t.Errorf("%q: got %v, want %v", tc.response[:30], err, tc.want)
		}
	}
}

func TestErrorBodiesOfBothForms(t *testing.T) {
	for _, tc := range []struct{ body, code, message string }{
		{`{"odata.error":{"code":"A","message":{"lang":"en","value":"b"}}}`, "A", "b"},
		{"<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n<Error>\n  <Code>A</Code>\n  <Message>b</Message>\n</Error>", "A", "b"},
		{`<error><code>x</code></error>`, "", ""},
		{`plain`, "", ""},
		{``, "", ""},
	} {
		if code, message := errorBody([]byte(tc.body)); code != tc.code || message != tc.message {
			t.Errorf("%q: got %q, %q", tc.body, code, message)
		}
	}
}

// TestTransactionIsMultipart reads what is sent with the parsers of the standard
// library.
func TestTransactionIsMultipart(t *testing.T) {
	table := &Table{name: "tab", boundary: newBoundary(), wire: wire{base: "http://h/acc"}}
	ops := []store.Op{
		store.Insert("a", []byte("data-a")), store.Replace("b", []byte("data-b"), someTag),
		store.Delete("c", ""), store.Delete("d", someTag),
	}
	body := table.appendTransaction(nil, "part", ops)
	if bound := table.transactionSize("part", ops); len(body) > bound {
		t.Errorf("body of %d bytes, bound %d", len(body), bound)
	}
	want := []struct{ method, url, ifMatch string }{
		{"POST", "http://h/acc/tab", ""},
		{"PUT", "http://h/acc/tab(PartitionKey='part',RowKey='b')", someTag},
		{"DELETE", "http://h/acc/tab(PartitionKey='part',RowKey='c')", "*"},
		{"DELETE", "http://h/acc/tab(PartitionKey='part',RowKey='d')", someTag},
	}
	for i, req := range requestsIn(t, body, "batch_"+table.boundary) {
		got := struct{ method, url, ifMatch string }{req.Method, req.URL.String(), req.Header.Get("If-Match")}
		if got != want[i] {
			t.Errorf("operation %d: %+v, want %+v", i, got, want[i])
		}
	}
}

func requestsIn(t *testing.T, body []byte, boundary string) []*http.Request {
	t.Helper()
	batch, err := multipart.NewReader(bytes.NewReader(body), boundary).NextPart()
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(batch.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	var requests []*http.Request
	for r := multipart.NewReader(batch, params["boundary"]); ; {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return requests
		}
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.ReadRequest(bufio.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, req)
	}
}

func TestLargestTransactionFitsTheService(t *testing.T) {
	table := &Table{name: strings.Repeat("t", 63), boundary: newBoundary(), wire: wire{base: "https://" + strings.Repeat("a", 24) + ".table.core.windows.net"}}
	var ops []store.Op
	for i := range store.MaxTransactionOps {
		key := fmt.Sprintf("%0*d", store.MaxKeyBytes, i)
		ops = append(ops, store.Replace(key, make([]byte, store.MaxTransactionBytes/store.MaxTransactionOps), someTag))
	}
	partition := strings.Repeat("p", store.MaxKeyBytes)
	if err := store.CheckOps(partition, ops); err != nil {
		t.Fatal(err)
	}
	if n := len(table.appendTransaction(nil, partition, ops)); n > 4<<20 {
		t.Fatalf("body of %d bytes, the service takes 4 MiB", n)
	}
}

func FuzzReadTransaction(f *testing.F) {
	f.Add(batchType, []byte(reply(done(1), done(2), deleted())))
	f.Add(batchType, []byte(reply(refused(409, "EntityAlreadyExists", "0:exists"))))
	f.Add(batchType, []byte("--batchresponse_b--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		etags, err := readTransaction(contentType, body, threeOps)
		if err == nil && (len(etags) != 3 || etags[0] == "" || etags[1] == "" || etags[2] != "") {
			t.Fatalf("accepted with ETags %q", etags)
		}
		if err != nil && etags != nil {
			t.Fatalf("both %q and %v", etags, err)
		}
	})
}
