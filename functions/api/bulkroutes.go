package api

import (
	"net/http"
	"slices"

	"github.com/latticekv/lattice/core/tree"
)

var (
	enforceLimitsParam = param{name: "enforceLimits", about: "refuse what exceeds MaxKeyLength, MaxValueSizeBytes and the admission caps, in place of counting it", schema: boolSchema}
	streamModeParam    = param{name: "mode", about: "stream takes newline-delimited JSON in ascending order, of any length, on top of what the tree holds", schema: object{"type": "string", "enum": []string{modeStream}}}
	deepParam          = param{name: "deep", about: "count keys and bytes, which reads the whole tree, in place of estimates", schema: boolSchema}
)

// bulkRoutes load many entries at once.
func (s *Server) bulkRoutes() []route {
	one := func(status int, about, schema string) map[int]answer {
		return map[int]answer{status: {about, []param{digestHeader}, jsonContent(schema)}}
	}
	gone := []Code{CodeTreeNotFound, CodeTreeDeleted}
	loaded := append(slices.Clone(gone), CodeOperationInProgress, CodeOperationMismatch, CodeBulkLoadOrder, CodeKeyTooLong, CodeValueTooLarge, CodeQuotaExceeded, CodeDigestMismatch, CodeLengthRequired, CodeTopologyUnstable)
	session := append(slices.Clone(gone), CodeOperationNotFound, CodeOperationMismatch)
	return []route{
		{"/v1/trees/{tree}/bulk-load", []operation{{
			method: http.MethodPost, access: asWriter, id: "bulkLoad", summary: "Load many entries in one request", tag: tagBulk, handle: s.bulkLoad, untimed: true,
			query: []param{streamModeParam, enforceLimitsParam}, headers: []param{digestHeader, wantDigestHeader}, body: bulkContent(),
			answers:  one(http.StatusOK, "All is loaded and durable.", "BulkResult"),
			problems: append(slices.Clone(loaded), CodeTreeNotEmpty),
		}}},
		{"/v1/trees/{tree}/bulk-loads", []operation{{
			method: http.MethodGet, access: asReader, id: "listBulkLoads", summary: "List the bulk load sessions, the one changed last first", tag: tagBulk, handle: s.listBulkLoads,
			query: []param{limitParam(defaultListedLoads, tree.MaxListedLoads)}, headers: []param{wantDigestHeader},
			answers: one(http.StatusOK, "The sessions that are known; those that ended are forgotten after a time.", "BulkLoads"), problems: gone,
		}}},
		{"/v1/trees/{tree}/bulk-loads/{operationId}", []operation{
			{
				method: http.MethodPut, access: asWriter, id: "beginBulkLoad", summary: "Open a bulk load session", tag: tagBulk, handle: s.beginBulkLoad,
				headers: []param{wantDigestHeader},
				answers: map[int]answer{
					http.StatusOK:      {"It was begun before; this is its state.", []param{digestHeader}, jsonContent("BulkState")},
					http.StatusCreated: {"It is open.", []param{digestHeader}, jsonContent("BulkState")},
				},
				problems: append(slices.Clone(gone), CodeTreeNotEmpty, CodeOperationInProgress, CodeOperationMismatch, CodeTopologyUnstable),
			},
			{
				method: http.MethodGet, access: asReader, id: "getBulkLoad", summary: "Show where a bulk load session stands", tag: tagBulk, handle: s.getBulkLoad,
				headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "The state.", "BulkState"), problems: session,
			},
			{
				method: http.MethodDelete, access: asWriter, id: "abortBulkLoad", summary: "End a bulk load session; what was loaded stays", tag: tagBulk, handle: s.abortBulkLoad,
				headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "It is over; this is how far it came.", "BulkState"), problems: session,
			},
		}},
		{"/v1/trees/{tree}/bulk-loads/{operationId}/chunks/{index}", []operation{{
			method: http.MethodPut, access: asWriter, id: "appendBulkLoad", summary: "Load the next chunk of a session", tag: tagBulk, handle: s.appendBulkLoad, untimed: true,
			query: []param{enforceLimitsParam}, headers: []param{digestHeader, wantDigestHeader}, body: bulkContent(),
			answers:  one(http.StatusOK, "All of the chunk is durable.", "BulkAck"),
			problems: append(slices.Clone(loaded), CodeOperationNotFound, CodeChunkOutOfSequence),
		}}},
		{"/v1/trees/{tree}/bulk-loads/{operationId}/commit", []operation{{
			method: http.MethodPost, access: asWriter, id: "commitBulkLoad", summary: "End a bulk load session and count the live keys", tag: tagBulk, handle: s.commitBulkLoad,
			headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "It is over; totalLiveKeys is counted.", "BulkState"),
			problems: append(slices.Clone(session), CodeTopologyUnstable),
		}}},
		{"/v1/trees/{tree}/diagnostics", []operation{{
			method: http.MethodGet, access: asReader, id: "getDiagnostics", summary: "Describe a tree shard by shard", tag: tagTrees, handle: s.getDiagnostics,
			query: []param{deepParam}, headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "The diagnostics; they may be cached.", "Diagnostics"),
			problems: append(slices.Clone(gone), CodeTopologyUnstable),
		}}},
	}
}

