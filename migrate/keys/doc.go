// Package keys makes the keys of a tree out of the fields of a record, by a
// template such as "order/{tenant}/{id:019d}".
//
// A template is text with segments in braces; {{ and }} stand for braces. A
// segment is the name of a field, and after a colon its form:
//
//	{id}          text as it is; numbers in digits; times as :rfc3339
//	{id:019d}     a whole number with zeros in front, 19 digits wide; also {id:19}
//	{id:+19d}     the same for numbers below zero too: 1 and the digits for zero and
//	              above, 0 and the digits of 10^19-1 less the amount for below
//	{data:hex}    bytes or text as hexadecimal digits
//	{data:b64}    bytes or text as unpadded base64url, which does not keep their order
//	{at:rfc3339}  a time as 2006-01-02T15:04:05.000000000Z, of constant width
//	{at:unix}     whole seconds since 1970, 12 digits; {at:unixms} milliseconds, 15
//	{at:date}     a day as 2006-01-02
//	{name:raw}    text that may hold separators; only as the last segment
//
// Two different rows must not make the same key. So a segment must not be empty
// and must not hold a separator, which is the character of the template before
// and the one behind it; a number must fit its width; and a time must not be
// finer than its form. A row that breaks this is a fault of the row: nothing is
// cut, escaped or replaced.
package keys
