package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/migrate"
	"github.com/latticekv/lattice/migrate/delta"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/ledger"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
	"github.com/latticekv/lattice/migrate/verify"
)

// sinceState is the cut that the folder has recorded.
const sinceState = "state"

// deltaFlags ask for a pass over what has changed.
type deltaFlags struct {
	Since        string `help:"Do not migrate, but bring the tree up to date with what has changed since this cut; state is the one that the last pass, or the migration, has recorded." placeholder:"CUT" group:"Delta pass"`
	Deletes      bool   `help:"With --since: also delete the keys that the source has no more." group:"Delta pass"`
	MaxDeletes   int64  `help:"Most keys to delete; a tenth of the keys, or 100 if that is more, if not given." placeholder:"N" group:"Delta pass"`
	Yes          bool   `short:"y" help:"Delete any number of keys." group:"Delta pass"`
	TargetPrefix string `help:"Keys of the tree that are the migration's; the text at the start of the key template if not given." placeholder:"TEXT" group:"Delta pass"`

	// instead, if set, gets the source in place of a migration.
	instead func(*env, source.Source) error
}

func (f *deltaFlags) validate() error {
	switch {
	case f.MaxDeletes < 0:
		return errors.New("--max-deletes must be positive")
	case f.Since == "" && (f.Deletes || f.MaxDeletes > 0 || f.Yes):
		return errors.New("--deletes goes with --since; --since state is right after a migration or a pass")
	case !f.Deletes && (f.MaxDeletes > 0 || f.Yes):
		return errors.New("--max-deletes and --yes go with --deletes")
	}
	return nil
}

// dir is the folder of the migration.
func (f *migrateFlags) dir() string {
	if f.State != "" {
		return filepath.Clean(f.State)
	}
	return filepath.Clean("lattice-migrate-" + f.Tree)
}

// literalPrefix is the text before the first segment of a key template.
func literalPrefix(template string) string {
	var b strings.Builder
	for i := 0; i < len(template); i++ {
		c := template[i]
		if c == '{' || c == '}' {
			if i+1 == len(template) || template[i+1] != c {
				break
			}
			i++
		}
		b.WriteByte(c)
	}
	return b.String()
}

// shapeText is a text that is the same for the same options.
func shapeText(shape map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(shape)) {
		if shape[k] != "" {
			fmt.Fprintf(&b, "%s=%q ", k, shape[k])
		}
	}
	return strings.TrimSpace(b.String())
}

// sameMigration refuses options that make other keys or values than those of
// the migration whose folder it is.
func (f *migrateFlags) sameMigration(e *env, p *place) error {
	var st map[string]json.RawMessage
	found, err := journal.Load(p.dir, "state.json", &st)
	if err != nil || !found {
		return err
	}
	var was map[string]string
	if err := json.Unmarshal(st["options"], &was); err != nil {
		return fmt.Errorf("%w: %s", journal.ErrCorrupt, p.dir.Join("state.json"))
	}
	is := f.shapes(&p.info)
	for _, flag := range slices.Sorted(maps.Keys(was)) {
		if was[flag] != is[flag] {
			return &migrate.MismatchError{Dir: p.dir.Path(), What: "--" + flag, Was: was[flag], Is: is[flag]}
		}
	}
	return nil
}

// pace keeps the rate that was asked for.
func (f *migrateFlags) pace() func(context.Context, int) error {
	if f.Rate <= 0 {
		return nil
	}
	l := rate.NewLimiter(rate.Limit(f.Rate), max(1, int(f.Rate/10)))
	return func(ctx context.Context, n int) error {
		for n > 0 {
			part := min(n, l.Burst())
			if err := l.WaitN(ctx, part); err != nil {
				return err
			}
			n -= part
		}
		return ctx.Err()
	}
}

// runDelta brings the tree up to date. It closes src.
func (f *migrateFlags) runDelta(e *env, src source.Source) error {
	defer func() { _ = src.Close() }()
	if f.DryRun || f.Preview > 0 {
		return usagef("--dry-run and --preview are for a migration, not for a delta pass")
	}
	con := newPhaseConsole(e, f.Progress.resolve(e))
	defer con.stop()
	con.phase("connect", nil)
	f.say = con.note
	start := time.Now()
	place, err := f.open(e, src)
	if err != nil {
		return err
	}
	defer place.close()
	if f.Since == sinceState && !place.known {
		return usagef("%s holds no migration that was loaded to its end, and no delta pass; give its folder with --state, or a cut with --since", place.dir.Path())
	}
	// The pass repeats what fails, so its client must not.
	cl, err := e.newClient(client.RetryPolicy{Max: -1})
	if err != nil {
		return err
	}
	prefix := f.TargetPrefix
	if prefix == "" {
		prefix = literalPrefix(f.template(&place.info))
	}
	p := &delta.Progress{}
	p.OnPhase = func(ph delta.Phase) { con.phase(ph.String(), deltaSample(p)) }
	con.note(passText(place, f.targetName(e)))
	r, err := delta.Run(e.ctx, delta.Options{
		Dir: place.dir, Source: src, Info: place.info, SourceName: lasting(place.info.Kind, place.info.Identity), Tree: cl.Tree(f.Tree), Target: f.targetName(e), Map: place.mapper.Map, Mapping: place.mapping,
		Since: place.cut, Deletes: f.Deletes, Prefix: prefix, MaxDeletes: f.MaxDeletes, Yes: f.Yes, MaxRejects: f.MaxRejects, RetryFor: f.RetryFor,
		Spool: spool.Options{SortMemory: f.SortMemory << 20}, Restart: f.Restart, Wait: f.pace(), Progress: p, Notify: con.note,
	})
	con.stop()
	if r.Source != "" {
		err = errors.Join(err, f.printDelta(e, &r, lasting(place.info.Kind, r.Source), time.Since(start)))
	}
	if err == nil && r.Rejected > 0 {
		return errNo
	}
	return err
}