func bulkContent() *content {
	return &content{
		types: []string{jsonType, ndjsonType}, schema: ref("BulkEntries"), required: true,
		about: "Entries; as application/x-ndjson one a line, and at the end, if you like, the line {\"end\":true,\"count\":N}, which is checked.",
	}
}

// addBulkSchemas adds the bodies of bulk loads and of diagnostics.
func addBulkSchemas(all object) {
	all["BulkEntry"] = record([]string{"key"}, object{
		"key": keySchema, "value": base64Schema, "text": stringSchema, "json": anySchema,
		"contentType": stringSchema, "ttl": ttlSchema, "expiresAt": timeSchema, "version": stringSchema,
	})
	all["BulkEntries"] = record([]string{"entries"}, object{"entries": list(ref("BulkEntry"))})
	over := object{
		"overLimitCount": countSchema,
		"firstOverLimit": record([]string{"what", "key", "size", "limit"}, object{
			"what": object{"type": "string", "enum": []string{"key", "value"}}, "key": keySchema, "size": countSchema, "limit": countSchema,
		}),
	}
	with := func(members object) object {
		for name, schema := range over {
			members[name] = schema
		}
		return members
	}
	all["BulkResult"] = record([]string{"acceptedEntryCount", "totalLiveKeys"}, with(object{"acceptedEntryCount": countSchema, "totalLiveKeys": countSchema}))
	all["BulkAck"] = record([]string{"chunkIndex", "acceptedEntryCount", "nextChunkIndex"}, with(object{
		"chunkIndex": countSchema, "acceptedEntryCount": countSchema, "nextChunkIndex": countSchema,
	}))
	statuses := []string{string(tree.BulkOpen), string(tree.BulkCommitted), string(tree.BulkAborted)}
	all["BulkState"] = record([]string{"operationId", "status", "nextChunkIndex", "acceptedEntryCount", "pending", "startedAt", "updatedAt"}, object{
		"operationId": stringSchema, "status": object{"type": "string", "enum": statuses},
		"nextChunkIndex": countSchema, "acceptedEntryCount": countSchema, "overLimitCount": countSchema, "lastKey": stringSchema, "pending": boolSchema,
		"startedAt": timeSchema, "updatedAt": timeSchema, "totalLiveKeys": countSchema,
	})
	all["BulkLoads"] = record([]string{"bulkLoads"}, object{"bulkLoads": list(ref("BulkState"))})
	addDiagnosticsSchemas(all)
}

func addDiagnosticsSchemas(all object) {
	rate := object{"type": "number", "minimum": 0}
	share := object{"type": "number", "minimum": 0, "maximum": 1}
	all["HotKey"] = record([]string{"key", "share", "certain"}, object{"key": keySchema, "share": share, "certain": share})
	all["ShardDiagnostics"] = record([]string{
		"shard", "slots", "liveKeys", "tombstones", "expired", "bytes", "depth", "leaves", "storedBytes", "walTailRows", "walTailBytes",
		"splitting", "bulkPending", "lease", "hotKeys", "sampledAt",
	}, object{
		"shard": countSchema, "slots": countSchema, "liveKeys": countSchema, "tombstones": countSchema, "expired": countSchema, "bytes": countSchema,
		"depth": countSchema, "leaves": countSchema, "storedBytes": countSchema, "walTailRows": countSchema, "walTailBytes": countSchema,
		"opsPerSecond": rate, "splitting": boolSchema,
		"split": record([]string{"role", "phase"}, object{
			"role": object{"type": "string", "enum": []string{roleSource, roleTarget}}, "peer": countSchema, "phase": stringSchema,
		}),
		"bulkPending": boolSchema,
		"lease":       record([]string{"held"}, object{"owner": stringSchema, "expiresAt": timeSchema, "held": boolSchema}),
		"hotKeys":     list(ref("HotKey")), "sampledAt": timeSchema, "error": stringSchema,
	})
	all["Diagnostics"] = record([]string{"tree", "mapVersion", "deep", "incomplete", "bulkPending", "instance", "sampledAt", "totals", "shards"}, object{
		"tree": treeNameSchema, "mapVersion": countSchema, "deep": boolSchema, "incomplete": boolSchema, "bulkPending": boolSchema,
		"instance": stringSchema, "sampledAt": timeSchema, "shards": list(ref("ShardDiagnostics")),
		"totals": record([]string{"liveKeys", "tombstones", "expired", "bytes", "shards"}, object{
			"liveKeys": countSchema, "tombstones": countSchema, "expired": countSchema, "bytes": countSchema, "shards": countSchema,
		}),
	})
}
