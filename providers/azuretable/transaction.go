package azuretable

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// The entity-group transaction of "Performing entity group transactions" in the
// Table service REST reference: a multipart batch that holds one change set,
// which holds a request an operation. The answer has the same form; it has
// either one part an operation, all successes, or a single part that tells of
// the operation that failed.

// partFraming bounds what an operation adds to a transaction besides its entity,
// table name, partition, key and ETag.
const partFraming = 512

func (t *Table) transactionSize(partition string, ops []store.Op) int {
	n := 512
	for _, op := range ops {
		n += partFraming + len(t.wire.base) + len(t.name) + len(partition) + len(op.Key) + len(op.IfMatch)
		if op.Kind != store.OpDelete {
			n += entitySize(partition, op)
		}
	}
	return n
}

// appendTransaction appends the body of a transaction.
func (t *Table) appendTransaction(b []byte, partition string, ops []store.Op) []byte {
	b = append(b, "--batch_"...)
	b = append(b, t.boundary...)
	b = append(b, "\r\nContent-Type: multipart/mixed; boundary=changeset_"...)
	b = append(b, t.boundary...)
	b = append(b, "\r\n\r\n"...)
	for _, op := range ops {
		b = append(b, "--changeset_"...)
		b = append(b, t.boundary...)
		b = append(b, "\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"...)
		b = t.appendPart(b, partition, op)
		b = append(b, "\r\n"...)
	}
	b = append(b, "--changeset_"...)
	b = append(b, t.boundary...)
	b = append(b, "--\r\n--batch_"...)
	b = append(b, t.boundary...)
	return append(b, "--\r\n"...)
}

// appendPart appends the request of one operation.
func (t *Table) appendPart(b []byte, partition string, op store.Op) []byte {
	switch op.Kind {
	case store.OpInsert:
		b = append(b, "POST "...)
		b = append(b, t.wire.base...)
		b = append(b, '/')
		b = append(b, t.name...)
		b = append(b, " HTTP/1.1\r\nPrefer: return-no-content\r\n"...)
	case store.OpReplace:
		b = t.appendTarget(b, "PUT ", partition, op)
		b = appendIfMatch(b, string(op.IfMatch))
	case store.OpDelete:
		b = t.appendTarget(b, "DELETE ", partition, op)
		ifMatch := string(op.IfMatch)
		if ifMatch == "" {
			ifMatch = "*"
		}
		b = appendIfMatch(b, ifMatch)
	}
	b = append(b, "Accept: "+acceptJSON+"\r\nDataServiceVersion: 3.0\r\n"...)
	if op.Kind == store.OpDelete {
		return append(b, "\r\n"...)
	}
	b = append(b, "Content-Type: "+contentJSON+"\r\n\r\n"...)
	return appendEntity(b, partition, op)
}

func (t *Table) appendTarget(b []byte, verb, partition string, op store.Op) []byte {
	b = append(b, verb...)
	b = append(b, t.wire.base...)
	b = append(b, '/')
	b = append(b, t.name...)
	b = append(b, "(PartitionKey='"...)
	b = append(b, partition...)
	b = append(b, "',RowKey='"...)
	b = append(b, op.Key...)
	return append(b, "') HTTP/1.1\r\n"...)
}

func appendIfMatch(b []byte, etag string) []byte {
	b = append(b, "If-Match: "...)
	b = append(b, etag...)
	return append(b, "\r\n"...)
}

// part is one part of the answer to a transaction.
type part struct {
	status int
	etag   string
	code   string
	body   []byte
}

// readTransaction turns the answer to a transaction into its ETags or its
// failure. An answer that is not whole leaves the outcome unknown: the service
// sends the first part before it may come to the last.
func readTransaction(contentType string, body []byte, ops []store.Op) ([]store.ETag, error) {
	parts, err := readParts(contentType, body)
	if err != nil {
		return nil, fmt.Errorf("%w: answer to a transaction: %w", store.ErrOutcomeUnknown, err)
	}
	for i, p := range parts {
		if p.status >= 400 {
			return nil, transactionError(p, i, len(parts), ops)
		}
	}
	if len(parts) != len(ops) {
		return nil, fmt.Errorf("%w: %d answers to %d operations", store.ErrOutcomeUnknown, len(parts), len(ops))
	}
	etags := make([]store.ETag, len(ops))
	for i, p := range parts {
		if p.status < 200 || p.status > 299 {
			return nil, fmt.Errorf("%w: operation %d answered with status %d", store.ErrOutcomeUnknown, i, p.status)
		}
		if ops[i].Kind == store.OpDelete {
			continue
		}
		if p.etag == "" {
			return nil, fmt.Errorf("%w: operation %d answered without an ETag", store.ErrOutcomeUnknown, i)
		}
		etags[i] = store.ETag(p.etag)
	}
	return etags, nil
}

// transactionError names the operation that failed: by the number before the
// message, else by the place of its answer if the service sent one an operation.
func transactionError(p part, place, count int, ops []store.Op) error {
	code, message := errorBody(p.body)
	if p.code != "" {
		code = p.code
	}
	index := -1
	if number, _, ok := strings.Cut(message, ":"); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(ops) {
			index = n
		}
	}
	if index < 0 && (count == len(ops) || len(ops) == 1) {
		index = place
	}
	refused := &azhttp.StatusError{Status: p.status, Code: code}
	if index < 0 {
		return opError(refused, index, store.Op{})
	}
	return opError(refused, index, ops[index])
}

