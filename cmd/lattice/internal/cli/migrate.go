package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate"
	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// migrateCmd moves a dataset in from another store.
type migrateCmd struct {
	File migrateFileCmd `cmd:"" help:"Migrate rows of a file: NDJSON, CSV or TSV."`

	Postgres  migratePostgresCmd  `cmd:"" help:"Migrate a table or query of PostgreSQL."`
	MySQL     migrateMySQLCmd     `cmd:"" name:"mysql" help:"Migrate a table or query of MySQL or MariaDB."`
	SQLite    migrateSQLiteCmd    `cmd:"" name:"sqlite" help:"Migrate a table or query of a file of SQLite."`
	SQLServer migrateSQLServerCmd `cmd:"" name:"sqlserver" help:"Migrate a table or query of SQL Server."`

	Redis  migrateRedisCmd  `cmd:"" help:"Migrate the keys of a Redis server or cluster."`
	Cosmos migrateCosmosCmd `cmd:"" help:"Migrate the items of a container of Azure Cosmos DB."`
}

// Help implements kong.HelpProvider.
func (migrateCmd) Help() string {
	return `Records are read, sorted on disk, checked, and loaded into an empty tree; a tree that holds keys is
refused. The folder given with --state keeps what is done: after an interruption, a crash or an error the
same command goes on, and every entry is loaded exactly once. Nothing is loaded before all records were
read and those that cannot be migrated are known; they are listed with their reason in rejects.ndjson.

A key is made by a template of text and fields in braces, such as "order/{tenant}/{id:019d}":
{id:19} pads a whole number with zeros, {id:+19} has a place for numbers below zero; {data:hex} and
{data:b64} take bytes; {at:rfc3339}, {at:unixms}, {at:unix} and {at:date} take times; {name:raw} may, at
the end, hold separators. A segment that is empty, NULL or holds a separator, and a number wider than its
padding, are rejected with their row.

Begin with --dry-run: it reads everything, writes nothing, and says what would happen. Afterwards,
--since state brings the tree up to date with a source that is still in use, as often as need be: it writes
what has changed, with --deletes also deletes what is gone, and says what is left to do until the cut-over.
"lattice verify" compares the two at any time.`
}

// migrateFlags are what all sources have in common. A command embeds them, and
// calls run.
type migrateFlags struct {
	Tree string `arg:"" help:"Name of the tree to fill."`
	deltaFlags

	KeyTemplate string `help:"Key made of fields: \"order/{tenant}/{id:019d}\"." placeholder:"TEMPLATE" group:"Keys and values"`
	NullSegment string `help:"Text that stands for NULL in a key; without it such rows are rejected." placeholder:"TEXT" group:"Keys and values"`
	MaxKeyBytes int    `help:"Longest key; the tree's MaxKeyLength if not given." placeholder:"N" group:"Keys and values"`

	Value         string   `help:"The value: json is the record as an object, column:NAME one field; as the source has it if not given." placeholder:"RULE" group:"Keys and values"`
	Columns       []string `help:"Fields of the object, in this order; all if not given." placeholder:"NAME" group:"Keys and values"`
	NullValue     string   `enum:"reject,empty" default:"reject" help:"What becomes of NULL in the field that is the value: reject or empty." group:"Keys and values"`
	InvalidText   string   `enum:"reject,base64" default:"reject" help:"What becomes of text that is not UTF-8 in an object: reject or base64." group:"Keys and values"`
	MaxValueBytes int      `help:"Longest value; the tree's MaxValueSizeBytes if not given." placeholder:"N" group:"Keys and values"`
	TTLColumn     string   `name:"ttl-column" help:"Field with a time to live, counted from the start of the migration." placeholder:"NAME" group:"Keys and values"`
	ExpiresColumn string   `help:"Field with the moment of expiry." placeholder:"NAME" group:"Keys and values"`
	TTLUnit       string   `name:"ttl-unit" enum:",s,ms" default:"" help:"What numbers in these fields count: s or ms." placeholder:"UNIT" group:"Keys and values"`

	DryRun  bool  `help:"Read and map everything, write nothing, and say what would happen." group:"Running"`
	Sample  int64 `help:"With --dry-run: read only the first N records." placeholder:"N" group:"Running"`
	Preview int   `help:"Print the first N keys before the start." placeholder:"N" group:"Running"`

	State      string  `help:"Folder of the state; ./lattice-migrate-TREE if not given." placeholder:"DIR" group:"Running"`
	Restart    bool    `help:"Discard what an earlier run has done." group:"Running"`
	Verify     string  `enum:"off,keys,sample,all" default:"sample" help:"Compare the tree with what was loaded, at the end: keys compares all keys, sample also a sample of the values, all also all values; off compares nothing." group:"Running"`
	MaxRejects int64   `default:"0" help:"How many records may be rejected; with more, nothing is loaded. -1 is any number." placeholder:"N" group:"Running"`
	Rate       float64 `help:"Most records to read in a second." placeholder:"N" group:"Running"`

	Order        string        `enum:"sort,source" default:"sort" help:"sort sorts on disk; source relies on the source to be in bytewise order of the keys, and checks it." group:"Running"`
	SortMemory   int           `default:"128" help:"Memory for sorting, in MiB." placeholder:"MIB" group:"Running"`
	ChunkEntries int           `default:"10000" help:"Most entries in a chunk." placeholder:"N" group:"Running"`
	ChunkBytes   int           `default:"4194304" help:"Most bytes in a chunk." placeholder:"N" group:"Running"`
	RetryFor     time.Duration `default:"5m" help:"How long to wait for a service that is busy or gone." placeholder:"DURATION" group:"Running"`
	Progress     meterStyle    `enum:"auto,bar,lines,none" default:"auto" help:"How to show progress: auto, bar, lines or none." group:"Running"`

	// shape are further options that decide what keys and values are, by flag.
	shape map[string]string
	// say prints a line while the migration runs.
	say func(string)
}

