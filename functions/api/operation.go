package api

import "net/http"

// route is one path and what can be done with it.
type route struct {
	// path is a template of gorilla/mux and of OpenAPI alike.
	path string
	ops  []operation
}

// operation is one method of a route: the handler and all that the OpenAPI
// document says of it. HEAD is added wherever there is GET.
type operation struct {
	method  string
	id      string
	summary string
	tag     string
	handle  func(w http.ResponseWriter, r *request) error
	// query lists every parameter allowed; others are refused.
	query []param
	// headers lists the request headers that matter, for the document.
	headers []param
	// body describes the request body; nil if there is none.
	body *content
	// answers by status; problems are added by code.
	answers map[int]answer
	// problems lists the codes beyond those that every operation may answer.
	problems []Code
	// exempt leaves the operation out of the concurrency limit, so that an
	// overloaded service can still be seen to live.
	exempt bool
	// untimed operations bound their time themselves.
	untimed bool
	// access says who may call it; an operation that does not is closed to all.
	access access
}

// param is a query parameter or a header.
type param struct {
	name, about string
	schema      object
	required    bool
}

// content is a body: its media types, all of one schema.
type content struct {
	types    []string
	schema   object
	required bool
	about    string
}

// answer is a response of one status.
type answer struct {
	about   string
	headers []param
	content []content
}

// allows reports whether a query parameter is declared.
func (o *operation) allows(name string) bool {
	for _, p := range o.query {
		if p.name == name {
			return true
		}
	}
	return false
}
