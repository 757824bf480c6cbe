package hostile

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"
)

// framingAttacks are bytes that servers and proxies have read in different ways.
func framingAttacks(w *world) []attack {
	auth := w.bearer("writer orders*")
	raw := func(name, head, body string, status int, code string) attack {
		text := strings.ReplaceAll(head, "\n", "\r\n") + "\r\n" + auth + "\r\nConnection: close\r\n\r\n" + body
		return attack{name: name, raw: text, status: status, code: code, secrets: []string{w.keys["writer orders*"]}}
	}
	notHTTP := func(name, head, body string) attack { return raw(name, head, body, 400, "") }
	headers := func(name string, status int, code string, more ...string) attack {
		return attack{name: name, raw: request(write, "x", append(more, auth)...), status: status, code: code, secrets: []string{w.keys["writer orders*"]}}
	}
	method := func(name, line string, status int, code string, more ...string) attack {
		return attack{name: name, raw: request(line, "", append(more, auth)...), status: status, code: code}
	}
	const put = write + " HTTP/1.1\nHost: h\n"
	return []attack{
		notHTTP("two lengths", put+"Content-Length: 1\nContent-Length: 2", "xx"), notHTTP("a list of lengths", put+"Content-Length: 1, 2", "xx"), notHTTP("a length below zero", put+"Content-Length: -1", "x"), notHTTP("a length with a sign", put+"Content-Length: +1", "x"),
		notHTTP("a length in hexadecimal", put+"Content-Length: 0x1", "x"), notHTTP("a length that overflows", put+"Content-Length: 18446744073709551617", "x"), notHTTP("a length that is no number", put+"Content-Length: one", "x"), notHTTP("an empty length", put+"Content-Length:", "x"),
		raw("chunked twice", put+"Transfer-Encoding: chunked\nTransfer-Encoding: chunked", chunked("x"), 501, ""), raw("another coding before", put+"Transfer-Encoding: gzip, chunked", chunked("x"), 501, ""), raw("a coding that there is not", put+"Transfer-Encoding: xchunked", chunked("x"), 501, ""),
		raw("identity as a transfer coding", put+"Transfer-Encoding: identity\nContent-Length: 1", "x", 501, ""), notHTTP("a coding behind a blank", put+"Transfer-Encoding : chunked", chunked("x")), notHTTP("a coding of bytes", put+"Transfer-Encoding: \x0bchunked", chunked("x")),
		raw("a length of a chunk that overflows", put+"Transfer-Encoding: chunked", "fffffffffffffffff\r\nx\r\n0\r\n\r\n", 400, invalid), raw("a length of a chunk below zero", put+"Transfer-Encoding: chunked", "-1\r\nx\r\n0\r\n\r\n", 400, invalid), raw("a chunk without an end", put+"Transfer-Encoding: chunked", "1\r\nxx\r\n0\r\n\r\n", 400, invalid),
		raw("a chunk that ends with a bare line feed", put+"Transfer-Encoding: chunked", "1\nx\n0\n\n", 400, invalid), raw("an extension without end", put+"Transfer-Encoding: chunked", "1;"+strings.Repeat("a", 20_000)+"\r\nx\r\n0\r\n\r\n", 400, invalid),
		notHTTP("no host", write+" HTTP/1.1\nContent-Length: 1", "x"), notHTTP("two hosts", put+"Host: other\nContent-Length: 1", "x"), notHTTP("a host with a path", write+" HTTP/1.1\nHost: h/../x\nContent-Length: 1", "x"), notHTTP("a host with a blank", write+" HTTP/1.1\nHost: a b\nContent-Length: 1", "x"),
		notHTTP("a blank line first in the header", write+" HTTP/1.1\n Host: h\nContent-Length: 1", "x"), notHTTP("a control in a value", put+"X-A: a\x01b\nContent-Length: 1", "x"), notHTTP("a header without a name", put+": x\nContent-Length: 1", "x"), notHTTP("a header that is a request", put+"GET /internal HTTP/1.1\nContent-Length: 1", "x"),
		raw("HTTP 3.0", write+" HTTP/3.0\nHost: h\nContent-Length: 1", "x", 505, ""), notHTTP("HTTP without a number", write+" HTTP/x\nHost: h\nContent-Length: 1", "x"), notHTTP("HTTPS", write+" HTTPS/1.1\nHost: h", ""), {name: "TLS to a plain port", raw: "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\n\n", status: 400},
		{name: "the preface of HTTP/2", raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 404, code: nowhere}, {name: "a mail", raw: "HELO lattice\r\nMAIL FROM:<a>\r\n\r\n", status: 400}, {name: "a command of Redis", raw: "*1\r\n$7\r\nFLUSHDB\r\n\r\n", status: 400},
		headers("a header of 70,000 bytes", 413, "request_too_large", "X-Long: "+strings.Repeat("a", 70_000)), headers("5,000 headers", 413, "request_too_large", strings.Split(strings.Repeat("X-Many: abcdef\n", 5000)+"X-Last: a", "\n")...), headers("a header of 300,000 bytes", 431, "", "X-Long: "+strings.Repeat("a", 300_000)),
		{name: "a path of 300,000 bytes", raw: request("PUT /"+strings.Repeat("a", 300_000), "x"), status: 431}, headers("a cookie of 70,000 bytes", 413, "request_too_large", "Cookie: "+strings.Repeat("a=b; ", 14_000)),
		headers("an expectation that there is not", 417, "", "Expect: 200-ok"), headers("an upgrade to another protocol and a bad type", 400, invalid, "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", "Content-Type: x"),
		method("TRACE", "TRACE /v1/trees/orders-1/keys/a", 405, "method_not_allowed"), method("TRACK", "TRACK /v1/trees/orders-1/keys/a", 405, "method_not_allowed"), method("CONNECT to another machine", "CONNECT 127.0.0.1:22", 404, nowhere), method("PROPFIND", "PROPFIND /v1/trees", 405, "method_not_allowed"),
		method("a method in small letters", "put /v1/trees/orders-1/keys/hostile", 405, "method_not_allowed"), method("a method of 1,000 letters", strings.Repeat("A", 1000)+" /v1/trees", 405, "method_not_allowed"), method("OPTIONS of another origin", "OPTIONS /v1/trees/orders-1/keys/a", 405, "method_not_allowed", "Origin: https://evil.example", "Access-Control-Request-Method: DELETE"),
		method("DELETE by an override", "POST /v1/trees/orders-1/keys/a", 405, "method_not_allowed", "X-HTTP-Method-Override: DELETE", "X-Method-Override: DELETE", "X-HTTP-Method: DELETE"), method("DELETE by a parameter", "GET /v1/trees/orders-1/keys/a?_method=DELETE", 400, invalid),
		headers("a request id that is a header", 400, invalid, "X-Request-Id: a%0d%0aSet-Cookie:b=c", "Content-Type: x"), headers("a request id that is a script", 400, invalid, "X-Request-Id: <script>alert(1)</script>", "Content-Type: x"), headers("a request id of 5,000 bytes", 400, invalid, "X-Request-Id: "+strings.Repeat("a", 5000), "Content-Type: x"),
		headers("a type with a line break encoded, and none", 400, invalid, "Content-Type: text/html%0d%0aSet-Cookie: a=b"), headers("a type that is none", 400, invalid, "Content-Type: no type"), headers("a type without a slash", 400, invalid, "Content-Type: html"), headers("types", 400, invalid, "Content-Type: text/plain", "Content-Type: text/html"),
		headers("a type of 10,000 bytes", 400, invalid, "Content-Type: text/plain; a="+strings.Repeat("b", 10_000)), headers("a type with a control", 400, "", "Content-Type: text/plain\x0b"), headers("a type with a byte that is no text", 400, invalid, "Content-Type: text/pl\xe9in"), headers("a type with a folded line", 400, invalid, "Content-Type: text/\r\n plain"),
	}
}

