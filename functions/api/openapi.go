package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object of the OpenAPI document.
type object = map[string]any

// The tags that group the operations.
const (
	tagKeys     = "Single keys"
	tagRanges   = "Many keys"
	tagCursors  = "Cursors"
	tagBulk     = "Bulk load"
	tagTrees    = "Trees"
	tagService  = "Service"
	tagInternal = "Internal"
)

// openAPI describes the routes, as OpenAPI 3.1.
func (s *Server) openAPI(routes []route) []byte {
	paths := object{}
	for _, rt := range routes {
		paths[rt.path] = s.describePath(rt)
	}
	version := s.cfg.Version
	if version == "" {
		version = "1"
	}
	return mustMarshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Lattice", "version": version,
			"description": "A sorted, durable key-value store. Keys in paths are percent-encoded as one segment and may hold anything.",
			"license":     object{"name": "MIT", "identifier": "MIT"},
		},
		"paths": paths,
		"components": object{
			"schemas":         s.schemas(),
			"securitySchemes": securitySchemes(),
		},
	})
}

// describePath describes one route. HEAD stands wherever GET does, as the
// router has it.
func (s *Server) describePath(rt route) object {
	item := object{}
	if params := pathParams(rt.path); len(params) > 0 {
		item["parameters"] = params
	}
	for i := range rt.ops {
		op := &rt.ops[i]
		item[strings.ToLower(op.method)] = s.describeOperation(op, op.id, true)
		if op.method == http.MethodGet {
			item["head"] = s.describeOperation(op, "head-"+op.id, false)
		}
	}
	return item
}

var templateVar = regexp.MustCompile(`\{(\w+)\}`)

func pathParams(path string) []object {
	var params []object
	for _, m := range templateVar.FindAllStringSubmatch(path, -1) {
		schema, about := keySchema, "the key, percent-encoded as one segment"
		switch m[1] {
		case "tree":
			schema, about = treeNameSchema, "the name of the tree"
		case "operationId":
			schema, about = operationIDSchema, "the id of the operation, chosen by the caller"
		case "cursorId":
			schema, about = stringSchema, "the id of the cursor, as its opening answered it"
		case "index":
			schema, about = countSchema, "the index of the chunk, from 0"
		}
		params = append(params, object{"name": m[1], "in": "path", "required": true, "description": about, "schema": schema})
	}
	return params
}

func (s *Server) describeOperation(op *operation, id string, bodies bool) object {
	o := object{
		"operationId": id, "summary": op.summary, "tags": []string{op.tag},
		"responses": describeAnswers(op, bodies),
	}
	var params []object
	for _, p := range op.query {
		params = append(params, p.describe("query"))
	}
	for _, p := range op.headers {
		params = append(params, p.describe("header"))
	}
	if params != nil {
		o["parameters"] = params
	}
	if op.body != nil && bodies {
		o["requestBody"] = object{
			"description": op.body.about, "required": op.body.required, "content": describeContent([]content{*op.body}),
		}
	}
	o["security"] = op.access.security(s.cfg.Auth != nil)
	if name := op.access.String(); name != "" {
		o["x-lattice-role"] = name
	}
	return o
}

func (p param) describe(in string) object {
	return object{"name": p.name, "in": in, "description": p.about, "required": p.required, "schema": p.schema}
}

// everywhere lists the codes that any operation may answer with.
var everywhere = []Code{CodeInvalidArgument, CodeAuthorizationDenied, CodeRequestTooLarge, CodeInternal, CodeStorageThrottled, CodeRoutingUnstable, CodeUnavailable}

func describeAnswers(op *operation, bodies bool) object {
	responses := object{}
	for status, a := range op.answers {
		r := object{"description": a.about}
		if len(a.headers) > 0 {
			r["headers"] = describeHeaders(a.headers)
		}
		if bodies && len(a.content) > 0 {
			r["content"] = describeContent(a.content)
		}
		responses[strconv.Itoa(status)] = r
	}
	byStatus := map[int][]string{}
	codes := slices.Concat(everywhere, op.access.problems(), op.problems)
	if op.body != nil {
		codes = append(codes, CodeUnsupportedEncoding)
	}
	for _, code := range codes {
		status := meanings[code].status
		if !slices.Contains(byStatus[status], string(code)) {
			byStatus[status] = append(byStatus[status], string(code))
		}
	}
	for status, codes := range byStatus {
		r := describeProblem(codes, bodies)
		if status == http.StatusUnauthorized {
			r["headers"] = describeHeaders([]param{challengeHeader})
		}
		if status == http.StatusUnsupportedMediaType {
			r["headers"] = describeHeaders([]param{acceptEncodingHeader})
		}
		responses[strconv.Itoa(status)] = r
	}
	return responses
}

func describeProblem(codes []string, bodies bool) object {
	r := object{"description": "Codes: " + strings.Join(codes, ", ") + "."}
	if bodies {
		r["content"] = object{problemType: object{"schema": ref("Problem")}}
	}
	return r
}

func describeHeaders(headers []param) object {
	all := object{}
	for _, h := range headers {
		all[h.name] = object{"description": h.about, "schema": h.schema}
	}
	return all
}

func describeContent(bodies []content) object {
	all := object{}
	for _, c := range bodies {
		for _, t := range c.types {
			media := object{}
			if c.schema != nil {
				media["schema"] = c.schema
			}
			all[t] = media
		}
	}
	return all
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func jsonContent(schema string) []content {
	return []content{{types: []string{jsonType}, schema: ref(schema)}}
}

func jsonBody(schema string, required bool) *content {
	return &content{types: []string{jsonType}, schema: ref(schema), required: required, about: "A JSON document; unknown names are refused."}
}

// Document returns the OpenAPI document that is served at /openapi.json.
func (s *Server) Document() json.RawMessage { return slices.Clone(s.document) }
