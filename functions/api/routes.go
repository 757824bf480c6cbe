package api

import (
	"maps"
	"net/http"
	"slices"
)

// routes is the whole interface: the router and the OpenAPI document are both
// made from this table.
func (s *Server) routes() []route {
	all := slices.Concat(s.keyRoutes(), s.rangeRoutes(), s.cursorRoutes(), s.treeRoutes(), s.splitRoutes(), s.bulkRoutes(), s.clusterRoutes(), s.serviceRoutes())
	return append(all, s.timerRoutes()...)
}

// keyRoutes are a key in the path, and its alias for hosts and proxies that
// rewrite paths.
func (s *Server) keyRoutes() []route {
	alias := []param{
		{name: "b64", about: "the key in base64url, padded or not", schema: stringSchema},
		{name: "key", about: "the key, in place of b64", schema: stringSchema},
	}
	return []route{
		{"/v1/trees/{tree}/keys/{key}", s.keyOperations("", nil)},
		{"/v1/trees/{tree}/key", s.keyOperations("Alias", alias)},
	}
}

func (s *Server) keyOperations(suffix string, alias []param) []operation {
	return []operation{
		{
			method: http.MethodGet, access: asReader, id: "getKey" + suffix, summary: "Read a value", tag: tagKeys, handle: s.getKey,
			query: alias, headers: []param{ifMatchHeader, ifNoneMatchHeader, cacheControlHeader, wantDigestHeader},
			answers: map[int]answer{
				http.StatusOK:          {"The raw value, with its Content-Type.", []param{etagHeader, expiresHeader, digestHeader}, rawContent},
				http.StatusNotModified: {"The caller's version is current.", []param{etagHeader}, nil},
			},
			problems: []Code{CodeTreeNotFound, CodeKeyNotFound, CodeTreeDeleted, CodeVersionMismatch, CodeKeyTooLong},
		},
		{
			method: http.MethodPut, access: asWriter, id: "putKey" + suffix, summary: "Write a value", tag: tagKeys, handle: s.putKey,
			query:   append(slices.Clone(alias), ttlParam, modeParam),
			headers: []param{ifMatchHeader, ifNoneMatchHeader, ttlHeader, digestHeader, wantDigestHeader},
			body:    &content{types: []string{"*/*"}, about: "The raw value; its Content-Type is stored with it."},
			answers: map[int]answer{
				http.StatusOK:      {"Replaced; with mode=get-or-set the value that exists, and nothing written.", []param{etagHeader, expiresHeader, digestHeader}, replacedContent},
				http.StatusCreated: {"Created.", []param{etagHeader, digestHeader}, jsonContent("Version")},
			},
			problems: []Code{CodeTreeNotFound, CodeTreeDeleted, CodeVersionMismatch, CodeKeyTooLong, CodeValueTooLarge, CodeDigestMismatch, CodeLengthRequired, CodeQuotaExceeded},
		},
		{
			method: http.MethodDelete, access: asWriter, id: "deleteKey" + suffix, summary: "Delete a key", tag: tagKeys, handle: s.deleteKey,
			query: alias, headers: []param{ifMatchHeader, ifNoneMatchHeader},
			answers: map[int]answer{
				http.StatusNoContent: {"The key is absent now.", []param{existedHeader}, nil},
			},
			problems: []Code{CodeTreeNotFound, CodeTreeDeleted, CodeVersionMismatch, CodeKeyTooLong},
		},
	}
}

