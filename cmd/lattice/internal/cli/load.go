package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
)

// loadCmd loads a file in bulk.
type loadCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	File string `arg:"" optional:"" default:"-" help:"The file; - or nothing is standard input."`

	Mode          string `enum:"one-shot,stream,session" default:"one-shot" help:"How to load: ${enum}."`
	Operation     string `help:"Id of the session; that of an interrupted one goes on with it. By default a new one." placeholder:"ID"`
	ChunkEntries  *int   `help:"Entries in a chunk of a session, at most 1,000,000; 100,000 by default." placeholder:"N"`
	ChunkBytes    *int   `help:"Bytes at which a chunk of a session ends, at most 64 MiB; 4 MiB by default." placeholder:"N"`
	EnforceLimits bool   `help:"Refuse keys, values and totals beyond the limits of ordinary writes, which are only counted otherwise."`

	inputFlags

	TTL        time.Duration `name:"ttl" help:"Time to live of rows that give none." placeholder:"DURATION"`
	SkipBad    bool          `help:"Leave out rows that cannot be used, and report them; without it the first one ends the load."`
	RejectFile string        `help:"Write rows that were left out here, as NDJSON with line and reason." placeholder:"FILE"`
	RetryFor   time.Duration `default:"5m" help:"How long to wait for another load of the tree that is under way, or a service that is busy." placeholder:"DURATION"`
	Progress   meterStyle    `enum:"auto,bar,lines,none" default:"auto" help:"How to show progress: ${enum}."`
}

// Help implements kong.HelpProvider.
func (loadCmd) Help() string {
	return `Fills a tree much faster than import does. The input is as for import. There are three ways:

  one-shot  Rows in any order, each key once; the tree must be empty, without deleted keys even.
            The service sorts them, and applies nothing before it has all of them.
  stream    Rows in ascending order of keys (bytewise), on top of what the tree holds. They take
            effect as they come. What breaks off is run again from the start, which is no harm.
  session   Rows in ascending order, into an empty tree, in chunks that are acknowledged one by
            one. What breaks off goes on where it was: run the command again with --operation.

A row that cannot be used ends the load, unless --skip-bad is given; the exit code is 1 then.

A session that is committed is not loaded again: its last chunk is compared with that of the input,
and the exit code is 1 if it differs, or cannot be compared for want of the same --chunk-entries and
--chunk-bytes. While a one-shot or streamed load of the tree is under way, this one waits for it; that
of a service that crashed is given up after a quarter of a minute.

Examples:

    lattice load words words.ndjson.gz
    LC_ALL=C sort pages.tsv | lattice load pages --mode stream --format tsv --no-header --key-column 1
    lattice load orders orders.ndjson --mode session --operation orders-2026-11
    lattice loads state orders orders-2026-11`
}

// Validate implements kong's check of flags against each other.
func (c *loadCmd) Validate() error {
	switch {
	case c.Operation != "" && c.Mode != modeSession:
		return errors.New("--operation goes with --mode=session")
	case (c.ChunkEntries != nil || c.ChunkBytes != nil) && c.Mode != modeSession:
		return errors.New("--chunk-entries and --chunk-bytes go with --mode=session")
	case outside(c.ChunkEntries, 1_000_000):
		return errors.New("--chunk-entries must be 1 to 1,000,000")
	case outside(c.ChunkBytes, 64<<20):
		return errors.New("--chunk-bytes must be 1 to 67,108,864")
	case c.RetryFor <= 0:
		return errors.New("--retry-for must be positive")
	case c.TTL < 0:
		return errors.New("--ttl must be positive")
	case c.RejectFile != "" && !c.SkipBad:
		return errors.New("--reject-file goes with --skip-bad")
	}
	return nil
}

// outside reports whether a number that was given is not 1 to most.
func outside(n *int, most int) bool { return n != nil && (*n < 1 || *n > most) }

// cut is how entries are cut into chunks.
func (c *loadCmd) cut() chunkCut {
	cut := chunkCut{entries: 100_000, bytes: 4 << 20}
	if c.ChunkEntries != nil {
		cut.entries = *c.ChunkEntries
	}
	if c.ChunkBytes != nil {
		cut.bytes = *c.ChunkBytes
	}
	return cut
}

