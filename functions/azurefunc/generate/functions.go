package main

import (
	"bytes"
	"encoding/json"

	"github.com/latticekv/lattice/functions/schedule"
)

// anonymous lets a request through to Lattice, which asks for its own
// credentials. A function key on top would be a second secret for every caller.
const anonymous = "anonymous"

// group is a function that takes the HTTP requests of some routes.
type group struct {
	// name is that of the function, route what it takes: a template of the host,
	// in which {*path} is any rest.
	name, route string
	// methods that any of the routes has.
	methods []string
}

// groups are all routes that can be reached from outside. Nothing here may lead
// to /internal or to a timer's name: the host calls those itself.
var groups = []group{
	{"api", "v1/{*path}", []string{"get", "head", "put", "post", "patch", "delete"}},
	{"healthz", "healthz", []string{"get", "head"}},
	{"metrics", "metrics", []string{"get", "head"}},
	{"openapi", "openapi.json", []string{"get", "head"}},
	{"readyz", "readyz", []string{"get", "head"}},
}

// function is a function.json.
type function struct {
	Bindings []binding `json:"bindings"`
}

// binding connects a function with what triggers it, or with its answer.
type binding struct {
	Type      string   `json:"type"`
	Direction string   `json:"direction"`
	Name      string   `json:"name"`
	AuthLevel string   `json:"authLevel,omitempty"`
	Route     string   `json:"route,omitempty"`
	Methods   []string `json:"methods,omitempty"`
	// Schedule is a literal. A reference to a setting, %NAME%, would keep the
	// function from starting wherever the setting is missing.
	Schedule string `json:"schedule,omitempty"`
}

// files returns the text of every function.json by the name of its function.
func files(level string) map[string][]byte {
	all := map[string][]byte{}
	for _, g := range groups {
		all[g.name] = encode(function{[]binding{
			{Type: "httpTrigger", Direction: "in", Name: "req", AuthLevel: level, Route: g.route, Methods: g.methods},
			{Type: "http", Direction: "out", Name: "res"},
		}})
	}
	for _, t := range schedule.All() {
		all[t.Name] = encode(function{[]binding{
			{Type: "timerTrigger", Direction: "in", Name: "timer", Schedule: t.NCRONTAB()},
		}})
	}
	return all
}

func encode(f function) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		panic(err) // not reached: it is made of texts
	}
	return text.Bytes()
}
