package auth

import (
	"regexp"
	"strings"
)

// maxTokenBytes bounds a bearer token; a longer one is not looked at.
const maxTokenBytes = 8 << 10

// tokenForm is b64token of RFC 6750.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// bearer returns the token of the only Authorization header.
func bearer(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && token != "" && strings.EqualFold(scheme, "Bearer")
}

// bearerToken returns the token of a request, and otherwise what is wrong with
// the header. Several headers are refused whatever they say: a proxy might have
// looked at another one than we would.
func bearerToken(values []string) (string, *UnauthenticatedError) {
	switch len(values) {
	case 0:
		return "", &UnauthenticatedError{Reason: "no credential"}
	case 1:
	default:
		return "", &UnauthenticatedError{Code: invalidRequest, Reason: "several Authorization headers"}
	}
	scheme, _, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", &UnauthenticatedError{Reason: "another scheme than Bearer"}
	}
	token, ok := bearer(values)
	if !ok {
		return "", &UnauthenticatedError{Code: invalidRequest, Reason: "no token"}
	}
	if len(token) > maxTokenBytes {
		return "", &UnauthenticatedError{Code: invalidToken, Reason: "token too long"}
	}
	if !tokenForm.MatchString(token) {
		return "", &UnauthenticatedError{Code: invalidRequest, Reason: "token of another form"}
	}
	return token, nil
}