const modeSession = "session"

// loaded is the account of a load.
type loaded struct {
	Tree        string `json:"tree"`
	Mode        string `json:"mode"`
	OperationID string `json:"operationId,omitempty"`
	// Read counts the rows of the input, Rejected those that were left out, and
	// Skipped those that an earlier run of the session had loaded.
	Read     int64 `json:"read"`
	Rejected int64 `json:"rejected"`
	Skipped  int64 `json:"skipped,omitempty"`
	// AlreadyCommitted says that the session was committed before, so that nothing
	// was loaded now.
	AlreadyCommitted bool `json:"alreadyCommitted,omitempty"`
	client.BulkResult
	Seconds  float64 `json:"seconds"`
	Complete bool    `json:"complete"`
	// Rejects are the first rows that were left out.
	Rejects []reject `json:"rejects"`
}

// Run carries the command out.
func (c *loadCmd) Run(e *env) error {
	t, err := c.target(e)
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
	if c.Mode == modeSession && c.Operation == "" {
		c.Operation = strings.ToLower(rand.Text())
	}
	f := &feed{src: src, rejects: rej, ttl: c.TTL, skipBad: c.SkipBad, ascending: c.Mode != "one-shot", now: time.Now}
	start := time.Now()
	sum := loaded{Tree: c.Tree, Mode: c.Mode, OperationID: c.Operation}
	err = errors.Join(c.load(e, t, f, in, &sum), rej.close())
	sum.Read, sum.Rejected, sum.Rejects = f.read.Load(), f.rejected.Load(), rej.first
	sum.Seconds, sum.Complete = time.Since(start).Seconds(), err == nil
	return c.account(e, &sum, rej, err)
}

func (c *loadCmd) load(e *env, t *client.Tree, f *feed, in *input, sum *loaded) (err error) {
	var sent atomic.Int64
	meter := progress.Start(progress.Options{Style: c.Progress.resolve(e), Label: "load", Out: e.Err, Sample: func() progress.Sample {
		return progress.Sample{Rows: sent.Load(), Failed: f.rejected.Load(), Done: in.read.Load(), Total: in.size}
	}})
	defer meter.Stop()
	entries := f.entries(e.ctx, &sent)
	o := client.BulkOptions{EnforceLimits: c.EnforceLimits}
	switch c.Mode {
	case modeSession:
		return c.session(e.ctx, t, entries, o, sum)
	case "stream":
		sum.BulkResult, err = t.BulkStream(e.ctx, entries, o)
	default:
		sum.BulkResult, err = t.BulkLoad(e.ctx, entries, o)
		if exitCode(e.ctx, err) == ExitInterrupted && !f.ended {
			err = &stoppedHalfway{err, "nothing was loaded"} // the service applies all rows or none
		}
	}
	var refused *client.Error
	if errors.As(err, &refused) && refused.Bulk != nil {
		sum.Accepted = refused.Bulk.Accepted
		err = f.lines.explain(refused, err)
	}
	return err
}

// target is the tree, with a client that waits as long as was asked for.
func (c *loadCmd) target(e *env) (*client.Tree, error) {
	told := false
	cl, err := e.newClient(client.RetryPolicy{Budget: c.RetryFor, OnRetry: func(r client.Retry) {
		var refused *client.Error
		switch {
		case e.json:
		case errors.Is(r.Err, client.ErrOperationInProgress) && errors.As(r.Err, &refused):
			if !told {
				fmt.Fprintf(e.Err, "Waiting: %s.\n", refused.Detail)
			}
			told = true
		case e.ErrTTY:
			fmt.Fprintf(e.Err, "The service does not answer well (%s); trying again in %s.\n", brief(r.Err), r.Wait.Round(100*time.Millisecond))
		}
	}})
	if err != nil {
		return nil, err
	}
	return cl.Tree(c.Tree), nil
}

