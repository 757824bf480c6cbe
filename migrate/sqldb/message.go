package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
)

// notice makes an error that is a sentence for people already.
func notice(format string, args ...any) error {
	return &problem{text: fmt.Sprintf(format, args...)}
}

// problem is an error worded for people, without a secret. Its cause is kept
// for errors.Is alone.
type problem struct {
	text  string
	cause error
}

// Error implements error.
func (p *problem) Error() string { return p.text }

// Unwrap gives the cause if that is one of the standard library's or the
// source's; what a driver says is not passed on.
func (p *problem) Unwrap() error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(p.cause, known) {
			return known
		}
	}
	return nil
}

// explained words an error for people.
func (s *Source) explained(ctx context.Context, err error) error {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text := s.d.failure(err).sentence
	if text == "" {
		text = network(err, s.d.place())
	}
	if text == "" {
		text = fmt.Sprintf("%s says: %s", s.d.traits().engine, err)
	}
	return &problem{text: withoutSecrets(text, s.d.secrets()), cause: err}
}

// network explains why there is no connection.
func network(err error, place string) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %s: check its name", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s: check host and port, and that the database runs", place)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("%s cannot be reached: check host and port, and firewalls between", place)
	case lost(err):
		return fmt.Sprintf("the connection to %s was lost", place)
	}
	return ""
}

// lost reports whether an error is the end of a connection.
func lost(err error) bool {
	var nerr net.Error
	for _, end := range []error{driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.ETIMEDOUT} {
		if errors.Is(err, end) {
			return true
		}
	}
	return errors.As(err, &nerr)
}

// transient reports whether trying again may help.
func (s *Source) transient(err error) bool {
	var p *problem
	if errors.As(err, &p) {
		return false
	}
	return lost(err) || s.d.failure(err).transient
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(err error) string {
	text := err.Error()
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimRight(text[1:], ".") + "."
}

// list is names for people: "a", "a and b", "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// suggestion says which of the names was probably meant, or which there are.
func suggestion(name string, names []string) string {
	const few = 12
	if len(names) == 0 {
		return ""
	}
	best := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	if distance(name, best) <= max(2, len(name)/3) {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	if len(names) <= few {
		return fmt.Sprintf("; there is %s", list(names))
	}
	return ""
}

// distance is how many letters must be inserted, removed or replaced to make b
// of a, whatever their case. Names are short; longer ones are cut.
func distance(a, b string) int {
	const longest = 128
	x, y := []rune(strings.ToLower(a)), []rune(strings.ToLower(b))
	x, y = x[:min(len(x), longest)], y[:min(len(y), longest)]
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			cost := diagonal
			if x[i] != y[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