func (s *Server) rangeRoutes() []route {
	scan := append(boundsParams(), reverseParam, limitParam(s.opts.DefaultPageEntries, s.opts.MaxPageEntries), keysOnlyParam, asParam, pageTokenParam)
	read := []Code{CodeTreeNotFound, CodeTreeDeleted}
	scanned := append(slices.Clone(read), CodeRoutingUnstable, CodeTopologyUnstable)
	return []route{
		{"/v1/trees/{tree}/batch-get", []operation{{
			method: http.MethodPost, access: asReader, id: "batchGet", summary: "Read many keys", tag: tagRanges, handle: s.batchGet,
			query: []param{asParam}, headers: []param{cacheControlHeader, digestHeader, wantDigestHeader},
			body:     jsonBody("BatchGet", true),
			answers:  map[int]answer{http.StatusOK: {"The entries found, in the order of the request.", []param{digestHeader}, jsonContent("Entries")}},
			problems: append(slices.Clone(read), CodeKeyTooLong, CodeRequestTooLarge, CodeDigestMismatch),
		}}},
		{"/v1/trees/{tree}/batch", []operation{{
			method: http.MethodPost, access: asWriter, id: "batch", summary: "Write and delete many keys, each for itself or all or none", tag: tagRanges, handle: s.batch,
			headers: []param{digestHeader, wantDigestHeader}, body: jsonBody("Batch", true),
			answers:  map[int]answer{http.StatusOK: {"The outcome of each operation, in the order of the request.", []param{digestHeader}, jsonContent("Results")}},
			problems: append(slices.Clone(read), CodeVersionMismatch, CodeKeyTooLong, CodeValueTooLarge, CodeRequestTooLarge, CodeDigestMismatch, CodeQuotaExceeded, CodeOperationMismatch, CodeOperationInProgress),
		}}},
		{"/v1/trees/{tree}/entries", []operation{
			{
				method: http.MethodGet, access: asReader, id: "listEntries", summary: "Scan a range in key order, by pages or as a stream", tag: tagRanges,
				handle: s.listEntries, untimed: true, query: scan, headers: []param{acceptHeader, cacheControlHeader, wantDigestHeader},
				answers:  map[int]answer{http.StatusOK: {"A page; as a stream, entries and an end line.", []param{digestHeader}, scanContent}},
				problems: scanned,
			},
			{
				method: http.MethodDelete, access: asWriter, id: "deleteEntries", summary: "Delete a range", tag: tagRanges, handle: s.deleteEntries,
				query:    append(boundsParams(), allParam),
				answers:  map[int]answer{http.StatusOK: {"How many keys were deleted.", []param{digestHeader}, jsonContent("Deleted")}},
				problems: scanned,
			},
		}},
		{"/v1/trees/{tree}/count", []operation{{
			method: http.MethodGet, access: asReader, id: "count", summary: "Count the keys of a range", tag: tagRanges, handle: s.count,
			query: append(boundsParams(), perShardParam), headers: []param{cacheControlHeader, wantDigestHeader},
			answers:  map[int]answer{http.StatusOK: {"The count under one version of the shard map.", []param{digestHeader}, jsonContent("Count")}},
			problems: scanned,
		}}},
	}
}