// opError turns the refusal of an operation into an error of the contract. A row
// that is gone has not the ETag that was asked for.
func opError(e *azhttp.StatusError, index int, op store.Op) error {
	sentinel := azhttp.Classify(e, true)
	missing := errors.Is(sentinel, store.ErrNotFound)
	if missing && op.IfMatch != "" {
		sentinel = store.ErrPrecondition
	}
	failed := azhttp.As(sentinel, e)
	if missing || store.LostRace(sentinel) {
		return &store.OpError{Index: index, Key: op.Key, Err: failed}
	}
	return failed
}

// readParts takes the two layers of the answer apart.
func readParts(contentType string, body []byte) ([]part, error) {
	outer, err := boundaryOf(contentType)
	if err != nil {
		return nil, err
	}
	batch, err := splitMultipart(body, outer)
	if err != nil {
		return nil, err
	}
	if len(batch) != 1 {
		return nil, fmt.Errorf("%d parts instead of one change set", len(batch))
	}
	head, rest := splitHead(batch[0])
	inner, err := boundaryOf(headerValue(head, "Content-Type"))
	if err != nil {
		return nil, err
	}
	changes, err := splitMultipart(rest, inner)
	if err != nil {
		return nil, err
	}
	parts := make([]part, len(changes))
	for i, change := range changes {
		if parts[i], err = readPart(change); err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
	}
	return parts, nil
}

func boundaryOf(contentType string) (string, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/mixed" || params["boundary"] == "" {
		return "", fmt.Errorf("content type %q is not multipart", contentType)
	}
	return params["boundary"], nil
}

// maxParts bounds the parts of an answer: one for each operation.
const maxParts = store.MaxTransactionOps

// splitMultipart returns the parts between the delimiters of RFC 2046, each from
// its first header on. It is an error if the last delimiter is missing.
func splitMultipart(body []byte, boundary string) ([][]byte, error) {
	delimiter := []byte("--" + boundary)
	var parts [][]byte
	start := -1
	for at := 0; ; {
		found := indexLine(body, delimiter, at)
		if found < 0 {
			return nil, fmt.Errorf("the last delimiter is missing after %d parts", len(parts))
		}
		if start >= 0 {
			parts = append(parts, trimBreak(body[start:found]))
		}
		after := body[found+len(delimiter):]
		if bytes.HasPrefix(after, []byte("--")) {
			return parts, nil
		}
		end := bytes.IndexByte(after, '\n')
		if end < 0 || len(parts) >= maxParts {
			return nil, fmt.Errorf("broken off after %d parts", len(parts))
		}
		at = found + len(delimiter) + end + 1
		start = at
	}
}

// indexLine finds a delimiter at the start of a line that holds nothing else but
// the closing dashes or white space.
func indexLine(body, delimiter []byte, from int) int {
	for from <= len(body) {
		i := bytes.Index(body[from:], delimiter)
		if i < 0 {
			return -1
		}
		at := from + i
		from = at + len(delimiter)
		if (at == 0 || body[at-1] == '\n') && endsDelimiter(body[from:]) {
			return at
		}
	}
	return -1
}

func endsDelimiter(rest []byte) bool {
	rest = bytes.TrimPrefix(rest, []byte("--"))
	rest = bytes.TrimLeft(rest, " \t")
	return len(rest) == 0 || rest[0] == '\r' || rest[0] == '\n'
}

// trimBreak removes the line break that belongs to the delimiter.
func trimBreak(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}

// splitHead parts header lines from what follows the blank line.
func splitHead(b []byte) (head, rest []byte) {
	at := 0
	for at < len(b) {
		end := bytes.IndexByte(b[at:], '\n')
		if end < 0 {
			break
		}
		if len(trimBreak(b[at:at+end+1])) == 0 {
			return b[:at], b[at+end+1:]
		}
		at += end + 1
	}
	return b, nil
}

// headerValue returns the value of a header in header lines.
func headerValue(head []byte, name string) string {
	for line := range bytes.Lines(head) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if ok && strings.EqualFold(string(key), name) {
			return textproto.TrimString(string(value))
		}
	}
	return ""
}

// readPart reads the HTTP response inside a part.
func readPart(b []byte) (part, error) {
	_, response := splitHead(b)
	line, rest, ok := bytes.Cut(response, []byte("\n"))
	fields := bytes.Fields(line)
	if !ok || len(fields) < 2 || !bytes.HasPrefix(fields[0], []byte("HTTP/")) {
		return part{}, fmt.Errorf("no status line")
	}
	status, err := strconv.Atoi(string(fields[1]))
	if err != nil || http.StatusText(status) == "" {
		return part{}, fmt.Errorf("no valid status")
	}
	head, body := splitHead(rest)
	return part{
		status: status,
		etag:   headerValue(head, "ETag"),
		code:   headerValue(head, "x-ms-error-code"),
		body:   body,
	}, nil
}