// bombs are bodies that are small on the way. Each is the whole of a request.
func bombs(t testing.TB) map[string]string {
	t.Helper()
	zeros := make([]byte, 1<<20)
	pack := func(open func(io.Writer) io.WriteCloser) string {
		var b bytes.Buffer
		z := open(&b)
		for range 32 {
			if _, err := z.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	return map[string]string{
		"gzip":    pack(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
		"deflate": pack(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }),
		"x-gzip": pack(func(w io.Writer) io.WriteCloser {
			z, err := flate.NewWriter(w, 9)
			if err != nil {
				t.Fatal(err)
			}
			return z
		}),
		// Brotli and Zstandard: a long run of one byte, as their formats have it.
		"br":   "\x5b\xff\xff\x7f\x00\x04\x30" + strings.Repeat("\x00", 64),
		"zstd": "\x28\xb5\x2f\xfd\xa4\x00\x00\x00\x02" + strings.Repeat("\x02\x00\x10\x00", 64),
	}
}

// bodyAttacks are bodies that are not what they should be.
func bodyAttacks(w *world) []attack {
	auth := w.bearer("writer orders*")
	const jsonType, lines = "Content-Type: application/json", "Content-Type: application/x-ndjson"
	send := func(name, line, body string, status int, code string, headers ...string) attack {
		return attack{name: name, raw: request(line, body, append(headers, auth)...), status: status, code: code, secrets: []string{w.keys["writer orders*"]}}
	}
	put := func(name string, status int, code string, headers ...string) attack {
		return send(name, write, "x", status, code, headers...)
	}
	batch := func(name, body string) attack {
		return send(name, "POST /v1/trees/orders-1/batch", body, 400, invalid, jsonType)
	}
	load := func(name, body string, status int, code string) attack {
		return send(name, "PUT /v1/trees/orders-load/bulk-loads/first/chunks/1", body, status, code, lines)
	}
	var all []attack
	for coding, bomb := range bombs(w.t) {
		const unsupported = "unsupported_encoding"
		coded := "Content-Encoding: " + coding
		all = append(all,
			send("a value by "+coding, write, bomb, 415, unsupported, coded), send("a batch by "+coding, "POST /v1/trees/orders-1/batch", bomb, 415, unsupported, jsonType, coded),
			send("a chunk by "+coding, "PUT /v1/trees/orders-load/bulk-loads/first/chunks/1", bomb, 415, unsupported, lines, coded), send("a stream by "+coding, "POST /v1/trees/orders-new/bulk-load?mode=stream", bomb, 415, unsupported, lines, coded),
		)
	}
	set := func(member string) string { return `{"operations":[{"op":"set","key":"hostile",` + member + `}]}` }
	return append(all,
		put("codings upon each other", 415, "unsupported_encoding", "Content-Encoding: gzip, gzip"), put("identity and gzip in two lines", 415, "unsupported_encoding", "Content-Encoding: identity", "Content-Encoding: gzip"), put("a content coding that there is not", 415, "unsupported_encoding", "Content-Encoding: bomb"),
		send("a value over the limit", write, strings.Repeat("x", 1<<20+1), 413, "value_too_large"), send("a value over the limit, in pieces", write, chunked(strings.Repeat("x", 1<<20), "x"), 413, "value_too_large", "Transfer-Encoding: chunked"),
		send("a value far over the limit, announced", write, "", 413, "value_too_large", "Content-Length: 99999999999999", "Expect: 100-continue"), send("a batch over the limit", "POST /v1/trees/orders-1/batch", strings.Repeat(" ", 300_000), 413, "request_too_large", jsonType),
		send("a chunk over the limit", "PUT /v1/trees/orders-load/bulk-loads/first/chunks/1", strings.Repeat(" ", 700_000), 413, "request_too_large", lines),
		batch("arrays in arrays", strings.Repeat("[", 100_000)), batch("objects in objects", strings.Repeat(`{"operations":`, 9_000)), batch("arrays in arrays as a value", set(`"json":`+strings.Repeat("[", 30_000)+strings.Repeat("]", 30_000))), batch("a member twice", `{"operations":[{"op":"set","key":"hostile","key":"other","text":"x"}]}`),
		batch("operations twice", `{"operations":[],"operations":[{"op":"set","key":"hostile","text":"x"}]}`), batch("a member in other case", `{"Operations":[{"op":"set","key":"hostile","text":"x"}]}`), batch("a member that there is not", `{"operations":[],"__proto__":{"admin":true}}`), batch("10,000 members", `{`+strings.Repeat(`"a":1,`, 10_000)+`"b":1}`),
		batch("half a pair", set(`"text":"\ud800"`)), batch("half a pair in the key", `{"operations":[{"op":"set","key":"\udc00","text":"x"}]}`), batch("bytes that are no text", set("\"text\":\"\xff\"")), batch("a byte order mark", "\xef\xbb\xbf"+set(`"text":"x"`)), batch("two documents", set(`"text":"x"`)+"{}"), batch("a comment", "/*x*/"+set(`"text":"x"`)),
		batch("a number without end as a time to live", set(`"text":"x","ttl":1`+strings.Repeat("0", 1000))), batch("an exponent", set(`"text":"x","ttl":1e999999999`)), batch("a time to live below zero", set(`"text":"x","ttl":"-1s"`)), batch("a time to live that overflows", set(`"text":"x","ttl":"9999999999h"`)), batch("not a number", set(`"text":"x","ttl":NaN`)),
		batch("a value of two forms", set(`"text":"x","value":"eA=="`)), batch("a value of bad base64", set(`"value":"x"`)), batch("a value that is null", set(`"text":null`)), batch("no value", `{"operations":[{"op":"set","key":"hostile"}]}`), batch("an operation that there is not", `{"operations":[{"op":"drop","key":"hostile"}]}`), batch("a key that is an object", `{"operations":[{"op":"set","key":{"$gt":""},"text":"x"}]}`),
		batch("a version that is none", set(`"text":"x","ifVersion":"' or 1=1"`)), batch("atomic, keys twice", `{"atomic":true,"operations":[{"op":"set","key":"hostile","text":"x"},{"op":"delete","key":"hostile"}]}`), batch("an operation id without end", `{"atomic":true,"operationId":"`+strings.Repeat("x", 5_000)+`","operations":[{"op":"set","key":"hostile","text":"x"}]}`),
		batch("text", "operations"), batch("nothing", ""), batch("null", "null"), batch("a form", "operations=x"),
		send("operations without end", "POST /v1/trees/orders-1/batch", `{"operations":[`+strings.Repeat(`{"op":"delete","key":"z"},`, 10_001)[:10_001*26-1]+`]}`, 413, "request_too_large", jsonType, "Connection: close"),
		send("a key of 1,025 bytes in a batch", "POST /v1/trees/orders-1/batch", `{"atomic":true,"operations":[{"op":"set","key":"`+strings.Repeat("k", 1025)+`","text":"x"}]}`, 413, "key_too_long", jsonType),
		load("a line without end", `{"key":"z","text":"`+strings.Repeat("x", 400_000), 400, invalid), load("lines that are no objects", "1\n2\n", 400, invalid), load("a line that is cut", `{"key":"z"`, 400, invalid), load("a key below the last", `{"key":"a","text":"x"}`, 422, "bulk_load_order"), load("keys twice", "{\"key\":\"z\",\"text\":\"x\"}\n{\"key\":\"z\",\"text\":\"x\"}\n", 422, "bulk_load_order"),
		send("a chunk with another digest", "PUT /v1/trees/orders-load/bulk-loads/first/chunks/1", `{"key":"z","text":"x"}`, 400, "digest_mismatch", lines, "Content-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"), send("a chunk skipped", "PUT /v1/trees/orders-load/bulk-loads/first/chunks/7", `{"key":"z","text":"x"}`, 409, "chunk_out_of_sequence", lines),
		send("a chunk below zero", "PUT /v1/trees/orders-load/bulk-loads/first/chunks/-1", `{"key":"z","text":"x"}`, 400, invalid, lines), send("a chunk whose number overflows", "PUT /v1/trees/orders-load/bulk-loads/first/chunks/99999999999999999999", `{"key":"z","text":"x"}`, 400, invalid, lines), send("a chunk of another type", "PUT /v1/trees/orders-load/bulk-loads/first/chunks/1", `{"key":"z"}`, 400, invalid, "Content-Type: text/plain"),
		send("a load that is a path", "PUT /v1/trees/orders-load/bulk-loads/..%2fx", "", 400, invalid), send("a load without end", "PUT /v1/trees/orders-load/bulk-loads/"+strings.Repeat("x", 1000), "", 400, invalid),
		put("a digest that is another", 400, "digest_mismatch", "Content-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"), put("a digest that is none", 400, invalid, "Content-Digest: sha-256=x"), put("a digest of two kinds of one name", 400, invalid, "Content-Digest: sha-256=:AA==:, sha-256=:AA==:"),
		put("a condition without quotes", 400, invalid, "If-Match: abc"), put("a condition cut", 400, invalid, `If-Match: "abc`), put("conditions without commas", 400, invalid, `If-Match: "a" "b"`), put("an empty condition", 400, invalid, "If-Match:"), put("a version that is not there", 412, "version_mismatch", `If-Match: "0"`), put("weak conditions", 412, "version_mismatch", `If-Match: W/"0"`),
		put("2,000 conditions", 412, "version_mismatch", "If-Match: "+strings.Repeat(`"x",`, 2000)+`"y"`), put("a star and a tag", 400, invalid, `If-Match: *, "a"`),
		put("a time to live of zero", 400, invalid, "Lattice-TTL: 0"), put("a time to live below zero, in the header", 400, invalid, "Lattice-TTL: -5s"), put("a time to live that overflows, in the header", 400, invalid, "Lattice-TTL: 9223372036854775807"), put("a time to live of a thousand years", 400, invalid, "Lattice-TTL: 9000000h"), put("times to live", 400, invalid, "Lattice-TTL: 1s", "Lattice-TTL: 2s"),
		put("a time to live in hexadecimal", 400, invalid, "Lattice-TTL: 0x10"), put("an infinite time to live", 400, invalid, "Lattice-TTL: Inf"),
	)
}

// tokenedAttacks use what somebody else was given.
func tokenedAttacks(w *world) []attack {
	reader, writer := w.bearer("reader orders*"), w.bearer("writer orders*")
	get := func(name, query string, status int, code string) attack {
		return attack{name: name, raw: request("GET /v1/trees/orders-1/"+query, "", reader), status: status, code: code}
	}
	post := func(name, path, body string, status int, code string) attack {
		return attack{name: name, raw: request("POST /v1/trees/orders-1/"+path, body, writer, "Content-Type: application/json"), status: status, code: code}
	}
	const entries = "entries?pageToken="
	return []attack{
		get("a page of another tree", entries+w.stolen.page, 400, invalid), get("a page of another direction", entries+w.stolen.forward+"&reverse=true", 400, invalid), get("a page of another range", entries+w.stolen.forward+"&prefix=z", 400, invalid), get("a page that is changed", entries+changed(w.stolen.forward), 400, invalid),
		get("a page that is cut", entries+w.stolen.forward[:len(w.stolen.forward)/2], 400, invalid), get("a page that is longer", entries+w.stolen.forward+"AAAA", 400, invalid), get("a page that is none", entries+"x", 400, invalid), get("a page of 50,000 bytes", entries+strings.Repeat("A", 50_000), 400, invalid), get("a page that is a path", entries+"..%2f..%2fpeople", 400, invalid),
		get("no entries", "entries?limit=0", 400, invalid), get("entries below zero", "entries?limit=-1", 400, invalid), get("entries without end", "entries?limit=99999999999999999999", 400, invalid), get("entries in another number", "entries?limit=1e3", 400, invalid), get("a range that ends before it begins", "entries?start=b&end=a", 400, invalid), get("a range of two kinds", "entries?prefix=a&start=b", 400, invalid),
		get("a limit twice", "entries?limit=1&limit=10000", 400, invalid), get("a range that is no text", "entries?prefix=%ff", 400, invalid), get("another form", "entries?as=exe", 400, invalid), get("an age that is none", "keys/a?max-age=1", 400, invalid),
		post("a cursor of another tree", "cursors/"+w.stolen.cursor+"/next", `{}`, 404, "cursor_not_found"), post("a cursor that is none", "cursors/x/next", `{}`, 404, "cursor_not_found"), post("a cursor that is a path", "cursors/..%2f..%2fpeople/next", `{}`, 404, "cursor_not_found"), post("a cursor of 10,000 bytes", "cursors/"+strings.Repeat("a", 10_000)+"/next", `{}`, 404, "cursor_not_found"),
		post("a cursor with a zero byte", "cursors/a%00/next", `{}`, 404, "cursor_not_found"), post("a page of a cursor below zero", "cursors/"+w.stolen.deleting+"/next", `{"page":-1}`, 400, invalid), post("a page of a cursor that overflows", "cursors/"+w.stolen.deleting+"/next", `{"page":99999999999999999999}`, 400, invalid), post("a page far ahead", "cursors/"+w.stolen.deleting+"/next", `{"page":1000}`, 400, invalid),
		post("a limit of a cursor without end", "cursors/"+w.stolen.deleting+"/next", `{"limit":1000000000}`, 400, invalid), post("a cursor of a kind that there is not", "cursors", `{"kind":"drop"}`, 400, invalid), post("a cursor over a long range", "cursors", `{"kind":"keys","start":"`+strings.Repeat("k", 2000)+`"}`, 413, "key_too_long"),
		post("keys without end", "batch-get", `{"keys":[`+strings.Repeat(`"a",`, 10_001)[:40_003]+`]}`, 413, "request_too_large"), post("keys that are numbers", "batch-get", `{"keys":[1]}`, 400, invalid),
		{name: "a delete of everything, unsaid", raw: request("DELETE /v1/trees/orders-1/entries", "", writer), status: 400, code: invalid},
	}
}

// changed is a token with another letter in its midst.
func changed(token string) string {
	b := []byte(token)
	if at := len(b) / 2; b[at] == 'x' {
		b[at] = 'y'
	} else {
		b[at] = 'x'
	}
	return string(b)
}