func (s *Server) treeRoutes() []route {
	one := func(about, schema string) map[int]answer {
		return map[int]answer{http.StatusOK: {about, []param{digestHeader}, jsonContent(schema)}}
	}
	return []route{
		{"/v1/trees", []operation{{
			method: http.MethodGet, access: asLister, id: "listTrees", summary: "List the trees", tag: tagTrees, handle: s.listTrees,
			query: []param{limitParam(s.treeLimits()), pageTokenParam}, answers: one("A page of trees, by name.", "Trees"),
		}}},
		{"/v1/trees/{tree}", []operation{
			{
				method: http.MethodPut, access: asAdmin, id: "createTree", summary: "Create a tree", tag: tagTrees, handle: s.createTree, body: jsonBody("CreateTree", false),
				answers: map[int]answer{
					http.StatusOK:      {"It exists with these settings.", []param{digestHeader}, jsonContent("Tree")},
					http.StatusCreated: {"Created.", []param{digestHeader}, jsonContent("Tree")},
				},
				problems: []Code{CodeTreeExists, CodeTreeDeleted, CodeRequestTooLarge, CodeLengthRequired},
			},
			{method: http.MethodGet, access: asReader, id: "getTree", summary: "Describe a tree and its settings", tag: tagTrees, handle: s.getTree, answers: one("The tree.", "Tree"), problems: []Code{CodeTreeNotFound}},
			{method: http.MethodPatch, access: asAdmin, id: "patchTree", summary: "Change a tree's settings", tag: tagTrees, handle: s.patchTree, body: jsonBody("PatchTree", true), answers: one("The tree as it is now.", "Tree"), problems: []Code{CodeTreeNotFound, CodeTreeDeleted, CodeRequestTooLarge}},
			{method: http.MethodDelete, access: asAdmin, id: "deleteTree", summary: "Delete a tree; it can be recovered for a time", tag: tagTrees, handle: s.deleteTree, answers: map[int]answer{http.StatusNoContent: {about: "Deleted."}}, problems: []Code{CodeTreeNotFound, CodeTreeDeleted}},
		}},
		{"/v1/trees/{tree}/recover", []operation{{method: http.MethodPost, access: asAdmin, id: "recoverTree", summary: "Take the deletion of a tree back", tag: tagTrees, handle: s.recoverTree, answers: one("The tree.", "Tree"), problems: []Code{CodeTreeNotFound, CodeTreeExists}}}},
		{"/v1/trees/{tree}/purge", []operation{{
			method: http.MethodPost, access: asAdmin, id: "purgeTree", summary: "Remove a deleted tree for good", tag: tagTrees, handle: s.purgeTree,
			answers: map[int]answer{
				http.StatusNoContent: {about: "Nothing is left of it."},
				http.StatusAccepted:  {"The collection removes the rest.", []param{digestHeader}, jsonContent("Tree")},
			},
			problems: []Code{CodeTreeNotFound, CodeTreeExists},
		}}},
		{"/v1/trees/{tree}/shard-map", []operation{{method: http.MethodGet, access: asReader, id: "getShardMap", summary: "Show which shard owns which slots", tag: tagTrees, handle: s.getShardMap, answers: one("The shard map.", "ShardMap"), problems: []Code{CodeTreeNotFound, CodeTreeDeleted}}}},
	}
}

func (s *Server) serviceRoutes() []route {
	get := func(path, id, summary string, by access, handle func(http.ResponseWriter, *request) error, c []content) route {
		return route{path, []operation{{
			method: http.MethodGet, access: by, id: id, summary: summary, tag: tagService, handle: handle, exempt: true,
			answers: map[int]answer{http.StatusOK: {"It is so.", nil, c}},
		}}}
	}
	all := []route{
		get("/healthz", "healthz", "Tell whether the process lives", asAnyone, s.healthz, jsonContent("Status")),
		get("/readyz", "readyz", "Tell whether the storage answers", asAnyone, s.readyz, jsonContent("Status")),
		get("/openapi.json", "openapi", "Describe this interface", asAnyone, s.openAPIDocument, []content{{types: []string{jsonType}, schema: object{"type": "object"}}}),
	}
	if s.cfg.Metrics != nil {
		by := asScraper
		if s.cfg.Auth != nil && s.cfg.Auth.PublicMetrics() {
			by = asAnyone
		}
		all = append(all, get("/metrics", "metrics", "Give the metrics in the format of Prometheus", by, s.metrics, []content{{types: []string{"text/plain"}, schema: stringSchema}}))
	}
	return all
}

func (s *Server) timerRoutes() []route {
	var all []route
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Ticks)) {
		all = append(all, route{"/internal/timers/" + name, []operation{{
			method: http.MethodPost, access: onlyInternal, id: "tick-" + name, summary: "Run the scheduled function " + name, tag: tagInternal,
			handle: runTick(s.cfg.Ticks[name]), exempt: true, untimed: true,
			answers: map[int]answer{http.StatusOK: {"What it did.", []param{digestHeader}, jsonContent("Tick")}},
		}}})
	}
	return all
}
