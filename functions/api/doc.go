// Package api serves the HTTP interface of Lattice, version 1: one file per
// resource, one table of routes that drives both the router and the OpenAPI
// document, and one function that turns a category of error into a status.
//
// The package is the same on every host. It neither starts goroutines that
// outlive a response nor relies on a particular server: limits on bodies,
// headers, time and concurrency are enforced here. Keys stand percent-encoded
// in one path segment and may hold anything, so nothing in front of the
// handlers cleans, decodes or redirects a path.
package api
