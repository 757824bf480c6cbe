package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// maxBatchOps and maxBatchBytes bound what is read as one batch; the service has
// bounds of its own.
const (
	maxBatchOps   = 100_000
	maxBatchBytes = 256 << 20
)

// batchCmd carries out operations in one request.
type batchCmd struct {
	Tree        string `arg:"" help:"Name of the tree."`
	File        string `arg:"" optional:"" default:"-" help:"File of operations; - is standard input."`
	Atomic      bool   `default:"true" negatable:"" help:"All or none, as of one moment; the default. Otherwise each key stands alone."`
	OperationID string `name:"operation-id" help:"Name of the batch: repeating it gives the first outcome. Drawn if not given." placeholder:"ID"`
}

// Help implements kong.HelpProvider.
func (batchCmd) Help() string {
	return `Reads one operation a line, as JSON, and carries all of them out in one request:

    {"op":"set","key":"a","text":"1"}              or "value" (base64), or "json"
    {"op":"set","key":"b","text":"2","ttl":"1h"}   expires
    {"op":"set","key":"c","text":"3","ifAbsent":true}
    {"op":"delete","key":"d","ifVersion":"…"}      versions are those that "get --json" shows

All operations are done or none is, whatever shards their keys are on. If a condition does not hold
nothing is written, each such line is named, and the exit code is 1. A batch that is repeated with the
same --operation-id, after a crash or in doubt, is done once. With --no-atomic each operation is done
or refused by itself, and the exit code is 1 if any was refused.

Up to 10,000 operations and 4 MiB by default; for more, use "lattice import".

Examples:

    lattice batch accounts transfer.ndjson
    lattice batch accounts transfer.ndjson --operation-id transfer-4711
    echo '{"op":"delete","key":"a"}' | lattice batch accounts --json
    lattice batch accounts many.ndjson --no-atomic`
}

// Run carries the command out.
func (c *batchCmd) Run(e *env) error {
	if !c.Atomic && c.OperationID != "" {
		return usagef("--operation-id is for atomic batches; it excludes --no-atomic")
	}
	ops, err := c.read(e)
	if err != nil {
		return err
	}
	if c.Atomic {
		if err := checkDistinct(ops); err != nil {
			return err
		}
		if c.OperationID == "" {
			c.OperationID = client.NewOperationID()
		}
	}
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	b := client.Batch{Atomic: c.Atomic, OperationID: c.OperationID}
	for i := range ops {
		b.Ops = append(b.Ops, ops[i].Op)
	}
	results, err := t.Batch(e.ctx, b)
	if err != nil {
		return c.explain(err, ops)
	}
	return c.print(e, ops, results)
}

// read reads the operations. The silence of an input can be interrupted.
func (c *batchCmd) read(e *env) ([]rows.Operation, error) {
	in, err := openInput(e, c.File)
	if err != nil {
		return nil, err
	}
	type outcome struct {
		ops []rows.Operation
		err error
	}
	read := make(chan outcome, 1)
	go func() {
		defer in.close()
		if err := in.unpack(); err != nil {
			read <- outcome{nil, err}
			return
		}
		ops, err := rows.Operations(in, maxBatchOps, maxBatchBytes)
		read <- outcome{ops, err}
	}()
	select {
	case o := <-read:
		var fault *rows.Fault
		switch {
		case errors.As(o.err, &fault):
			return nil, usagef("%v", fault)
		case o.err != nil:
			return nil, fmt.Errorf("read operations: %w", o.err)
		case len(o.ops) == 0:
			return nil, usagef("there are no operations")
		}
		return o.ops, nil
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
}

// checkDistinct refuses a key that occurs twice, by its lines.
func checkDistinct(ops []rows.Operation) error {
	lines := make(map[string]int64, len(ops))
	for i := range ops {
		if first, ok := lines[ops[i].Key]; ok {
			return usagef("line %d: key %s is that of line %d; the keys of an atomic batch differ", ops[i].Line, show(ops[i].Key), first)
		}
		lines[ops[i].Key] = ops[i].Line
	}
	return nil
}

// explain says which conditions failed, or how to find out what became of the
// batch.
func (c *batchCmd) explain(err error, ops []rows.Operation) error {
	if !c.Atomic {
		return err
	}
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Batch != nil:
		return newFailedConditions(refused, ops)
	case errors.As(err, &refused) && refused.Status/100 == 4,
		errors.Is(err, client.ErrInvalidKey), errors.Is(err, client.ErrInvalidRequest):
		return err
	}
	return &unknownBatch{c.OperationID, err}
}

