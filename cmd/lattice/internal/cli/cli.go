// Package cli is the command line of the lattice tool: its grammar, its
// commands, and what they print.
package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/vbauerster/cupwriter"

	"github.com/latticekv/lattice/client"
)

// Console is where a command reads and writes.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// InTTY, OutTTY and ErrTTY say which of them are terminals.
	InTTY, OutTTY, ErrTTY bool
}

// System returns the console of the process.
func System() Console {
	return Console{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTTY: terminal(os.Stdin), OutTTY: terminal(os.Stdout), ErrTTY: terminal(os.Stderr),
	}
}

func terminal(f *os.File) bool { return cupwriter.New(f, false).IsTerminal() }

// grammar is the whole command line.
type grammar struct {
	Server string `help:"URL of the service." env:"LATTICE_SERVER" default:"http://127.0.0.1:8080" placeholder:"URL"`
	CACert string `name:"cacert" help:"Also trust the certificates in this file (PEM), such as a self-signed one." env:"LATTICE_CACERT" placeholder:"FILE"`
	Token  string `help:"Bearer token, if the service wants one." env:"LATTICE_TOKEN" placeholder:"TOKEN"`
	JSON   bool   `name:"json" help:"Print JSON for programs, not text for people."`

	Get    getCmd    `cmd:"" help:"Print the value of a key."`
	Set    setCmd    `cmd:"" help:"Write the value of a key."`
	Delete deleteCmd `cmd:"" help:"Delete keys, or a range of keys."`
	Scan   scanCmd   `cmd:"" help:"Print the entries of a range in key order."`
	Count  countCmd  `cmd:"" help:"Count the keys of a range."`
	Batch  batchCmd  `cmd:"" help:"Write and delete several keys, all or none."`
	Import importCmd `cmd:"" help:"Load rows of NDJSON, CSV or TSV into a tree."`
	Load   loadCmd   `cmd:"" help:"Fill a tree in bulk from NDJSON, CSV or TSV."`
	Export exportCmd `cmd:"" help:"Save the entries of a range as NDJSON, CSV or TSV."`

	Migrate migrateCmd `cmd:"" help:"Migrate a dataset from another store into an empty tree."`
	Verify  verifyCmd  `cmd:"" help:"Compare a tree with the store it was migrated from, or with an export."`
	Trees   treesCmd   `cmd:"" help:"List, create, change, delete and recover trees."`

	Shards  shardsCmd  `cmd:"" help:"Show how a tree is divided into shards."`
	Splits  splitsCmd  `cmd:"" help:"Show the splits of a tree's shards, or watch them."`
	Reshard reshardCmd `cmd:"" help:"Change the number of shards of a tree, online."`

	Cursor      cursorCmd      `cmd:"" help:"Walk a range in pages that survive interruptions, or see one moment of it."`
	Loads       loadsCmd       `cmd:"" help:"Show, commit or abort a bulk load session."`
	Diagnostics diagnosticsCmd `cmd:"" help:"Describe a tree shard by shard: keys, bytes, rates, leases."`

	Timers timersCmd  `cmd:"" help:"Tell when the service's scheduled functions last ran, and which are late."`
	Keys   apiKeysCmd `cmd:"" help:"Make API keys for a service."`
}

const description = `Lattice is a sorted, durable key-value store; this tool talks to its service.

A tree is a named key space. Keys are UTF-8 text, in bytewise order; values are any bytes.
A key or value that starts with a dash goes behind "--".

Exit codes: 0 done; 1 the answer is no (not found, a conflict, a condition failed, rows were rejected);
2 wrong usage, or refused as invalid; 3 the service, the network or a file failed, the token is missing
or may not do this (401, 403), or a cap is reached (429); 130 interrupted.`

// env is what a command works with.
type env struct {
	Console
	ctx    context.Context
	server string
	token  string
	cacert string
	json   bool
	// args are the arguments of the command line.
	args []string
}

// exited carries the code of an exit out of the parser.
type exited int

// Run parses args, carries the command out, and returns the exit code. When
// ctx ends, a command stops in good order.
func Run(ctx context.Context, args []string, con Console) (code int) {
	defer func() {
		if e, ok := recover().(exited); ok {
			code = int(e)
		}
	}()
	var g grammar
	parser, err := kong.New(&g, kong.Name("lattice"), kong.Description(description),
		kong.Writers(con.Out, con.Err), kong.Exit(func(c int) { panic(exited(c)) }), kong.PostBuild(tidyVerify),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, NoExpandSubcommands: true}))
	if err != nil {
		fmt.Fprintln(con.Err, "lattice: build command line:", err)
		return ExitFailed
	}
	e := &env{Console: con, ctx: ctx, args: args}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parse(parser, joinNegative(args))
	e.server, e.token, e.cacert, e.json = g.Server, g.Token, g.CACert, g.JSON
	if err != nil {
		return e.report(fmt.Errorf("%w: %w; see \"%s --help\"", errUsage, err, commandOf(err)))
	}
	return e.report(parsed.Run(e))
}

// joinNegative joins a number below zero to the flag before it, so that it is
// not taken for a flag: --max-rejects -1.
func joinNegative(args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if strings.HasPrefix(arg, "--") && !strings.Contains(arg, "=") && i+1 < len(args) && negative(args[i+1]) {
			i++
			arg += "=" + args[i]
		}
		out = append(out, arg)
	}
	return out
}

func negative(s string) bool { return len(s) > 1 && s[0] == '-' && s[1] >= '0' && s[1] <= '9' }

// commandOf is as much of the command as was understood before err.
func commandOf(err error) string {
	var p *kong.ParseError
	if errors.As(err, &p) && p.Context != nil {
		if n := p.Context.Selected(); n != nil {
			return n.FullPath()
		}
	}
	return "lattice"
}

// parse refuses what the parser would silently alter.
func parse(parser *kong.Kong, args []string) (*kong.Context, error) {
	for i, a := range args {
		if !utf8.ValidString(a) {
			return nil, fmt.Errorf("argument %d is not UTF-8; give a key with --key-b64, a value with --b64, - or --file", i+1)
		}
	}
	return parser.Parse(args)
}

// client returns a client that tells a person at a terminal when it waits.
func (e *env) client() (*client.Client, error) {
	var p client.RetryPolicy
	if e.ErrTTY && !e.json {
		p.OnRetry = func(r client.Retry) {
			fmt.Fprintf(e.Err, "The service does not answer well (%s); trying again in %s.\n", brief(r.Err), r.Wait.Round(100*time.Millisecond))
		}
	}
	return e.newClient(p)
}

func (e *env) newClient(p client.RetryPolicy) (*client.Client, error) {
	o := client.Options{Token: e.token, UserAgent: "lattice-cli", Retry: p}
	if e.cacert != "" {
		roots, err := trusted("--cacert", e.cacert)
		if err != nil {
			return nil, err
		}
		o.RootCAs = roots
	}
	return client.New(e.server, o)
}

// trusted returns the system's authorities and those of a file, which flag names.
func trusted(flag, file string) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, usagef("%s %s holds no certificate in PEM", flag, file)
	}
	return roots, nil
}

// tree returns a handle of a tree.
func (e *env) tree(name string) (*client.Tree, error) {
	c, err := e.client()
	if err != nil {
		return nil, err
	}
	return c.Tree(name), nil
}
