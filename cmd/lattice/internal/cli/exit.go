package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/load"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
	"github.com/latticekv/lattice/migrate"
)

// The exit codes.
const (
	// ExitOK: done.
	ExitOK = 0
	// ExitNo: the command was understood and the answer is no: a key or tree
	// does not exist, a condition failed, rows were rejected.
	ExitNo = 1
	// ExitUsage: the command line is wrong, or the service refused what was
	// asked as invalid.
	ExitUsage = 2
	// ExitFailed: the service, the network or a file failed, the caller is not
	// known or may not do this (401, 403), or a cap is reached (429).
	ExitFailed = 3
	// ExitInterrupted: a signal ended the command.
	ExitInterrupted = 130
)

var (
	// ErrInterrupted is the cause with which a signal ends Run's context.
	ErrInterrupted = errors.New("interrupted")

	errUsage = errors.New("wrong usage")
	// errNo ends a command whose answer is no and has been printed.
	errNo = errors.New("no")
	// errDeclined: a person answered no to a question.
	errDeclined = errors.New("nothing was done")
)

// stoppedHalfway is an error that ended a command, with what that left behind,
// for a person who interrupted it.
type stoppedHalfway struct {
	err  error
	says string
}

// Error implements error.
func (s *stoppedHalfway) Error() string { return s.says + ": " + s.err.Error() }

// Unwrap returns the cause.
func (s *stoppedHalfway) Unwrap() error { return s.err }

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// exitCode returns the code for what a command returned.
func exitCode(ctx context.Context, err error) int {
	var e *client.Error
	var input *stopped
	if code, ok := migrateCode(err); ok {
		return code
	}
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, load.ErrInterrupted), errors.Is(err, ErrInterrupted), ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, errNo), errors.Is(err, errDeclined), errors.Is(err, load.ErrTooManyRejects), errors.As(err, &input):
		return ExitNo
	case errors.Is(err, errUsage), errors.Is(err, client.ErrInvalidKey), errors.Is(err, client.ErrInvalidRequest), errors.Is(err, rows.ErrColumns):
		return ExitUsage
	case errors.As(err, &e):
		return statusCode(e.Status)
	}
	return ExitFailed
}

func statusCode(status int) int {
	switch status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed:
		return ExitNo
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed:
		return ExitUsage
	}
	return ExitFailed
}

// report says what went wrong and returns the exit code.
func (e *env) report(err error) int {
	code := exitCode(e.ctx, err)
	if err == nil || errors.Is(err, errNo) {
		return code
	}
	if e.json {
		e.reportJSON(err, code)
		return code
	}
	fmt.Fprintln(e.Err, "lattice:", e.explain(err))
	return code
}

// explain is an error with what a person needs to go on.
func (e *env) explain(err error) string {
	var op *net.OpError
	var untrusted *tls.CertificateVerificationError
	var unknown *unknownBatch
	var conditions *failedConditions
	var held *client.Error
	var halfway *stoppedHalfway
	switch {
	case errors.As(err, &unknown):
		return e.explain(unknown.err) + "\n" + unknown.hint()
	case errors.As(err, &conditions):
		return conditions.Error()
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("cannot reach %s: %v. Is the service running, and is --server right?", e.server, op.Err)
	case errors.As(err, &untrusted):
		return fmt.Sprintf("the certificate of %s is not trusted: %v. If it is your own, give it with --cacert.", e.server, untrusted.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Sprintf("the service at %s does not speak HTTPS; is it http://?", e.server)
	case errors.As(err, &held) && held.Code == client.ErrOperationInProgress && held.Bulk != nil && held.Bulk.OperationID != "":
		return fmt.Sprintf("%v. To go on with it: lattice load %s FILE --mode=session --operation=%s; to give it up: lattice loads abort %s %s",
			err, treeOf(held), held.Bulk.OperationID, treeOf(held), held.Bulk.OperationID)
	case errors.Is(err, rows.ErrForm):
		return fmt.Sprintf("%v. --as=base64 and NDJSON hold every value.", err)
	case errors.Is(err, client.ErrUnauthenticated) && e.token != "":
		return fmt.Sprintf("%v. The service does not accept the token of --token or LATTICE_TOKEN; its log says why.", err)
	case errors.Is(err, client.ErrUnauthenticated):
		return fmt.Sprintf("%v. Give a token with --token or LATTICE_TOKEN.", err)
	case errors.Is(err, client.ErrAuthorizationDenied) && e.token != "":
		return fmt.Sprintf("%v. The role of the token or the trees it is for do not include this.", err)
	case errors.Is(err, migrate.ErrInterrupted):
		return migrate.ErrInterrupted.Error()
	case exitCode(e.ctx, err) == ExitInterrupted && errors.As(err, &halfway):
		return "interrupted: " + halfway.says + "; the command may be repeated"
	case exitCode(e.ctx, err) == ExitInterrupted:
		return "interrupted"
	}
	return err.Error()
}

// treeOf is the tree that a refusal is about, as a person would type it.
func treeOf(refused *client.Error) string {
	if refused.Tree == "" {
		return "TREE"
	}
	return show(refused.Tree)
}

// brief is an error without the request it happened to.
func brief(err error) string {
	var c *client.Error
	if errors.As(err, &c) && c.Code != "" {
		return string(c.Code)
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// reportJSON prints the error as one object on standard error.
func (e *env) reportJSON(err error, code int) {
	out := map[string]any{"message": e.explain(err), "exitCode": code}
	var c *client.Error
	if errors.As(err, &c) {
		out["status"], out["code"], out["requestId"] = c.Status, string(c.Code), c.RequestID
		if c.Current != "" {
			out["currentVersion"] = c.Current
		}
	}
	var conditions *failedConditions
	if errors.As(err, &conditions) {
		out["failed"] = conditions.failed
	}
	var unknown *unknownBatch
	if errors.As(err, &unknown) {
		out["operationId"] = unknown.operation
	}
	b, merr := json.Marshal(map[string]any{"error": out})
	if merr != nil {
		b = []byte(`{"error":{}}`) // not reached: the values are plain
	}
	fmt.Fprintln(e.Err, string(b))
}