// session loads chunks, from the first that is not acknowledged on.
func (c *loadCmd) session(ctx context.Context, t *client.Tree, entries iter.Seq2[client.BulkEntry, error], o client.BulkOptions, sum *loaded) error {
	state, _, err := t.BeginBulkLoad(ctx, c.Operation)
	if err != nil {
		return err
	}
	if state.Status == client.BulkAborted {
		return stop("session %s is aborted", c.Operation)
	}
	if state.Status == client.BulkCommitted {
		sum.AlreadyCommitted = true
		again := &repeated{t: t, state: state, o: o, cut: c.cut()}
		if err := again.compare(ctx, entries); err != nil {
			return err
		}
		sum.Skipped = state.Accepted
	}
	s := &sending{t: t, state: state, o: o, sum: sum, cut: c.cut()}
	sum.Accepted, sum.OverLimit = state.Accepted, state.OverLimit
	if !sum.AlreadyCommitted {
		if err := s.sendAll(ctx, entries); err != nil {
			return err
		}
	}
	done, err := t.CommitBulkLoad(ctx, c.Operation)
	sum.TotalLiveKeys = done.TotalLiveKeys
	return err
}

// account prints what was done and decides how the command ends.
func (c *loadCmd) account(e *env, sum *loaded, rej *rejects, err error) error {
	perr := c.print(e, sum, rej, err)
	switch {
	case err != nil:
		var refused *client.Error
		if errors.As(err, &refused) && refused.Tree == "" {
			refused.Tree = c.Tree
		}
		return fmt.Errorf("load: %w", err)
	case perr != nil:
		return perr
	case sum.Rejected > 0:
		return errNo
	}
	return nil
}

func (c *loadCmd) print(e *env, sum *loaded, rej *rejects, err error) error {
	if e.json {
		return e.printJSON(sum)
	}
	rej.print(e.Err, sum.Rejected)
	if err != nil {
		return c.hint(e, sum)
	}
	if sum.AlreadyCommitted {
		return e.printf("Session %s was already committed with %s; nothing was loaded now.\nThe tree has %s.\n",
			c.Operation, entryCount(sum.Accepted), plural(sum.TotalLiveKeys, "live key"))
	}
	took := time.Duration(sum.Seconds * float64(time.Second))
	line := fmt.Sprintf("Loaded %s into %s in %s (%s entries/s)", entryCount(sum.Accepted), show(c.Tree), progress.Took(took),
		progress.Group(int64(float64(sum.Accepted-sum.Skipped)/max(sum.Seconds, 1e-3))))
	if sum.Skipped > 0 {
		line += fmt.Sprintf(", %s of them by an earlier run", progress.Group(sum.Skipped))
	}
	if sum.Rejected > 0 {
		line += fmt.Sprintf("; %s left out", plural(sum.Rejected, "row"))
	}
	if err := e.printf("%s.\nThe tree has %s.\n", line, plural(sum.TotalLiveKeys, "live key")); err != nil {
		return err
	}
	return printOverLimit(e, sum)
}

func entryCount(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return progress.Group(n) + " entries"
}

// printOverLimit warns of entries that an ordinary write would be refused for.
func printOverLimit(e *env, sum *loaded) error {
	if sum.OverLimit == 0 {
		return nil
	}
	line := fmt.Sprintf("Beyond the limits of ordinary writes: %s", entryCount(sum.OverLimit))
	if f := sum.FirstOverLimit; f != nil {
		line += fmt.Sprintf("; the first is %s, a %s of %s bytes where %s are allowed", clip(show(f.Key), len(f.Key), true), f.What,
			progress.Group(f.Size), progress.Group(f.Limit))
	}
	return e.print(line + ".\n")
}

// hint says how to go on after a load that failed.
func (c *loadCmd) hint(e *env, sum *loaded) error {
	switch {
	case sum.AlreadyCommitted:
		return nil
	case c.Mode == modeSession && sum.Accepted > 0:
		return e.printf("%s are loaded and durable. To go on, run the same command with --operation=%s; to give up: lattice loads abort %s %s\n",
			entryCount(sum.Accepted), c.Operation, show(c.Tree), c.Operation)
	case c.Mode == "stream" && sum.Accepted > 0:
		return e.printf("At least %s are loaded and durable. Loading the same rows again changes nothing.\n", entryCount(sum.Accepted))
	}
	return nil
}
