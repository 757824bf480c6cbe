package api

import (
	"errors"
	"net/http"

	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
)

// reach says which trees a credential must be for.
type reach int

const (
	// oneTree is the tree of the path.
	oneTree reach = iota
	// anyTree leaves it to the handler to show the caller's trees alone.
	anyTree
	// everyTree is for what tells of all trees at once.
	everyTree
)

// access says who may call an operation. The zero value lets nobody, so that
// one which forgets to say is closed and not open.
type access struct {
	// public operations ask for no credential.
	public bool
	// role is the least one; internalToo lets the role internal as well.
	role        auth.Role
	internalToo bool
	reach       reach
}

// What operations declare.
var (
	asAnyone     = access{public: true}
	asReader     = access{role: auth.RoleReader}
	asWriter     = access{role: auth.RoleWriter}
	asAdmin      = access{role: auth.RoleAdmin}
	asLister     = access{role: auth.RoleReader, reach: anyTree}
	asOverseer   = access{role: auth.RoleReader, reach: everyTree}
	asScraper    = access{role: auth.RoleReader, reach: everyTree, internalToo: true}
	onlyInternal = access{role: auth.RoleInternal, reach: anyTree}
)

// String names the role, "" for everybody.
func (a access) String() string {
	if a.public {
		return ""
	}
	return a.role.String()
}

// permits reports whether a caller has the role, and the trees that do not
// depend on the path.
func (a access) permits(p *auth.Principal) bool {
	if a.internalToo && p.Role == auth.RoleInternal {
		return true
	}
	return p.Role.Includes(a.role) && (a.reach != everyTree || p.Trees.All())
}

// problems lists the codes that asking for a credential adds.
func (a access) problems() []Code {
	if a.public {
		return nil
	}
	return []Code{CodeUnauthenticated, CodeQuotaExceeded}
}

// The names of the security schemes in the OpenAPI document.
const (
	schemeBearer   = "bearer"
	schemeInternal = "internal"
)

func securitySchemes() object {
	return object{
		schemeBearer: object{
			"type": "http", "scheme": "bearer",
			"description": "An API key, or a JSON Web Token of the configured issuer. The role that an operation needs stands with it.",
		},
		schemeInternal: object{
			"type": "http", "scheme": "bearer",
			"description": "The internal credential of the service, or one with the role internal.",
		},
	}
}

// security is the requirement in the OpenAPI document, with the role in the
// place that version 3.1 has for it. Where credentials are off, none is needed
// but for what is internal.
func (a access) security(on bool) []object {
	if a.public {
		return []object{}
	}
	if a.role == auth.RoleInternal {
		return []object{{schemeInternal: []string{a.role.String()}}}
	}
	all := []object{{schemeBearer: []string{a.role.String()}}}
	if a.internalToo {
		all = append(all, object{schemeInternal: []string{auth.RoleInternal.String()}})
	}
	if !on {
		all = append(all, object{})
	}
	return all
}

var challengeHeader = param{name: "WWW-Authenticate", about: "Bearer, with the error code of RFC 6750 if a token was given", schema: stringSchema}

// setChallenge tells a refused caller what RFC 6750 lets it know.
func setChallenge(h http.Header, p *Problem) {
	challenge := `Bearer realm="lattice"`
	if p.challenge != "" {
		challenge += `, error="` + p.challenge + `"`
	}
	if p.Status == http.StatusUnauthorized || p.challenge != "" {
		h.Set("WWW-Authenticate", challenge)
	}
}

// admit finds out who calls and whether it may call this, and counts the
// request against the caller's limits until leave is called.
func (s *Server) admit(r *request, a access) (leave func(), err error) {
	nothing := func() {}
	if a.public {
		return nothing, nil
	}
	if (a.role == auth.RoleInternal || a.internalToo) && s.cfg.Internal.Check(r.Header) == nil {
		return nothing, nil
	}
	if s.cfg.Auth == nil {
		return nothing, s.withoutCredentials(r, a)
	}
	p, err := s.cfg.Auth.Authenticate(r.Context(), r.Header)
	if err != nil {
		return nil, authFailure(err)
	}
	r.caller = p
	if leave, err = s.cfg.Auth.Enter(p); err != nil {
		return nil, authFailure(err)
	}
	if !a.permits(p) {
		leave()
		return nil, denied()
	}
	return leave, nil
}

// withoutCredentials admits everybody to everything that is not internal, and
// refuses an operation that does not say whom it is for.
func (s *Server) withoutCredentials(r *request, a access) error {
	switch a.role {
	case auth.RoleNone:
		return denied()
	case auth.RoleInternal:
	default:
		return nil
	}
	if err := s.cfg.Internal.Check(r.Header); errors.Is(err, auth.ErrUnauthenticated) {
		return &Failure{Code: CodeUnauthenticated, Detail: "internal endpoints need the internal credential as a bearer token", Err: err}
	}
	return failf(CodeAuthorizationDenied, "internal endpoints are closed here")
}

// denied is the one answer to whatever a credential does not allow: it says
// nothing about what there is.
func denied() error {
	f := failf(CodeAuthorizationDenied, "the credential does not allow this")
	f.challenge = auth.InsufficientScope
	return f
}

// authFailure puts an error of auth into an answer. What exactly is wrong with
// a token is for the log.
func authFailure(err error) error {
	var wrong *auth.UnauthenticatedError
	var wait *auth.WaitError
	switch {
	case errors.As(err, &wrong):
		return &Failure{Code: CodeUnauthenticated, Detail: "a valid bearer token is needed", Err: err, challenge: wrong.Code}
	case errors.As(err, &wait) && errors.Is(err, auth.ErrLimited):
		return &Failure{Code: CodeQuotaExceeded, Detail: "the credential is over its limit of requests; try again later", RetryAfter: wait.RetryAfter, Err: err}
	case errors.As(err, &wait):
		return &Failure{Code: CodeUnavailable, Detail: "the credential cannot be checked now; try again later", RetryAfter: wait.RetryAfter, Err: err}
	}
	return err
}

// checkTree refuses a tree that is not the caller's, whether it exists or not:
// nobody has looked yet.
func (r *request) checkTree() error {
	if r.caller == nil || r.tree == "" || r.caller.Trees.Match(r.tree) {
		return nil
	}
	return denied()
}

// mayNot reports whether the caller lacks a role.
func (r *request) mayNot(role auth.Role) bool {
	return r.caller != nil && !r.caller.Role.Includes(role)
}

// checkCursor refuses a reader the cursors that delete.
func (r *request) checkCursor(kind tree.CursorKind) error {
	if kind == tree.CursorDeleteRange && r.mayNot(auth.RoleWriter) {
		return denied()
	}
	return nil
}

// visibleTrees lists the caller's trees. The token to go on, and whether there
// is one, tell of these alone.
func (s *Server) visibleTrees(r *request, after string, limit int) (infos []tree.Info, next string, err error) {
	if r.caller == nil || r.caller.Trees.All() {
		return s.db.List(r.Context(), after, limit)
	}
	_, most := s.treeLimits()
	for {
		page, more, err := s.db.List(r.Context(), after, most)
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			if !r.caller.Trees.Match(page[i].Name) {
				continue
			}
			if len(infos) == limit {
				return infos, infos[limit-1].Name, nil
			}
			infos = append(infos, page[i])
		}
		// The time of the request bounds the walk; each page goes on.
		if more == "" || more <= after {
			return infos, "", nil
		}
		after = more
	}
}
