// Package hostile attacks the programs of the service over real connections,
// byte by byte where a well-behaved client would not let it: every request must
// be refused with its status, leave nothing in the storage and no secret in a
// log, and take no memory without bound.
package hostile