// note takes what a source tells while it is read.
func (f *migrateFlags) note(text string) {
	if f.say != nil {
		f.say(text)
	}
}

// Validate implements kong's check of flags against each other.
func (f *migrateFlags) Validate() error {
	for _, b := range []struct {
		name   string
		v      int64
		lo, hi int64
		words  string
	}{
		{"max-key-bytes", int64(f.MaxKeyBytes), 0, math.MaxInt32, "positive"}, {"max-value-bytes", int64(f.MaxValueBytes), 0, math.MaxInt32, "positive"},
		{"sample", f.Sample, 0, math.MaxInt64, "positive"}, {"preview", int64(f.Preview), 0, 100_000, "at most 100,000"},
		{"max-rejects", f.MaxRejects, -1, math.MaxInt64, "-1 or more"}, {"sort-memory", int64(f.SortMemory), 1, 1 << 20, "1 or more MiB"},
		{"chunk-entries", int64(f.ChunkEntries), 1, 1_000_000, "1 to 1,000,000"}, {"chunk-bytes", int64(f.ChunkBytes), 1, 1 << 30, "1 to 1,073,741,824"},
		{"retry-for", int64(f.RetryFor), 1, math.MaxInt64, "positive"},
	} {
		if b.v < b.lo || b.v > b.hi {
			return fmt.Errorf("--%s must be %s", b.name, b.words)
		}
	}
	if !(f.Rate >= 0) || math.IsInf(f.Rate, 0) {
		return errors.New("--rate must be a positive number")
	}
	if f.Sample > 0 && !f.DryRun {
		return errors.New("--sample goes with --dry-run")
	}
	return f.validate()
}

// run migrates src, or says what would happen. It closes src.
func (f *migrateFlags) run(e *env, src source.Source) error {
	switch {
	case f.instead != nil:
		return f.instead(e, src)
	case f.Since != "":
		return f.runDelta(e, src)
	}
	defer func() { _ = src.Close() }()
	con := newMigrateConsole(e, f.Progress.resolve(e))
	defer con.stop()
	f.say = con.note
	con.phase("connect")
	o, err := f.options(e, src)
	if err != nil {
		return err
	}
	con.stats = o.Stats
	o.Notify = con.notify
	if f.Verify != "off" {
		if o.Verify, err = f.comparison(e, con); err != nil {
			return err
		}
	}
	if err := f.announce(e, con, o); err != nil {
		return err
	}
	// The buffer of the sort is most of the memory; the collector is not to let
	// as much again pile up beside it.
	debug.SetMemoryLimit(int64(f.SortMemory)<<20 + 96<<20)
	if f.DryRun {
		t, err := migrate.DryRun(e.ctx, o, f.Sample)
		con.stop()
		if err != nil {
			return err
		}
		return con.printTrial(&t)
	}
	r, err := migrate.Run(e.ctx, o)
	con.stop()
	if r.State != "" {
		err = errors.Join(err, con.printReport(&r, err))
	}
	if err == nil && r.Rejected > 0 {
		return errNo
	}
	return err
}

