package verify

import (
	"context"
	"errors"
	"iter"

	"github.com/latticekv/lattice/client"
)

// Against compares the entries of a source with a tree. It reads the tree once,
// and needs memory for a few hundred entries and one value, or 64 MiB of them.
// Differences are in the report and no error.
//
// If o.Dir holds an unfinished verification with the same settings, it goes on
// there. After an error that can be done with the same call.
func Against(ctx context.Context, entries Entries, t *client.Tree, o Options) (r Report, err error) {
	if o, err = o.withDefaults(); err != nil {
		return Report{}, err
	}
	st, err := openStore(&o)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j := &join{store: st, ctx: ctx, tree: t, threshold: o.threshold()}
	j.buckets = buckets{st.s.Open, st.s.Opened}
	o.Progress.Keys.Add(max(st.s.Total.Source, st.s.Total.Target))
	o.Progress.Differs.Add(st.s.Total.Differs())
	j.items = open(entries(ctx, st.s.After))
	defer j.items.stop()
	j.entries = open(Stream(ctx, t, o.Prefix, st.s.After, !j.values(), &o.Progress.Waiting))
	defer j.entries.stop()
	changed := o.Changed
	if changed == nil {
		changed = func(context.Context, string) iter.Seq2[string, error] { return func(func(string, error) bool) {} }
	}
	j.changed = open(changed(ctx, st.s.After))
	defer j.changed.stop()
	if err := j.run(); err != nil {
		return Report{}, err
	}
	return st.report(t.Name())
}
