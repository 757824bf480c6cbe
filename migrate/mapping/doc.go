// Package mapping makes entries of a tree out of the records of a source: a key
// by a template, a value by one of three rules, a moment of expiry.
//
// The value is what the source stores, where it stores opaque bytes; else, or
// if asked, the record as a JSON object, fields in the order of the source; or
// one field alone. In JSON
//
//   - whole numbers of 64 bits and decimals are numbers with all their digits.
//     Readers that know only floats of 64 bits see them rounded; the stored
//     bytes are exact;
//   - NaN and the infinities are strings, and so is a decimal that JSON has no
//     form for;
//   - bytes are base64 with padding, in a string;
//   - moments are RFC 3339 in UTC with up to nine digits of the second, and a
//     string of another form for years that RFC 3339 cannot write;
//   - NULL is null, and JSON of the source stands as it is, less white space;
//   - text that is not UTF-8 is a fault of the record, or base64 if asked.
//
// What loses a distinction, such as that between the string "NaN" and the
// number, is counted for each field.
package mapping