// options asks source and service for what the flags leave open.
func (f *migrateFlags) options(e *env, src source.Source) (migrate.Options, error) {
	// The migration repeats what fails, so its client must not.
	cl, err := e.newClient(client.RetryPolicy{Max: -1})
	if err != nil {
		return migrate.Options{}, err
	}
	info, err := src.Inspect(e.ctx)
	if err != nil {
		return migrate.Options{}, err
	}
	if err := f.limits(e); err != nil {
		return migrate.Options{}, err
	}
	mapper, err := f.mapper(&info)
	if err != nil {
		return migrate.Options{}, usagef("%v", err)
	}
	return migrate.Options{
		Dir: f.dir(), Source: src, Info: info, Target: cl.Tree(f.Tree), Tree: f.Tree, TargetName: f.targetName(e),
		Mapper: mapper, Shape: f.shapes(&info), Order: migrate.Order(f.Order), ChunkEntries: f.ChunkEntries, ChunkBytes: f.ChunkBytes,
		MaxRejects: f.MaxRejects, Rate: f.Rate, RetryFor: f.RetryFor, Restart: f.Restart, Stats: &migrate.Stats{},
		Spool: spool.Options{SortMemory: f.SortMemory << 20},
	}, nil
}

func (f *migrateFlags) targetName(e *env) string {
	return f.Tree + " at " + strings.TrimRight(e.server, "/")
}

// limits asks the tree for the longest key and value, if it exists.
func (f *migrateFlags) limits(e *env) error {
	if f.MaxKeyBytes > 0 && f.MaxValueBytes > 0 {
		return nil
	}
	t, err := e.tree(f.Tree)
	if err != nil {
		return err
	}
	info, err := t.Info(e.ctx)
	if err != nil && !errors.Is(err, client.ErrTreeNotFound) && !errors.Is(err, client.ErrTreeDeleted) {
		return fmt.Errorf("look at tree %s: %w", f.Tree, err)
	}
	for _, l := range []struct {
		flag   *int
		option string
	}{{&f.MaxKeyBytes, "MaxKeyLength"}, {&f.MaxValueBytes, "MaxValueSizeBytes"}} {
		if n := number(info.Options[l.option].Value); *l.flag == 0 && n > 0 && n <= math.MaxInt32 {
			*l.flag = int(n)
		}
	}
	// A tree that is not there yet will have the usual limits.
	f.MaxKeyBytes, f.MaxValueBytes = cmp.Or(f.MaxKeyBytes, keys.DefaultMaxLength), cmp.Or(f.MaxValueBytes, maxStoredValue)
	return nil
}

// maxStoredValue is the largest value that any tree can be set to take.
const maxStoredValue = 64 << 20

// number reads a setting that is a number, 0 if it is none.
func number(raw json.RawMessage) int64 {
	var n int64
	if json.Unmarshal(raw, &n) != nil {
		return 0
	}
	return n
}

// mapper returns what makes mappers, and tries it.
func (f *migrateFlags) mapper(info *source.Info) (func(time.Time) (*mapping.Mapper, error), error) {
	text := f.template(info)
	if text == "" {
		return nil, errors.New("--key-template is needed: this source does not say what identifies a record")
	}
	template, err := keys.Parse(text, info.Fields, keys.Options{NullSegment: f.NullSegment, MaxLength: f.MaxKeyBytes})
	if err != nil {
		return nil, err
	}
	make := func(start time.Time) (*mapping.Mapper, error) {
		return mapping.New(mapping.Options{
			Template: template, Value: mapping.Value(f.Value), Columns: f.Columns, NullValue: f.NullValue == "empty", Base64Text: f.InvalidText == "base64",
			TTLColumn: f.TTLColumn, ExpiresColumn: f.ExpiresColumn, TTLUnit: mapping.Unit(f.TTLUnit), Start: start, MaxValueBytes: f.MaxValueBytes,
		})
	}
	_, err = make(time.Time{})
	return make, err
}

