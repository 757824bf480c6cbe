package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// verifyExportCmd compares a tree with what was exported.
type verifyExportCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	File string `arg:"" optional:"" default:"-" help:"The file, NDJSON as export writes it; - or nothing is standard input."`
	Show int    `default:"20" help:"How many differing keys to print." placeholder:"N"`
}

// Help implements kong.HelpProvider.
func (verifyExportCmd) Help() string {
	return `Says whether a tree holds exactly the entries of a file that "lattice export" wrote: every key, every value and
every expiry, and nothing else. Both are read once, side by side, in key order. An entry that has expired since it
was exported is counted apart and is no difference; content types are not compared. The exit code is 1 if
they differ.

Examples:

    lattice load restored backup/orders.ndjson.gz
    lattice verify export restored backup/orders.ndjson.gz`
}

// Validate implements kong's check of flags.
func (c *verifyExportCmd) Validate() error {
	if c.Show < 0 || c.Show > 100_000 {
		return errors.New("--show must be 0 to 100,000")
	}
	return nil
}

// Run carries the command out.
func (c *verifyExportCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	in, err := openInput(e, c.File)
	if err != nil {
		return err
	}
	defer in.close()
	f := &feed{src: &lazySource{open: func() (rows.Source, error) {
		if err := in.unpack(); err != nil {
			return nil, err
		}
		return rows.NDJSON(in, rows.DefaultMaxRecord), nil
	}}}
	m := &exportMatch{show: c.Show, now: time.Now()}
	if err := m.run(e.ctx, f, t.Scan(e.ctx, client.Query{})); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if err := m.print(e, c); err != nil {
		return err
	}
	if m.Missing+m.Extra+m.Value+m.Expiry > 0 {
		return errNo
	}
	return nil
}

// expirySlack is how much two moments of expiry may differ: a row with a time to
// live in place of a moment was counted from when it was written.
const expirySlack = time.Second

// difference is a key on which file and tree do not agree.
type difference struct {
	Key  string `json:"key"`
	What string `json:"what"`
	Line int64  `json:"line,omitempty"`
}

// exportMatch walks file and tree side by side.
type exportMatch struct {
	show int
	now  time.Time

	Read    int64        `json:"read"`
	Tree    int64        `json:"tree"`
	Missing int64        `json:"missing"`
	Extra   int64        `json:"extra"`
	Value   int64        `json:"value"`
	Expiry  int64        `json:"expiry"`
	Expired int64        `json:"expired"`
	First   []difference `json:"differences"`
}

func (m *exportMatch) run(ctx context.Context, f *feed, entries iter.Seq2[client.Entry, error]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, stop := iter.Pull2(entries)
	defer stop()
	current, err, more := next()
	last := ""
	for p := range f.pull(ctx) {
		if err != nil {
			break
		}
		if p.err != nil {
			return p.err
		}
		key := p.row.Op.Key
		if key <= last {
			return fmt.Errorf("line %d: the key %s does not follow %s; this is no export", p.row.Line, show(key), show(last))
		}
		last = key
		m.Read++
		for ; more && err == nil && current.Key < key; current, err, more = next() {
			m.differ(&m.Extra, difference{Key: current.Key, What: "is not in the file"})
			m.Tree++
		}
		if err != nil || !more || current.Key != key {
			m.absent(&p.row)
			continue
		}
		if err := m.compare(&p.row, &current); err != nil {
			return err
		}
		m.Tree++
		current, err, more = next()
	}
	for ; more && err == nil; current, err, more = next() {
		m.differ(&m.Extra, difference{Key: current.Key, What: "is not in the file"})
		m.Tree++
	}
	return errors.Join(err, context.Cause(ctx))
}

func (m *exportMatch) differ(count *int64, d difference) {
	*count++
	if len(m.First) < m.show {
		m.First = append(m.First, d)
	}
}

// absent counts a row that the tree does not have.
func (m *exportMatch) absent(r *rows.Row) {
	if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(time.Now()) {
		m.Expired++
		return
	}
	m.differ(&m.Missing, difference{r.Op.Key, "is not in the tree", r.Line})
}

func (m *exportMatch) compare(r *rows.Row, e *client.Entry) error {
	value := r.Op.Value
	if r.Op.JSON != nil {
		var b bytes.Buffer
		if err := json.Compact(&b, r.Op.JSON); err != nil {
			return fmt.Errorf("line %d: %w", r.Line, err)
		}
		value = b.Bytes()
	}
	if !bytes.Equal(value, e.Value) {
		m.differ(&m.Value, difference{r.Op.Key, "has another value", r.Line})
		return nil
	}
	expires := r.ExpiresAt
	if r.Op.TTL > 0 {
		expires = m.now.Add(r.Op.TTL)
	}
	if expires.IsZero() != e.ExpiresAt.IsZero() || expires.Sub(e.ExpiresAt).Abs() > expirySlack {
		m.differ(&m.Expiry, difference{r.Op.Key, "expires at another time", r.Line})
	}
	return nil
}

func (m *exportMatch) print(e *env, c *verifyExportCmd) error {
	equal := m.Missing+m.Extra+m.Value+m.Expiry == 0
	if e.json {
		if m.First == nil {
			m.First = []difference{}
		}
		return e.printJSON(map[string]any{"equal": equal, "verification": m})
	}
	var b strings.Builder
	for _, d := range m.First {
		line := ""
		if d.Line > 0 {
			line = fmt.Sprintf(" (line %d)", d.Line)
		}
		fmt.Fprintf(&b, "%s %s%s\n", show(d.Key), d.What, line)
	}
	word := "Equal"
	if !equal {
		word = "Not equal"
	}
	fmt.Fprintf(&b, "%s: %s in the file, %s in the tree %s", word, plural(m.Read, "key"), progress.Group(m.Tree), show(c.Tree))
	for _, n := range []struct {
		count int64
		what  string
	}{
		{m.Missing, "missing in the tree"}, {m.Extra, "missing in the file"}, {m.Value, "with another value"},
		{m.Expiry, "with another expiry"}, {m.Expired, "expired since the export"},
	} {
		if n.count > 0 {
			fmt.Fprintf(&b, "; %s %s", progress.Group(n.count), n.what)
		}
	}
	return e.print(b.String() + ".\n")
}
