// Package file reads rows of newline-delimited JSON, CSV and TSV, compressed
// with gzip or not, for a migration. A position is the offset of a row in bytes,
// once unpacked, and its line.
//
// A row of NDJSON is an object; its members are the fields, in the order of the
// line, numbers with all their digits, objects and arrays as JSON. A field of CSV
// is text, or a number if asked, where it has the form of one.
package file
