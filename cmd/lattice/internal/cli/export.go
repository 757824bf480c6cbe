package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// exportCmd saves a range.
type exportCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	File string `arg:"" optional:"" default:"-" help:"The file; - or nothing is standard output."`
	rangeFlags
	Snapshot bool       `help:"Save the range as it is at one moment, whatever is written meanwhile."`
	Format   format     `enum:"auto,ndjson,csv,tsv" default:"auto" help:"Form of the file: auto, ndjson, csv or tsv; auto goes by its name."`
	As       rows.Form  `enum:"default,base64,text,json,auto" default:"default" help:"Form of values: default, base64, text, json or auto. The default is base64 for NDJSON, text for CSV and TSV; auto is text where it fits."`
	Progress meterStyle `enum:"auto,bar,lines,none" default:"auto" help:"How to show progress: auto, bar, lines or none."`
}

// Help implements kong.HelpProvider.
func (exportCmd) Help() string {
	return `A file appears under its name only when it is complete: the service has confirmed the number of
entries and all of them are on disk. A name that ends in .gz is compressed. What is written can be
imported again; NDJSON keeps every value exactly, CSV and TSV hold text unless --as=base64 is given
(import it with --b64). Content types are not exported.

Without --snapshot an export is no moment of a tree that is written meanwhile: each page is current
when it is read. With it all entries are those of the moment at which it begins, whole atomic batches;
the service keeps that state until the export ends. A backup wants it.

Examples:

    lattice export users users.ndjson.gz
    lattice export users users.csv --prefix a
    lattice export orders backup/orders.ndjson.gz --snapshot
    lattice export users --as json | jq .json.name`
}

// form returns the form of values for a format.
func (c *exportCmd) form(f format) (rows.Form, error) {
	switch {
	case f == formatNDJSON && c.As == "default":
		return rows.Base64, nil
	case f == formatNDJSON:
		return c.As, nil
	case c.As == "default" || c.As == rows.Text:
		return rows.Text, nil
	case c.As == rows.Base64:
		return rows.Base64, nil
	}
	return "", usagef("CSV and TSV hold --as=text or --as=base64")
}

func (c *exportCmd) writer(w io.Writer) (rows.Writer, error) {
	f := c.Format.resolve(c.File)
	form, err := c.form(f)
	if err != nil {
		return nil, err
	}
	switch f {
	case formatCSV:
		return rows.NewCSVWriter(w, ',', form), nil
	case formatTSV:
		return rows.NewCSVWriter(w, '\t', form), nil
	}
	return rows.NewNDJSONWriter(w, form), nil
}

// Run carries the command out.
func (c *exportCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	r, err := c.get()
	if err != nil {
		return err
	}
	if _, err := c.writer(io.Discard); err != nil {
		return err
	}
	out, err := createOutput(e, c.File)
	if err != nil {
		return err
	}
	defer out.discard()
	w, err := c.writer(out)
	if err != nil {
		return err
	}
	start := time.Now()
	n, err := c.copy(e, t, r, w)
	if err != nil {
		return err
	}
	if err := out.commit(); err != nil {
		return fmt.Errorf("write %s: %w", show(c.File), err)
	}
	return c.done(e, n, time.Since(start))
}

// copy writes the entries; a stream that is not complete is an error.
func (c *exportCmd) copy(e *env, t *client.Tree, r client.Range, w rows.Writer) (int64, error) {
	style := c.Progress.resolve(e)
	total := int64(0)
	if style != progress.None {
		total = estimate(e.ctx, t, r)
	}
	var n atomic.Int64
	meter := progress.Start(progress.Options{Style: style, Label: "export", Out: e.Err, Sample: func() progress.Sample {
		return progress.Sample{Rows: n.Load(), Done: n.Load(), Total: total}
	}})
	defer meter.Stop()
	q := client.Query{Range: r}
	entries := t.Scan(e.ctx, q)
	if c.Snapshot {
		entries = e.scanSnapshot(t, q)
	}
	for entry, err := range entries {
		if err != nil {
			return n.Load(), c.incomplete(err, w)
		}
		if err := w.Write(entry); err != nil {
			return n.Load(), fmt.Errorf("write entry: %w", err)
		}
		n.Add(1)
	}
	if err := w.Flush(); err != nil {
		return n.Load(), fmt.Errorf("write entries: %w", err)
	}
	return n.Load(), nil
}

// incomplete says what there is of a stream that broke off.
func (c *exportCmd) incomplete(err error, w rows.Writer) error {
	if c.File != "-" {
		return fmt.Errorf("export: %w", &stoppedHalfway{err, "nothing was saved"})
	}
	return errors.Join(fmt.Errorf("export: %w", &stoppedHalfway{err, "the output is not complete"}), w.Flush())
}

// estimate counts the range for the progress bar: roughly, and not for long.
func estimate(ctx context.Context, t *client.Tree, r client.Range) int64 {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	n, err := t.Count(ctx, r, client.CountOptions{ReadOptions: client.ReadOptions{MaxAge: time.Minute}})
	if err != nil {
		return 0
	}
	return n.Total
}

func (c *exportCmd) done(e *env, n int64, took time.Duration) error {
	if c.File == "-" {
		return nil
	}
	if e.json {
		return e.printJSON(map[string]any{"tree": c.Tree, "file": c.File, "entries": n, "seconds": took.Seconds()})
	}
	noun := "entries"
	if n == 1 {
		noun = "entry"
	}
	return e.printf("Exported %s %s of %s to %s in %s.\n", progress.Group(n), noun, show(c.Tree), c.File, progress.Took(took))
}
