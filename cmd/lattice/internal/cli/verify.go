package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/ledger"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
	"github.com/latticekv/lattice/migrate/verify"
)

// verifyCmd compares a source with a tree. It takes what migrate takes.
type verifyCmd struct {
	Export verifyExportCmd `cmd:"" help:"Compare with a file that \"lattice export\" wrote."`

	File verifyOf[migrateFileCmd] `cmd:"" help:"Compare with rows of a file: NDJSON, CSV or TSV."`

	Postgres  verifyOf[migratePostgresCmd]  `cmd:"" help:"Compare with a table or query of PostgreSQL."`
	MySQL     verifyOf[migrateMySQLCmd]     `cmd:"" name:"mysql" help:"Compare with a table or query of MySQL or MariaDB."`
	SQLite    verifyOf[migrateSQLiteCmd]    `cmd:"" name:"sqlite" help:"Compare with a table or query of a file of SQLite."`
	SQLServer verifyOf[migrateSQLServerCmd] `cmd:"" name:"sqlserver" help:"Compare with a table or query of SQL Server."`

	Redis  verifyOf[migrateRedisCmd]  `cmd:"" help:"Compare with the keys of a Redis server or cluster."`
	Cosmos verifyOf[migrateCosmosCmd] `cmd:"" help:"Compare with the items of a container of Azure Cosmos DB."`
}

// Help implements kong.HelpProvider.
func (verifyCmd) Help() string {
	return `The source is read again and compared with the tree, key by key; give the flags that the migration was
given. Keys and expiries are all compared; of the values all, a sample that is always the same, or none,
but those of the first and last ten entries of each prefix always, whole, by length and SHA-256.

A key that has expired by now on either side is counted apart and is no difference; neither is an expiry that
is off by less than --tolerance. Where the source can tell, what has changed since the migration, or since
the last delta pass, is told apart from what is lost.

The first differing keys are printed, all are listed in verify.ndjson; the exit code is 1 then. Counts per
prefix and digests per range of keys are printed to be compared with those of another verification. An
interrupted verification goes on with the same command and comes to the same result.

Examples:

    lattice verify redis sessions --source-env REDIS_URL
    lattice verify postgres orders --source-env PG_URL --table orders --values all
    lattice verify file cities cities.csv --key-template '{country}/{id:8}' --sample-share 10%`
}

// verifyFlags say how to compare.
type verifyFlags struct {
	Values      string        `enum:"all,sample,none" default:"sample" help:"Which values to compare, beside those at the ends of each prefix: all, sample or none." group:"Comparison"`
	SampleShare string        `default:"1%" help:"Part of the values in a sample; at least 1,000 are." placeholder:"PERCENT" group:"Comparison"`
	PrefixDepth int           `default:"1" help:"How many segments of a key make its prefix, at most 16." placeholder:"N" group:"Comparison"`
	Separator   string        `default:"/" help:"What ends a segment of a key." placeholder:"TEXT" group:"Comparison"`
	RangeKeys   int           `default:"100000" help:"About how many keys make a range." placeholder:"N" group:"Comparison"`
	Tolerance   time.Duration `default:"2s" help:"By how much expiries and clocks may differ." placeholder:"DURATION" group:"Comparison"`
	Show        int           `default:"100" help:"How many differing keys to print." placeholder:"N" group:"Comparison"`
	Adopt       bool          `help:"Record all keys that are the same on both sides as the migration's, so that a delta pass may delete them; done by itself where the folder has no such record." group:"Comparison"`
	NoShape     bool          `help:"Do not look at the shards of the tree, which reads it once more." group:"Comparison"`
}

// migrating is a command of migrate.
type migrating interface {
	Run(e *env) error
	Validate() error
	common() *migrateFlags
}

func (f *migrateFlags) common() *migrateFlags { return f }

// verifyOf is the command that compares with what a command of migrate reads.
type verifyOf[C any] struct {
	Source C `embed:""`
	verifyFlags
}

func (c *verifyOf[C]) migrating() migrating { return any(&c.Source).(migrating) }

// Help implements kong.HelpProvider.
func (*verifyOf[C]) Help() string {
	return `See "lattice verify --help" for what is compared, and "lattice migrate" with the same source for its flags.`
}

// Validate implements kong's check of flags against each other.
func (c *verifyOf[C]) Validate() error {
	if _, err := percent(c.SampleShare); err != nil {
		return err
	}
	switch {
	case c.PrefixDepth < 1 || c.PrefixDepth > 16:
		return errors.New("--prefix-depth must be 1 to 16")
	case c.RangeKeys < 1:
		return errors.New("--range-keys must be 1 or more")
	case c.Tolerance <= 0:
		return errors.New("--tolerance must be positive")
	case c.Show < 1 || c.Show > 100_000:
		return errors.New("--show must be 1 to 100,000")
	case c.Separator == "":
		return errors.New("--separator must not be empty")
	}
	return c.migrating().Validate()
}