// unknownBatch is a failure after which an atomic batch may have been done or
// not.
type unknownBatch struct {
	operation string
	err       error
}

// Error implements error.
func (u *unknownBatch) Error() string { return u.err.Error() }

// Unwrap returns the cause.
func (u *unknownBatch) Unwrap() error { return u.err }

func (u *unknownBatch) hint() string {
	return fmt.Sprintf("The batch is done or not, as a whole; repeat it with --operation-id %s to know, and to have it done once.", u.operation)
}

// failedCondition is a line whose condition did not hold.
type failedCondition struct {
	Line int64  `json:"line"`
	Key  string `json:"key"`
	// Version is the one the key has; empty if it is absent.
	Version string `json:"version,omitempty"`
}

// failedConditions is an atomic batch whose answer is no.
type failedConditions struct {
	refused *client.Error
	failed  []failedCondition
}

func newFailedConditions(refused *client.Error, ops []rows.Operation) *failedConditions {
	f := &failedConditions{refused: refused}
	for _, c := range refused.Batch.Failed {
		if c.Index >= 0 && c.Index < len(ops) {
			f.failed = append(f.failed, failedCondition{ops[c.Index].Line, ops[c.Index].Key, c.Version})
		}
	}
	return f
}

// Error implements error: a line for each of the first conditions.
func (f *failedConditions) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nothing was written: %s", plural(int64(f.refused.Batch.Count), "condition"))
	b.WriteString(" failed")
	for i, c := range f.failed {
		if i == shownRejects {
			break
		}
		fmt.Fprintf(&b, "\nline %d: key %s ", c.Line, show(c.Key))
		if c.Version == "" {
			b.WriteString("does not exist")
		} else {
			b.WriteString("has version " + c.Version)
		}
	}
	if more := f.refused.Batch.Count - min(len(f.failed), shownRejects); more > 0 {
		fmt.Fprintf(&b, "\n… and %s more", plural(int64(more), "condition"))
	}
	return b.String()
}

// Unwrap returns the refusal.
func (f *failedConditions) Unwrap() error { return f.refused }

// batchResult is a result as it is printed for programs.
type batchResult struct {
	Line    int64  `json:"line"`
	Op      string `json:"op"`
	Key     string `json:"key"`
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
	// Existed is not known of sets that are not atomic.
	Existed *bool `json:"existed,omitempty"`
}

// print prints the results; the answer is no if an operation was refused.
func (c *batchCmd) print(e *env, ops []rows.Operation, results []client.OpResult) error {
	all := make([]batchResult, len(results))
	refused := false
	for i, r := range results {
		all[i] = batchResult{Line: ops[i].Line, Op: "set", Key: r.Key, Status: r.Status, Version: r.Version}
		if ops[i].Delete {
			all[i].Op = "delete"
		}
		if r.Err() == nil && (c.Atomic || ops[i].Delete) {
			all[i].Existed = &r.Existed
		}
		refused = refused || r.Err() != nil
	}
	var err error
	if e.json {
		out := map[string]any{"results": all}
		if c.Atomic {
			out["operationId"] = c.OperationID
		}
		err = e.printJSON(out)
	} else {
		err = printResults(e.Out, all)
	}
	if err == nil && refused {
		return errNo
	}
	return err
}

func printResults(out io.Writer, all []batchResult) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "OP\tKEY\tSTATUS\tEXISTED\tVERSION")
	for _, r := range all {
		existed, version := "-", r.Version
		if r.Existed != nil {
			existed = map[bool]string{true: "yes", false: "no"}[*r.Existed]
		}
		if version == "" {
			version = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Op, show(r.Key), r.Status, existed, version)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
