package api

import (
	"net/http"
	"slices"

	"github.com/latticekv/lattice/core/tree"
)

// cursorRoutes walk a range page by page, with a bookmark that the service
// keeps.
func (s *Server) cursorRoutes() []route {
	gone := []Code{CodeTreeNotFound, CodeTreeDeleted, CodeTopologyUnstable, CodeDigestMismatch}
	known := append(slices.Clone(gone), CodeCursorNotFound)
	return []route{
		{"/v1/trees/{tree}/cursors", []operation{{
			method: http.MethodPost, access: asReader, id: "openCursor", summary: "Open a cursor, on the live tree or on a snapshot of it", tag: tagCursors, handle: s.openCursor,
			headers: []param{digestHeader, wantDigestHeader}, body: jsonBody("OpenCursor", true),
			answers:  map[int]answer{http.StatusCreated: {"It is open, and survives any instance.", []param{digestHeader}, jsonContent("Cursor")}},
			problems: append(slices.Clone(gone), CodeQuotaExceeded, CodeKeyTooLong),
		}}},
		{"/v1/trees/{tree}/cursors/{cursorId}", []operation{{
			method: http.MethodDelete, access: asReader, id: "closeCursor", summary: "Close a cursor, and free what its snapshot holds", tag: tagCursors, handle: s.closeCursor,
			answers: map[int]answer{http.StatusNoContent: {about: "It is closed."}}, problems: known,
		}}},
		{"/v1/trees/{tree}/cursors/{cursorId}/next", []operation{{
			method: http.MethodPost, access: asReader, id: "nextPage", summary: "Take the next page of a cursor, or the last one again", tag: tagCursors, handle: s.nextPage,
			query: []param{asParam}, headers: []param{digestHeader, wantDigestHeader}, body: jsonBody("NextPage", false),
			answers:  map[int]answer{http.StatusOK: {"The page; its bookmark is durable.", []param{digestHeader}, jsonContent("CursorPage")}},
			problems: append(slices.Clone(known), CodeSnapshotExpired, CodeLengthRequired),
		}}},
	}
}

// addCursorSchemas adds the bodies of cursors.
func (s *Server) addCursorSchemas(all object) {
	kinds := []tree.CursorKind{tree.CursorKeys, tree.CursorEntries, tree.CursorDeleteRange}
	all["OpenCursor"] = record([]string{"kind"}, object{
		"kind": object{"type": "string", "enum": kinds}, "snapshot": boolSchema, "reverse": boolSchema,
		"start": stringSchema, "end": stringSchema, "prefix": stringSchema,
	})
	all["Cursor"] = record([]string{"cursorId", "expiresAt"}, object{
		"cursorId": stringSchema, "expiresAt": timeSchema, "snapshotVersion": versionSchema,
	})
	all["NextPage"] = record(nil, object{
		"limit": object{"type": "integer", "minimum": 1, "maximum": s.opts.MaxPageEntries, "default": s.opts.DefaultPageEntries},
		"page":  object{"type": "integer", "minimum": 1, "description": "the page that follows the last one, or the last one again; the next one if left out"},
	})
	all["CursorPage"] = record([]string{"page", "hasMore", "expiresAt"}, object{
		"page": object{"type": "integer", "minimum": 1}, "entries": list(ref("Entry")), "deleted": countSchema,
		"hasMore": boolSchema, "expiresAt": timeSchema,
	})
}