// passText says what is about to happen.
func passText(p *place, target string) string {
	if p.cut == "" {
		return fmt.Sprintf("delta pass: all of %s is compared with tree %s", p.info.Identity, target)
	}
	return fmt.Sprintf("delta pass: from %s to tree %s, what has changed since %s", p.info.Identity, target, p.cut)
}

func deltaSample(p *delta.Progress) func() progress.Sample {
	return func() progress.Sample {
		n := p.Done.Load()
		return progress.Sample{Rows: n, Done: n, Total: p.Total.Load(), Failed: p.Rejected.Load(), Waiting: p.Waiting()}
	}
}

// printDelta prints the account of a pass, and what is left to do.
func (f *migrateFlags) printDelta(e *env, r *delta.Report, from string, took time.Duration) error {
	again, compare := e.commands()
	list := delta.Checklist(delta.Cutover{Source: from, Tree: f.Tree, Server: e.server, Delta: again, Verify: compare, Report: r, Took: took})
	if e.json {
		out := map[string]any{"delta": r}
		if r.Complete {
			out["checklist"] = list
		}
		return e.printJSON(out)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s read: %s written", plural(r.Read, "record"), progress.Group(r.Written))
	for _, n := range []struct {
		n    int64
		what string
	}{{r.Same, "the same already"}, {r.Expired, "expired"}, {r.Rejected, "rejected"}} {
		if n.n > 0 {
			fmt.Fprintf(&b, ", %s %s", progress.Group(n.n), n.what)
		}
	}
	b.WriteString(".\n")
	if r.DeletesFile != "" && r.Complete {
		fmt.Fprintf(&b, "%s deleted that the source has no more", plural(r.Deleted, "key"))
		if r.Kept > 0 {
			fmt.Fprintf(&b, "; %s kept, since the migration has not written them, or somebody else has since", progress.Group(r.Kept))
		}
		b.WriteString(".\n")
	}
	if r.Rejects != "" {
		fmt.Fprintf(&b, "Rejected records are listed in %s.\n", r.Rejects)
	}
	if !r.Complete {
		fmt.Fprintf(&b, "Not completed. What was written is durable, and the same command goes on.\n")
		return e.print(b.String())
	}
	fmt.Fprintf(&b, "Delta pass completed in %s.\n\n%s", progress.Took(took), list)
	return e.print(b.String())
}

// secretFlags have values that are not to be shown again.
var secretFlags = map[string]bool{"--source": true, "--token": true}

// valued and plain are flags that belong to one pass, with and without a value.
var (
	valued = map[string]bool{"--since": true, "--max-deletes": true}
	plain  = map[string]bool{"--yes": true, "-y": true, "--restart": true}
)

// commands are the commands of the next pass and of a verification, made of the
// present one.
func (e *env) commands() (again, compare string) {
	var a, v []string
	named := false
	for i := 0; i < len(e.args); i++ {
		arg := e.args[i]
		name, value, has := strings.Cut(arg, "=")
		switch {
		case plain[name]:
			continue
		case valued[name]:
			if !has {
				i++
			}
			continue
		case secretFlags[name] && has && value != "":
			arg = name + "=…"
		case secretFlags[name] && i+1 < len(e.args):
			i++
			arg = name + "=…"
		}
		a = append(a, quoteArg(arg))
		switch {
		case arg == "--deletes":
		case arg == "migrate" && !named:
			named = true
			v = append(v, "verify")
		default:
			v = append(v, quoteArg(arg))
		}
	}
	a = append(a, "--since", sinceState)
	v = append(v, "--values", "all")
	return "lattice " + strings.Join(a, " "), "lattice " + strings.Join(v, " ")
}

// quoteArg quotes an argument for a shell where that is needed.
func quoteArg(s string) string {
	if s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=./:,@%+…") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// deltaCode returns the exit code of an error of a comparison or a pass.
func deltaCode(err error) (int, bool) {
	for code, errs := range map[int][]error{
		ExitNo:     {delta.ErrTooManyDeletes, delta.ErrUnreadable, delta.ErrTooManyRejects, ledger.ErrNone},
		ExitUsage:  {delta.ErrOtherPass, verify.ErrOtherRun},
		ExitFailed: {delta.ErrPatience},
	} {
		for _, known := range errs {
			if errors.Is(err, known) {
				return code, true
			}
		}
	}
	return 0, false
}