// percent reads a share: 1%, or 0.01.
func percent(s string) (float64, error) {
	text, isPercent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(text, 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("--sample-share must be more than 0%% and at most 100%%, not %q", s)
	}
	return v, nil
}

// Run carries the command out: the command of migrate opens the source, and
// hands it over.
func (c *verifyOf[C]) Run(e *env) error {
	m := c.migrating()
	f := m.common()
	if f.DryRun || f.Preview > 0 || f.Deletes || f.Yes || f.MaxDeletes > 0 {
		return usagef("--dry-run, --preview and the flags of deletions are for \"lattice migrate\"")
	}
	f.instead = func(e *env, src source.Source) error { return c.verifyFlags.run(e, f, src) }
	return m.Run(e)
}

// hiddenInVerify are the flags of migrate that mean nothing to a comparison.
var hiddenInVerify = map[string]bool{
	"dry-run": true, "sample": true, "preview": true, "max-rejects": true, "order": true, "chunk-entries": true, "chunk-bytes": true,
	"verify": true, "deletes": true, "max-deletes": true, "yes": true,
}

// helpInVerify are flags of migrate that mean something else to a comparison.
var helpInVerify = map[string]string{
	"since":         "Tell apart what has changed at the source since this cut; that of the last delta pass, or of the migration, if not given.",
	"target-prefix": "Compare only the keys of the tree that begin with this; all if not given.",
	"restart":       "Forget an unfinished verification.",
	"state":         "Folder of the migration, which also keeps the state of the verification; ./lattice-migrate-TREE if not given.",
}

// tidyVerify fits the flags of migrate to the help of verify.
func tidyVerify(k *kong.Kong) error {
	for _, n := range k.Model.Children {
		if n.Name != "verify" {
			continue
		}
		for _, sub := range n.Children {
			for _, f := range sub.Flags {
				f.Hidden = f.Hidden || hiddenInVerify[f.Name]
				if help, ok := helpInVerify[f.Name]; ok {
					f.Help = help
				}
				if f.Group != nil && f.Group.Title == "Delta pass" {
					f.Group = &kong.Group{Key: "Comparison", Title: "Comparison"}
				}
			}
			for _, p := range sub.Positional {
				if p.Name == "tree" {
					p.Help = "Name of the tree to compare."
				}
			}
		}
	}
	return nil
}

// run compares, and closes src.
func (v *verifyFlags) run(e *env, f *migrateFlags, src source.Source) error {
	defer func() { _ = src.Close() }()
	con := newPhaseConsole(e, f.Progress.resolve(e))
	defer con.stop()
	con.phase("connect", nil)
	f.say = con.note
	place, err := f.open(e, src)
	if err != nil {
		return err
	}
	defer place.close()
	cl, err := e.newClient(client.RetryPolicy{Budget: f.RetryFor})
	if err != nil {
		return err
	}
	tree := cl.Tree(f.Tree)
	share, err := percent(v.SampleShare)
	if err != nil {
		return err
	}
	sub, err := place.dir.Sub("comparison")
	if err != nil {
		return err
	}
	recorded, err := ledger.Exists(place.dir)
	if err != nil {
		return err
	}
	var record *durable.Dir
	if v.Adopt || !recorded {
		record = place.dir
	}
	p := &verify.Progress{}
	p.OnPhase = func(ph verify.Phase) { con.phase(ph.String(), verifySample(ph, p, place.info.Estimate)) }
	r, err := verify.Run(e.ctx, verify.Job{
		Source: src, Map: place.mapper.Map, Mapping: place.mapping, Cut: place.cut, Spool: spool.Options{SortMemory: f.SortMemory << 20}, Wait: f.pace(),
	}, tree, verify.Options{
		Dir: sub, Ledger: record, Target: f.targetName(e), Prefix: f.TargetPrefix, Values: verify.Level(v.Values), Share: share, Depth: v.PrefixDepth,
		Separator: v.Separator, RangeSize: v.RangeKeys, Tolerance: v.Tolerance, Show: v.Show, Restart: f.Restart, Progress: p,
	})
	if err != nil {
		return err
	}
	if !v.NoShape {
		con.phase("look at shards", nil)
		if shape, err := verify.ShapeOf(e.ctx, tree); err == nil {
			r.Shape = &shape
		} else {
			con.note("The shape of the tree is not known: " + e.explain(err))
		}
	}
	con.stop()
	if err := v.print(e, &r); err != nil {
		return err
	}
	if !r.Equal() {
		return errNo
	}
	return nil
}

// verifySample shows a phase.
func verifySample(ph verify.Phase, p *verify.Progress, estimate int64) func() progress.Sample {
	return func() progress.Sample {
		switch ph {
		case verify.Reading:
			n := p.Read.Load()
			return progress.Sample{Rows: n, Done: n, Total: max(estimate, 0)}
		case verify.ReadingChanges:
			return progress.Sample{Rows: p.Changes.Load()}
		}
		n := p.Keys.Load()
		return progress.Sample{Rows: n, Done: n, Total: p.Read.Load(), Failed: p.Differs.Load(), Waiting: p.Waiting.Load()}
	}
}
