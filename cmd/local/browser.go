package main

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/latticekv/lattice/functions/api"
)

// ownPages keeps pages of other sites out of a service that asks nobody who they
// are: a browser on this machine runs their scripts, and can connect. A page that
// says where it is from may not write; one whose name was made to mean this
// machine is found out by that name, which no user of the service calls it by.
type ownPages struct {
	service http.Handler
	// hosts are the names that the service has, beside addresses.
	hosts []string
	cross *http.CrossOriginProtection
}

func newOwnPages(service http.Handler, hosts []string) *ownPages {
	return &ownPages{service, hosts, http.NewCrossOriginProtection()}
}

// ServeHTTP implements http.Handler.
func (o *ownPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !o.calledByName(r.Host) {
		o.refuse(w, r, "the service does not have this name, and asks nobody who they are: call it as localhost, or give it credentials")
		return
	}
	if o.cross.Check(r) != nil {
		o.refuse(w, r, "pages of other sites may not change anything here; give the service credentials")
		return
	}
	o.service.ServeHTTP(w, r)
}

func (o *ownPages) refuse(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header().Set("X-Request-Id", rand.Text())
	w.Header().Set("Connection", "close") // nobody has looked at the body
	api.WriteProblem(w, r, &api.Failure{Code: api.CodeAuthorizationDenied, Detail: detail})
}

// calledByName reports whether the host of a request, with or without a port, is
// an address or a name of this machine.
func (o *ownPages) calledByName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.ContainsFunc(o.hosts, func(h string) bool { return strings.EqualFold(h, host) })
}
