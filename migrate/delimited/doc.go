// Package delimited reads lines, and records whose fields are divided by a
// character (RFC 4180), exactly: no byte of a field is altered, and the place of
// each record in the input is known.
package delimited
