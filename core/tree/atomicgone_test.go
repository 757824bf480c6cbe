package tree

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/faulty"
)

// forgotten lets ticks tell the shards of every batch, and forget the decisions.
func forgotten(t *testing.T, in *instance, tr *Tree) {
	t.Helper()
	for range 4 {
		_ = in.clock.Sleep(t.Context(), time.Minute)
		if rep, err := in.Transactions(t.Context(), 0); err != nil || rep.Failed > 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
	}
	if page, err := in.txns.List(t.Context(), tr.entry.last.Load().ID, "", 10); err != nil || len(page.Rows) > 0 {
		t.Fatalf("%d rows are left, %v", len(page.Rows), err)
	}
}

// readers are the ways to read keys, as one text.
var readers = map[string]func(ctx context.Context, tr *Tree, keys []string, o ReadOptions) (string, error){
	"get": func(ctx context.Context, tr *Tree, keys []string, o ReadOptions) (string, error) {
		var got []string
		for _, key := range keys {
			it, _, err := tr.Get(ctx, key, o)
			if err != nil {
				return "", err
			}
			got = append(got, string(it.Value))
		}
		return strings.Join(got, " "), nil
	},
	"batch get": func(ctx context.Context, tr *Tree, keys []string, o ReadOptions) (string, error) {
		items, err := tr.GetMany(ctx, keys, o)
		return joined(items), err
	},
	"of one shard": func(ctx context.Context, tr *Tree, keys []string, o ReadOptions) (string, error) {
		var got []string
		for _, key := range keys {
			items, err := tr.GetMany(ctx, []string{key}, o)
			if err != nil {
				return "", err
			}
			got = append(got, joined(items))
		}
		return strings.Join(got, " "), nil
	},
	"scan": func(ctx context.Context, tr *Tree, keys []string, o ReadOptions) (string, error) {
		p, err := tr.Scan(ctx, ScanQuery{Limit: 100, Read: o})
		return joined(p.Items), err
	},
}

func joined(items []Item) string {
	var out []string
	for _, it := range items {
		out = append(out, string(it.Value))
	}
	return strings.Join(out, " ")
}

// A reader is frozen between its look at a shard and that at the decision, for so
// long that the decision is forgotten meanwhile: it must not take that for an
// abort.
func TestAFrozenReaderTakesNoForgottenDecisionForAnAbort(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other, tr, keys, src := stranded(t, faulty.AfterEffect)
				frozen := faulty.New(other.table, other.blobs, faulty.Options{Clock: src})
				froze := frozen.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Get), faulty.InPartition("x-")), Times: 1, Do: faulty.Do(func(context.Context, *faulty.Call) error {
					forgotten(t, other, tr)
					return nil
				})})
				slow := open(t, frozen.Table(), frozen.Blobs()).writer(t, "demo")
				got, err := read(t.Context(), slow, keys, ReadOptions{})
				if froze.Fired() != 1 || err != nil || got != "new new new new" {
					t.Errorf("frozen %d times, read %q, %v", froze.Fired(), got, err)
				}
			})
		})
	}
}

// The same for a reader to whom an old view will do, which is older than the
// decision is kept.
func TestAnOldViewTakesNoForgottenDecisionForAnAbort(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other, tr, keys, _ := stranded(t, faulty.AfterEffect)
				old := open(t, other.table, other.blobs)
				lazy := old.writer(t, "demo")
				m, err := lazy.refresh(t.Context())
				must(t, err)
				for id := range m.partitions {
					_, err := old.DB.shard(m.partitions[id], m.tuning).View(t.Context(), shard.ReadOptions{})
					must(t, err)
				}
				forgotten(t, other, tr)
				got, err := read(t.Context(), lazy, keys, ReadOptions{MaxAge: time.Hour})
				if err != nil || got != "new new new new" {
					t.Errorf("read %q, %v", got, err)
				}
			})
		})
	}
}