func (f *migrateFlags) template(info *source.Info) string {
	if f.KeyTemplate != "" {
		return f.KeyTemplate
	}
	return info.KeyTemplate
}

// shapes are the options that decide what keys and values are.
func (f *migrateFlags) shapes(info *source.Info) map[string]string {
	out := map[string]string{
		"key-template": f.template(info), "null-segment": f.NullSegment, "value": f.Value, "columns": strings.Join(f.Columns, ","),
		"null-value": f.NullValue, "invalid-text": f.InvalidText, "ttl-column": f.TTLColumn, "expires-column": f.ExpiresColumn, "ttl-unit": f.TTLUnit,
	}
	for flag, v := range f.shape {
		out[flag] = v
	}
	return out
}

// announce says what is about to happen.
func (f *migrateFlags) announce(e *env, con *migrateConsole, o migrate.Options) error {
	con.note(fmt.Sprintf("from %s to tree %s", o.Info.Identity, o.TargetName))
	for _, n := range o.Info.Notes {
		con.note(n)
	}
	for _, n := range o.Info.Lossy {
		con.note("a conversion that loses something: " + n)
	}
	if t, err := keys.Parse(f.template(&o.Info), o.Info.Fields, keys.Options{NullSegment: f.NullSegment}); err == nil {
		for _, w := range t.Warnings() {
			con.note("the key template: " + w)
		}
	}
	if f.Preview == 0 {
		return nil
	}
	first, err := migrate.FirstKeys(e.ctx, o, f.Preview)
	if err != nil {
		return err
	}
	return con.printKeys(first)
}

// migrateCode returns the exit code of an error of a migration.
func migrateCode(err error) (int, bool) {
	var mismatch *migrate.MismatchError
	var template *keys.ParseError
	switch {
	case errors.Is(err, migrate.ErrInterrupted):
		return ExitInterrupted, true
	case errors.Is(err, migrate.ErrPatience):
		return ExitFailed, true
	case errors.As(err, &mismatch), errors.As(err, &template), errors.Is(err, migrate.ErrFolder):
		return ExitUsage, true
	}
	for _, no := range []error{migrate.ErrTooManyRejects, migrate.ErrNotEmpty, migrate.ErrNoTree, migrate.ErrOtherTree, migrate.ErrSessionLost, migrate.ErrOrder, migrate.ErrUnbalanced, migrate.ErrDiffers} {
		if errors.Is(err, no) {
			return ExitNo, true
		}
	}
	return deltaCode(err)
}

// address is where a source is, given so that a password need not stand in the
// list of processes.
type address struct {
	Source     string `help:"Address of the source. It can be seen in the list of processes; --source-env and --source-file keep it out of there." placeholder:"URL" group:"Source"`
	SourceEnv  string `help:"Environment variable that holds the address." placeholder:"NAME" group:"Source"`
	SourceFile string `help:"File that holds the address, - for standard input." placeholder:"FILE" group:"Source"`
}

// resolve returns the address.
func (a *address) resolve(e *env, lookup func(string) (string, bool)) (string, error) {
	given := 0
	for _, s := range []string{a.Source, a.SourceEnv, a.SourceFile} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return "", usagef("give the address of the source once, with --source, --source-env or --source-file")
	}
	out := a.Source
	switch {
	case a.SourceEnv != "":
		v, ok := lookup(a.SourceEnv)
		if !ok || v == "" {
			return "", usagef("the environment has no %s", a.SourceEnv)
		}
		out = v
	case a.SourceFile == "-":
		b, err := readAll(e.In)
		if err != nil {
			return "", fmt.Errorf("read the address: %w", err)
		}
		out = string(b)
	case a.SourceFile != "":
		b, err := readFile(a.SourceFile)
		if err != nil {
			return "", fmt.Errorf("read the address: %w", err)
		}
		out = string(b)
	}
	if out = strings.TrimSpace(out); out == "" {
		return "", usagef("the address of the source is empty")
	}
	return out, nil
}

var _ migrate.Target = (*client.Tree)(nil)
