package cli

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// getCmd prints values.
type getCmd struct {
	Tree   string        `arg:"" help:"Name of the tree."`
	Keys   []string      `arg:"" name:"key" help:"The key, or several; - reads them from standard input, one a line."`
	B64    bool          `name:"b64" help:"Print the value in base64."`
	MaxAge time.Duration `help:"Accept a view up to this old, such as 5s." placeholder:"DURATION"`
	keyFlags
}

// Help implements kong.HelpProvider.
func (getCmd) Help() string {
	return `The value of one key is printed as it is, byte for byte, without a line end. Several keys are
printed as lines of key and value. Exit code 1 if any key does not exist.

Examples:

    lattice get users alice
    lattice get --json users alice
    lattice get files report.pdf > report.pdf
    lattice get users - < keys.txt`
}

// Run carries the command out.
func (c *getCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	if len(c.Keys) == 1 && c.Keys[0] != "-" {
		return c.one(e, t)
	}
	return c.many(e, t)
}

func (c *getCmd) one(e *env, t *client.Tree) error {
	key, err := c.key(c.Keys[0])
	if err != nil {
		return err
	}
	entry, err := t.Get(e.ctx, key, client.ReadOptions{MaxAge: c.MaxAge})
	switch {
	case err != nil:
		return err
	case e.json:
		return e.printJSON(entry)
	case c.B64:
		return e.print(base64.StdEncoding.EncodeToString(entry.Value) + "\n")
	}
	return e.print(string(entry.Value))
}

// getChunk is how many keys are asked for at once.
const getChunk = 200

func (c *getCmd) many(e *env, t *client.Tree) error {
	out := e.entryWriter(c.form())
	missing := 0
	ask := func(keys []string) error {
		n, err := c.chunk(e, t, out, keys)
		missing += n
		return err
	}
	var keys []string
	for k, err := range e.keys(c.Keys, c.keyFlags) {
		if err != nil {
			return err
		}
		if keys = append(keys, k); len(keys) == getChunk {
			if err := ask(keys); err != nil {
				return err
			}
			keys = keys[:0]
		}
	}
	if err := ask(keys); err != nil {
		return err
	}
	if missing > 0 {
		return errNo
	}
	return nil
}

func (c *getCmd) form() rows.Form {
	if c.B64 {
		return rows.Base64
	}
	return rows.Auto
}

// chunk prints what exists of some keys and returns how many do not.
func (c *getCmd) chunk(e *env, t *client.Tree, out rows.Writer, keys []string) (missing int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	entries, err := t.GetMany(e.ctx, keys, client.ReadOptions{MaxAge: c.MaxAge})
	if errors.Is(err, client.ErrRequestTooLarge) && len(keys) > 1 {
		// The values do not fit into one answer.
		m1, err := c.chunk(e, t, out, keys[:len(keys)/2])
		if err != nil {
			return m1, err
		}
		m2, err := c.chunk(e, t, out, keys[len(keys)/2:])
		return m1 + m2, err
	}
	if err != nil {
		return 0, err
	}
	found := map[string]bool{}
	for _, en := range entries {
		found[en.Key] = true
		if err := out.Write(en); err != nil {
			return 0, fmt.Errorf("write output: %w", err)
		}
	}
	for _, k := range keys {
		if !found[k] {
			missing++
			fmt.Fprintf(e.Err, "lattice: not found: %s\n", show(k))
		}
	}
	return missing, out.Flush()
}

// entryWriter returns the writer for entries on standard output.
func (e *env) entryWriter(form rows.Form) rows.Writer {
	if e.json {
		return rows.NewNDJSONWriter(e.Out, form)
	}
	return &peopleWriter{w: bufio.NewWriter(e.Out), short: e.OutTTY}
}

// setCmd writes a value.
type setCmd struct {
	Tree        string        `arg:"" help:"Name of the tree."`
	Key         string        `arg:"" help:"The key."`
	Value       *string       `arg:"" optional:"" help:"The value; - reads it from standard input."`
	File        string        `short:"f" help:"Read the value from a file." placeholder:"FILE"`
	B64         bool          `name:"b64" help:"The value is given in base64."`
	ContentType string        `help:"Media type to store; text/plain for a value given as an argument, else application/octet-stream." placeholder:"TYPE"`
	TTL         time.Duration `name:"ttl" help:"Time to live, such as 90s or 24h." placeholder:"DURATION"`
	IfAbsent    bool          `help:"Write only if the key does not exist." xor:"condition"`
	IfVersion   string        `help:"Write only over this version." placeholder:"VERSION" xor:"condition"`
	GetOrSet    bool          `help:"Write only if the key does not exist, and print the value that is there." xor:"condition"`
	keyFlags
}

// Help implements kong.HelpProvider.
func (setCmd) Help() string {
	return `The value is durable when the command returns. Exit code 1 if a condition does not hold.

Examples:

    lattice set users alice '{"name":"Alice"}' --content-type application/json
    lattice set files report.pdf --file report.pdf
    date | lattice set status now - --ttl 1h
    lattice set config mode fast --if-version "$VERSION"`
}

// Run carries the command out.
func (c *setCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	key, err := c.key(c.Key)
	if err != nil {
		return err
	}
	value, err := e.readValue(c.Value, c.File, c.B64)
	if err != nil {
		return err
	}
	o := client.SetOptions{ContentType: c.contentType(), TTL: c.TTL, IfAbsent: c.IfAbsent, IfVersion: c.IfVersion}
	if c.GetOrSet {
		return c.getOrSet(e, t, key, value, o)
	}
	r, err := t.Set(e.ctx, key, value, o)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(map[string]any{"key": key, "version": r.Version, "created": r.Created})
	}
	verb := "Replaced"
	if r.Created {
		verb = "Created"
	}
	return e.printf("%s %s, version %s.\n", verb, show(key), r.Version)
}

func (c *setCmd) contentType() string {
	if c.ContentType == "" && c.Value != nil && *c.Value != "-" && !c.B64 {
		return "text/plain; charset=utf-8"
	}
	return c.ContentType
}

func (c *setCmd) getOrSet(e *env, t *client.Tree, key string, value []byte, o client.SetOptions) error {
	entry, created, err := t.GetOrSet(e.ctx, key, value, o)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(struct {
			Entry   client.Entry `json:"entry"`
			Created bool         `json:"created"`
		}{entry, created})
	}
	return e.print(string(entry.Value))
}
