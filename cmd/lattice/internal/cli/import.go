package cli

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/load"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// importCmd loads a file.
type importCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	File string `arg:"" optional:"" default:"-" help:"The file; - or nothing is standard input."`

	inputFlags

	TTL         time.Duration `name:"ttl" help:"Time to live of rows that give none." placeholder:"DURATION"`
	BatchSize   int           `default:"1000" help:"Rows in a request, at most 10,000." placeholder:"N"`
	Concurrency int           `default:"4" help:"Requests in flight, at most 256." placeholder:"N"`
	SkipRows    int64         `help:"Pass over the first rows: goes on after an interrupted run." placeholder:"N"`
	MaxRejects  int64         `help:"Stop when this many rows were rejected; 0 reads on to the end." default:"0" placeholder:"N"`
	RejectFile  string        `help:"Write rejected rows here, as NDJSON with line and reason." placeholder:"FILE"`
	RetryFor    time.Duration `default:"5m" help:"How long to wait for a service that is busy, or has gone away; one that never answered gets 10s." placeholder:"DURATION"`
	Progress    meterStyle    `enum:"auto,bar,lines,none" default:"auto" help:"How to show progress: auto, bar, lines or none."`
}

// Help implements kong.HelpProvider.
func (importCmd) Help() string {
	return `NDJSON has one object a line: "key", one of "value" (base64), "text" and "json", and if wanted "ttl" or
"expiresAt", and "contentType" (such rows go one by one, which is slower). CSV and TSV have a header
row. With no columns named, the columns "key" and "value" are used if both are there (and "expiresAt",
as an export writes them); otherwise the key is the column "key", or the first one, and the value is
the whole row as a JSON object. Input may be compressed with gzip.

A row that cannot be used is counted, reported with its line and reason, and the others are written;
the exit code is 1 then. Later rows of a key win over earlier ones. Importing twice changes nothing.
Rejected rows can be had back from a reject file with: jq -r .row

Examples:

    lattice import words words.ndjson.gz
    lattice import users users.csv --key-column id
    lattice import orders orders.csv --key-template "{day}/{nr:8}" --value-column total
    zcat dump.tsv.gz | lattice import pages - --format tsv --no-header --key-column 1 --value-column 2
    lattice import words words.csv --reject-file bad.ndjson --json`
}

// Validate implements kong's check of flags against each other.
func (c *importCmd) Validate() error {
	const most = math.MaxInt64
	for _, b := range []struct {
		name           string
		value, lo, max int64
		words          string
	}{
		{"batch-size", int64(c.BatchSize), 1, 10_000, "1 to 10,000"}, {"concurrency", int64(c.Concurrency), 1, 256, "1 to 256"},
		{"skip-rows", c.SkipRows, 0, most, "0 or more"}, {"max-rejects", c.MaxRejects, 0, most, "0 or more"},
		{"ttl", int64(c.TTL), 0, most, "positive"}, {"retry-for", int64(c.RetryFor), 1, most, "positive"},
	} {
		if b.value < b.lo || b.value > b.max {
			return fmt.Errorf("--%s must be %s", b.name, b.words)
		}
	}
	return nil
}

// Run carries the command out.
func (c *importCmd) Run(e *env) error {
	// The loader repeats what fails, so the client must not.
	cl, err := e.newClient(client.RetryPolicy{Max: -1})
	if err != nil {
		return err
	}
	in, err := openInput(e, c.File)
	if err != nil {
		return err
	}
	defer in.close()
	src, err := c.source(in, c.File)
	if err != nil {
		return err
	}
	rej, err := newRejects(c.RejectFile)
	if err != nil {
		return err
	}
	start := time.Now()
	sum, err := c.load(e, cl.Tree(c.Tree), src, in, rej)
	err = errors.Join(err, rej.close())
	return c.account(e, sum, rej, time.Since(start), err)
}

func (c *importCmd) load(e *env, t *client.Tree, src rows.Source, in *input, rej *rejects) (load.Summary, error) {
	stats := &load.Stats{}
	var trouble atomic.Value
	trouble.Store("")
	meter := progress.Start(progress.Options{Style: c.Progress.resolve(e), Label: "import", Out: e.Err, Sample: func() progress.Sample {
		return progress.Sample{
			Rows: stats.Written.Load(), Failed: stats.Rejected.Load(),
			Done: in.read.Load(), Total: in.size, Waiting: stats.Waiting.Load() > 0,
			Trouble: trouble.Load().(string),
		}
	}})
	defer meter.Stop()
	return load.Run(e.ctx, t, src, load.Options{
		BatchOps: c.BatchSize, Concurrency: c.Concurrency, TTL: c.TTL, SkipRows: c.SkipRows,
		MaxRejects: c.MaxRejects, RetryFor: c.RetryFor, OnReject: rej.add, Stats: stats,
		OnWait: func(_ time.Duration, err error) { trouble.Store(brief(err)) },
	})
}

// account prints what was done and decides how the command ends.
func (c *importCmd) account(e *env, sum load.Summary, rej *rejects, took time.Duration, err error) error {
	if errors.Is(err, rows.ErrColumns) {
		return err
	}
	perr := c.print(e, sum, rej, took, err)
	switch {
	case err != nil && errors.Is(err, load.ErrInterrupted):
		return err
	case err != nil:
		return fmt.Errorf("import: %w", err)
	case perr != nil:
		return perr
	case sum.Rejected > 0:
		return errNo
	}
	return nil
}

func (c *importCmd) print(e *env, sum load.Summary, rej *rejects, took time.Duration, err error) error {
	if e.json {
		return e.printJSON(struct {
			Tree string `json:"tree"`
			load.Summary
			Seconds  float64  `json:"seconds"`
			Complete bool     `json:"complete"`
			Rejects  []reject `json:"rejects"`
		}{c.Tree, sum, took.Seconds(), err == nil, rej.first})
	}
	rej.print(e.Err, sum.Rejected)
	rate := float64(sum.Written) / max(took.Seconds(), 1e-3)
	line := fmt.Sprintf("Read %s: %s written to %s in %s (%s rows/s)", plural(sum.Read, "row"), progress.Group(sum.Written),
		show(c.Tree), progress.Took(took), progress.Group(int64(rate)))
	for _, n := range []struct {
		n    int64
		what string
	}{{sum.Rejected, "failed"}, {sum.Expired, "expired and left out"}, {sum.Skipped, "skipped"}, {sum.Unsettled, "may or may not be written"}} {
		if n.n > 0 {
			line += fmt.Sprintf(", %s %s", progress.Group(n.n), n.what)
		}
	}
	if perr := e.print(line + ".\n"); perr != nil || err == nil {
		return perr
	}
	return c.hint(e, sum)
}

// hint says how to go on with a run that did not finish.
func (c *importCmd) hint(e *env, sum load.Summary) error {
	if sum.Read == 0 {
		return nil
	}
	if sum.Settled <= 0 || c.File == "-" {
		return e.print("What was written is durable. Importing the same rows again changes nothing.\n")
	}
	return e.printf("What was written is durable. To go on, run the same command with --skip-rows=%d.\n", sum.Settled)
}
