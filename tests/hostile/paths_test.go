package hostile

import "strings"

// pathAttacks are ways to name what one may not reach.
func pathAttacks(w *world) []attack {
	admin, writer := w.bearer("admin *"), w.bearer("writer orders*")
	secrets := []string{w.keys["admin *"], w.keys["writer orders*"]}
	at := func(name, line string, status int, code string, headers ...string) attack {
		return attack{name: name, raw: request(line, "x", append(headers, admin)...), status: status, code: code, secrets: secrets}
	}
	internal := func(name, target string, headers ...string) attack {
		return at(name, "POST "+target, 404, nowhere, headers...)
	}
	inside := func(name, target string, headers ...string) attack {
		return at(name, "POST "+target, 403, denied, headers...)
	}
	tree := func(name, tree string) attack {
		return at(name, "PUT /v1/trees/"+tree+"/keys/hostile", 400, invalid)
	}
	noPath := func(name, target string) attack { return at(name, "PUT "+target, 404, nowhere) }
	notHTTP := func(name, line string) attack {
		return attack{name: name, raw: request(line, "x", admin), status: 400, secrets: secrets}
	}
	key := func(name, key string, status int, code string) attack {
		return attack{name: name, raw: request("PUT /v1/trees/orders-1/"+key, "x", writer), status: status, code: code, secrets: secrets}
	}
	return []attack{
		internal("internal, doubled", "//internal/timers/collect"), internal("internal behind a dot", "/./internal/timers/collect"), internal("internal behind a dot encoded", "/%2e/internal/timers/collect"),
		internal("internal, one letter encoded", "/%69nternal/timers/collect"), internal("internal, all letters encoded", "/%69%6e%74%65%72%6e%61%6c/timers/collect"), internal("internal behind a parent", "/v1/../internal/timers/collect"),
		internal("internal behind a parent encoded", "/v1/%2e%2e/internal/timers/collect"), internal("internal behind a parent with a slash encoded", "/v1/..%2finternal/timers/collect"), internal("internal behind a parent encoded twice", "/v1/%252e%252e/internal/timers/collect"),
		internal("internal behind a key", "/v1/trees/orders-1/keys/../../../../internal/timers/collect"), internal("internal with a slash encoded", "/internal%2Ftimers%2Fcollect"), internal("internal with a slash encoded twice", "/internal%252ftimers/collect"),
		internal("internal with a parameter", "/internal;a=b/timers/collect"), internal("internal in big letters", "/INTERNAL/timers/collect"), internal("internal in one capital", "/Internal/timers/collect"), internal("internal and a dot", "/internal./timers/collect"),
		internal("internal and a blank", "/internal%20/timers/collect"), internal("internal and a zero byte", "/internal%00/timers/collect"), internal("internal by backslashes", `/internal\timers\collect`), internal("internal by backslashes encoded", "/internal%5ctimers%5ccollect"),
		internal("internal with a letter that folds", "/%C4%B1nternal/timers/collect"), internal("internal in wide letters", "/%EF%BD%89nternal/timers/collect"), internal("internal overlong", "/%c0%afinternal/timers/collect"), internal("internal behind the version", "/v1/internal/timers/collect"),
		inside("internal itself", "/internal"), inside("internal and a slash", "/internal/"), inside("a timer", "/internal/timers/collect"), inside("a timer and a slash", "/internal/timers/collect/"), inside("a timer that there is not", "/internal/timers/all"), inside("a timer, doubled", "/internal//timers//collect"),
		inside("a timer behind a parent", "/internal/x/../timers/collect"), inside("a timer, a letter encoded", "/internal/timers/%63ollect"), inside("a timer, in capitals", "/internal/timers/COLLECT"), inside("a timer with a query", "/internal/timers/collect?internal=true"),
		inside("a timer with a fragment", "/internal/timers/collect%23"), inside("a timer in absolute form", "http://lattice.example/internal/timers/collect"), inside("a timer in absolute form of this machine", "http://127.0.0.1/internal/timers/collect"),
		inside("a timer, for another host", "/internal/timers/collect", "Host: localhost"), inside("a timer by HEAD or so", "/internal/timers/collect", "X-HTTP-Method-Override: GET"),
		inside("a timer from inside, it says", "/internal/timers/collect", "X-Forwarded-For: 127.0.0.1", "X-Azure-Functions-InvocationId: 1", "User-Agent: Azure-Functions-Host/4.0"),
		internal("a path of a rewriting proxy", "/nothing", "X-Original-URL: /internal/timers/collect", "X-Rewrite-URL: /internal/timers/collect", "X-Forwarded-Path: /internal/timers/collect"),
		internal("a prefix of a proxy", "/timers/collect", "X-Forwarded-Prefix: /internal", "X-Script-Name: /internal"),
		{name: "a timer without a credential", raw: request("POST /internal/timers/collect", ""), status: 401, code: unauthenticated},
		{name: "a timer, guessed", raw: request("POST /internal/timers/collect", "", "Authorization: Bearer internal"), status: 401, code: unauthenticated},
		internal("a timer as the Functions host calls it", "/collect"), internal("such a timer for the handler's own machine", "/collect", "Host: localhost"), internal("such a timer, a letter encoded", "/%63ollect"), internal("such a timer behind a parent encoded twice", "/v1/%252e%252e/collect"),
		{name: "debug pages", raw: request("GET /debug/pprof/heap", "", admin), status: 404, code: nowhere}, {name: "variables", raw: request("GET /debug/vars", "", admin), status: 404, code: nowhere},
		{name: "a file", raw: request("GET /../../etc/passwd", "", admin), status: 404, code: nowhere}, {name: "a file of the page", raw: request("GET /explorer/..%2f..%2f..%2fetc%2fpasswd", "", admin), status: 404, code: nowhere},
		{name: "a file of a version control", raw: request("GET /.git/config", "", admin), status: 404, code: nowhere}, {name: "a variable of a template", raw: request("GET /v1/trees/{tree}", "", admin), status: 400, code: invalid},

		tree("the parent", ".."), tree("the parent encoded", "%2e%2e"), tree("a dot", "."), tree("a zero byte", "orders-1%00"), tree("a slash encoded", "orders-1%2Fx"), tree("up and down", "orders-1%2f..%2fpeople"), tree("encoded twice", "orders-1%252f..%252fpeople"),
		tree("a backslash", "..%5cpeople"), tree("129 characters", strings.Repeat("a", 129)), tree("60,000 characters", strings.Repeat("a", 60_000)), tree("a name with a star", "orders*"), tree("a star encoded", "orders%2a"), tree("a question mark encoded", "orders%3f"), tree("a hash encoded", "orders%23"),
		tree("a blank", "orders%20x"), tree("a line break", "orders%0d%0aSet-Cookie:%20a=b"), tree("a quote", "orders'%20or%201"), tree("a name with a wide letter", "%ef%bd%8frders"), tree("a letter that folds", "order%c5%bf"), tree("a Cyrillic letter", "%d0%berders"), tree("overlong", "%c0%ae%c0%ae"),
		tree("a direction", "orders%e2%80%ae"), tree("a joiner", "orders%e2%80%8d"), tree("a tilde", "~root"), tree("a dollar", "$logs"), tree("a semicolon", "orders-1;x"), tree("a dot first", ".orders"), tree("a hyphen first", "-orders"), tree("a template", "%7B%7B7*7%7D%7D"), tree("a script", "%3Cscript%3E"),
		noPath("an empty tree", "/v1/trees//keys/hostile"), noPath("a tree behind a parent", "/v1/trees/x/../orders-1/keys/hostile"), noPath("version in capitals", "/V1/trees/orders-1/keys/hostile"), noPath("a path without a version", "/trees/orders-1/keys/hostile"), noPath("a key of several segments", "/v1/trees/orders-1/keys/a/b"),
		notHTTP("an encoding cut off", "PUT /v1/trees/orders-1/keys/%"), notHTTP("an encoding that is none", "PUT /v1/trees/%zz/keys/hostile"), notHTTP("a blank in the path", "PUT /v1/trees/orders 1/keys/hostile"), notHTTP("a zero byte in the path", "PUT /v1/trees/orders-1/keys/a\x00"),
		notHTTP("no path", "PUT"), notHTTP("a path without a slash", "PUT v1/trees/orders-1/keys/hostile"), notHTTP("a control in the path", "PUT /v1/trees/orders-1/keys/a\x01"),

		key("an empty key", "keys/", 400, invalid), key("a key of 1,025 bytes", "keys/"+strings.Repeat("k", 1025), 413, "key_too_long"), key("a key of 60,000 bytes", "keys/"+strings.Repeat("k", 60_000), 413, "key_too_long"), key("a key that is no text", "keys/%ff%fe", 400, invalid),
		key("a key overlong", "keys/%c0%80", 400, invalid), key("a key of half a pair", "keys/%ed%a0%80", 400, invalid), key("a key by two ways", "key?key=a&b64=YQ", 400, invalid), key("a key twice", "key?key=a&key=b", 400, invalid), key("a key of bad base64", "key?b64=***", 400, invalid),
		key("a key of base64 with a tail", "key?b64=YR", 400, invalid), key("a key of base64 that is no text", "key?b64=__79", 400, invalid), key("no key", "key", 400, invalid), key("a parameter that there is not", "keys/hostile?admin=true", 400, invalid), key("a parameter that is not encoded", "keys/hostile?ttl=%zz", 400, invalid),
		key("a parameter behind a semicolon", "keys/hostile?ttl=1s;mode=get-or-set", 400, invalid), key("a mode that there is not", "keys/hostile?mode=force", 400, invalid),
	}
}
