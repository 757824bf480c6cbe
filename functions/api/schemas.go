package api

import (
	"slices"

	"github.com/latticekv/lattice/core/keyspace"
)

var (
	stringSchema      = object{"type": "string"}
	boolSchema        = object{"type": "boolean"}
	countSchema       = object{"type": "integer", "minimum": 0}
	anySchema         = object{}
	timeSchema        = object{"type": "string", "format": "date-time"}
	base64Schema      = object{"type": "string", "contentEncoding": "base64"}
	versionSchema     = object{"type": "string", "pattern": "^[0-9a-f]{24}$", "description": "opaque"}
	keySchema         = object{"type": "string", "minLength": 1}
	treeNameSchema    = object{"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}
	operationIDSchema = object{"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}
	ttlSchema         = object{"type": []string{"string", "number"}, "description": "such as 30s or 5m, or a number of seconds; positive"}
)

var (
	ifMatchHeader      = param{name: "If-Match", about: "entity tags one of which must be current, or * for any", schema: stringSchema}
	ifNoneMatchHeader  = param{name: "If-None-Match", about: "entity tags none of which may be current, or * for any", schema: stringSchema}
	cacheControlHeader = param{name: "Cache-Control", about: "max-age=N accepts a view up to N seconds old", schema: stringSchema}
	acceptHeader       = param{name: "Accept", about: "application/x-ndjson asks for a stream of the whole range", schema: stringSchema}
	ttlHeader          = param{name: "Lattice-TTL", about: "time to live, as the parameter ttl", schema: stringSchema}
	digestHeader       = param{name: "Content-Digest", about: "sha-256 of the body (RFC 9530)", schema: stringSchema}
	wantDigestHeader   = param{name: "Want-Content-Digest", about: "sha-256=1 asks for a Content-Digest", schema: stringSchema}
	etagHeader         = param{name: "ETag", about: "the version, quoted", schema: stringSchema}
	expiresHeader      = param{name: "Lattice-Expires-At", about: "when the entry ceases to exist", schema: timeSchema}
	// acceptEncodingHeader says what a refused coding should have been.
	acceptEncodingHeader = param{name: "Accept-Encoding", about: "the coding that is understood: identity", schema: stringSchema}
	existedHeader        = param{name: "Lattice-Existed", about: "whether the key existed", schema: object{"type": "string", "enum": []string{"true", "false"}}}

	ttlParam       = param{name: "ttl", about: "time to live, such as 30s or a number of seconds", schema: stringSchema}
	modeParam      = param{name: "mode", about: "get-or-set writes only if the key is absent", schema: object{"type": "string", "enum": []string{modeGetOrSet}}}
	reverseParam   = param{name: "reverse", about: "descending order", schema: boolSchema}
	keysOnlyParam  = param{name: "keysOnly", about: "leave the values out", schema: boolSchema}
	asParam        = param{name: "as", about: "give values as text or json instead of base64, where they are that", schema: object{"type": "string", "enum": []string{"text", "json"}}}
	pageTokenParam = param{name: "pageToken", about: "nextPageToken of the page before", schema: stringSchema}
	perShardParam  = param{name: "perShard", about: "add the count of each shard", schema: boolSchema}
	allParam       = param{name: "all", about: "true deletes everything when no bounds are given", schema: boolSchema}
)

func boundsParams() []param {
	return []param{
		{name: "start", about: "first key, inclusive", schema: stringSchema},
		{name: "end", about: "last key, exclusive", schema: stringSchema},
		{name: "prefix", about: "keys that begin so, in place of start and end", schema: stringSchema},
	}
}

func limitParam(def, most int) param {
	return param{name: "limit", about: "entries of a page", schema: object{"type": "integer", "minimum": 1, "maximum": most, "default": def}}
}

var (
	rawContent      = []content{{types: []string{"*/*"}}}
	replacedContent = []content{{types: []string{"*/*"}}}
	scanContent     = []content{
		{types: []string{jsonType}, schema: ref("Entries")},
		{types: []string{ndjsonType}, schema: stringSchema},
	}
)

// record describes an object with exactly these members.
func record(required []string, members object) object {
	o := object{"type": "object", "properties": members, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func list(items object) object { return object{"type": "array", "items": items} }

func dictionary(values object) object {
	return object{"type": "object", "additionalProperties": values}
}

// schemas are the bodies by name. A test holds them against the answers.
func (s *Server) schemas() object {
	all := object{
		"Problem": problemSchema(),
		"Status":  record([]string{"status"}, object{"status": stringSchema}),
		"Version": record([]string{"version"}, object{"version": versionSchema}),
		"Tick":    object{"type": "object"},
		"Deleted": record([]string{"deleted"}, object{"deleted": countSchema}),
		"Count": record([]string{"count", "mapVersion"}, object{
			"count": countSchema, "mapVersion": countSchema,
			"shards": list(record([]string{"shard", "count"}, object{"shard": countSchema, "count": countSchema})),
		}),
	}
	addBatchSchemas(all)
	addTreeSchemas(all)
	addSplitSchemas(all)
	addClusterSchemas(all)
	addBulkSchemas(all)
	s.addCursorSchemas(all)
	return all
}

func problemSchema() object {
	codes := []string{}
	for code := range meanings {
		codes = append(codes, string(code))
	}
	slices.Sort(codes)
	return object{"type": "object", "required": []string{"type", "title", "status", "code"}, "properties": object{
		"type": stringSchema, "title": stringSchema, "status": countSchema, "detail": stringSchema,
		"code": object{"type": "string", "enum": codes}, "requestId": stringSchema,
		"tree": stringSchema, "key": stringSchema, "limit": countSchema, "retryAfter": countSchema, "outcomeUnknown": boolSchema,
		"previousKey": stringSchema, "chunkIndex": countSchema, "expectedChunkIndex": countSchema, "entryIndex": countSchema, "line": countSchema,
		"acceptedEntryCount": countSchema, "failedCount": countSchema,
		"failed": list(record([]string{"index", "key"}, object{"index": countSchema, "key": keySchema, "version": versionSchema})),
	}}
}

func addBatchSchemas(all object) {
	all["Entry"] = record([]string{"key", "version"}, object{
		"key": keySchema, "value": base64Schema, "text": stringSchema, "json": anySchema,
		"version": versionSchema, "expiresAt": timeSchema,
	})
	all["Entries"] = record([]string{"entries"}, object{"entries": list(ref("Entry")), "nextPageToken": stringSchema})
	all["BatchGet"] = record([]string{"keys"}, object{"keys": list(keySchema)})
	all["Operation"] = record([]string{"op", "key"}, object{
		"op": object{"type": "string", "enum": []string{opSet, opDelete}}, "key": keySchema,
		"value": base64Schema, "text": stringSchema, "json": anySchema,
		"ttl": ttlSchema, "ifVersion": versionSchema, "ifAbsent": boolSchema,
	})
	all["Batch"] = record([]string{"operations"}, object{
		"operations": list(ref("Operation")), "atomic": boolSchema,
		"operationId": object{"type": "string", "minLength": 1, "description": "names an atomic batch: whoever repeats it gets the first outcome"},
	})
	all["Results"] = record([]string{"results"}, object{"results": list(record([]string{"key", "status"}, object{
		"key": keySchema, "status": stringSchema, "version": versionSchema, "existed": boolSchema,
	}))})
}

func addTreeSchemas(all object) {
	setting := record([]string{"value", "origin"}, object{
		"value": anySchema, "origin": object{"type": "string", "enum": []string{"default", "service", "tree"}},
	})
	all["Tree"] = record([]string{"name", "state", "shards", "mapVersion", "created"}, object{
		"name": treeNameSchema, "state": stringSchema, "shards": countSchema, "mapVersion": countSchema,
		"created": timeSchema, "deleted": timeSchema, "options": dictionary(setting),
	})
	all["Trees"] = record([]string{"trees"}, object{"trees": list(ref("Tree")), "nextPageToken": stringSchema})
	all["CreateTree"] = record(nil, object{
		"shardCount": object{"type": "integer", "minimum": 1, "maximum": maxShardCount}, "options": dictionary(anySchema),
	})
	all["PatchTree"] = record([]string{"options"}, object{"options": dictionary(anySchema)})
	slot := object{"type": "integer", "minimum": 0, "maximum": keyspace.Slots - 1}
	run := object{"type": "array", "items": slot, "minItems": 2, "maxItems": 2}
	all["ShardMap"] = record([]string{"version", "slots", "shards"}, object{
		"version": countSchema, "slots": countSchema,
		"shards": list(record([]string{"shard", "slots"}, object{"shard": countSchema, "slots": list(run)})),
	})
}
