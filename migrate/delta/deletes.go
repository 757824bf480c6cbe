package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/ledger"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
	"github.com/latticekv/lattice/migrate/verify"
)

const (
	// saveKeysEvery is how many keys are listed between two savings.
	saveKeysEvery = 100_000
	// askAtOnce is of how many keys the ledger is asked in one reading of it.
	askAtOnce = 50_000
	// shown is how many keys an error names.
	shown = 5
)

func (p *pass) openKeys(name string, generation int64) (*spool.Spool, error) {
	dir, err := p.Dir.Sub(name)
	if err != nil {
		return nil, err
	}
	return spool.Open(dir, generation, p.Spool)
}

func (p *pass) clear(name string, generation int64) error {
	if generation == 0 {
		return nil
	}
	s, err := p.openKeys(name, generation)
	if err != nil {
		return err
	}
	return s.Clear()
}

// listTree lists the keys of the tree with their versions, before the source's
// are: a key that is new in both is then not taken for one that the source lacks.
func (p *pass) listTree(ctx context.Context) error {
	p.Progress.begin(ListingTree, p.Info.Estimate)
	s, err := p.openKeys(treeKeys, p.st.TreeGeneration)
	if err != nil {
		return err
	}
	save := func() error {
		if p.st.TreeGeneration, err = s.Checkpoint(); err != nil {
			return err
		}
		return p.save()
	}
	for e, err := range verify.Stream(ctx, p.Tree, p.Prefix, p.st.After, true, &p.Progress.broken) {
		if err != nil {
			return err
		}
		listed := spool.Entry{Key: e.Key, Value: []byte(e.Version)}
		if !e.ExpiresAt.IsZero() {
			listed.Expiry = e.ExpiresAt.UnixMilli()
		}
		if err := s.Add(&listed); err != nil {
			return err
		}
		p.st.After = e.Key
		p.st.TreeKeys++
		p.Progress.Done.Store(p.st.TreeKeys)
		if p.st.TreeKeys%saveKeysEvery == 0 {
			if err := save(); err != nil {
				return err
			}
		}
	}
	return save()
}

// listSource lists the keys of the source.
func (p *pass) listSource(ctx context.Context) error {
	p.Progress.begin(ListingSource, p.Info.Estimate)
	list, err := p.openKeys(sourceKeys, p.st.SourceGeneration)
	if err != nil {
		return err
	}
	again := func() error {
		p.st.SourceKeys, p.st.SourceGeneration, p.st.Nameless, p.st.FirstNameless = 0, 0, 0, ""
		if err := p.save(); err != nil {
			return err
		}
		return list.Clear()
	}
	return p.anew(again, func() error {
		return p.pages(ctx, p.Source.Read, list, func(page *source.Page) error { return p.listPage(page, list) })
	})
}

func (p *pass) listPage(page *source.Page, list *spool.Spool) error {
	var e spool.Entry
	for i := range page.Faults {
		f := page.Faults[i]
		f.Key = p.keyOf(&f)
		if err := p.present(&f, list); err != nil {
			return err
		}
	}
	for i := range page.Records {
		// One that cannot be mapped is there all the same, if its key is known.
		err := p.Map(&page.Records[i], &e)
		if errors.Is(err, mapping.ErrExpired) {
			continue
		}
		f := source.Fault{Origin: page.Records[i].Origin, Key: e.Key}
		if err != nil {
			f.Reason = err.Error()
		}
		if err := p.present(&f, list); err != nil {
			return err
		}
	}
	p.Progress.Done.Store(p.st.SourceKeys)
	return nil
}

// victim is a key to be deleted, if it still has this version.
type victim struct {
	Key     string `json:"key"`
	Version string `json:"version"`
}

// delete finds the keys that the source has no more, and deletes them if they
// are not too many.
func (p *pass) delete(ctx context.Context) error {
	p.st.Counts.Deleted, p.st.Counts.Kept = 0, 0
	p.Progress.begin(Deciding, p.st.TreeKeys)
	f, err := journal.Open(p.Dir, deletesName, 0)
	if err != nil {
		return err
	}
	n, first, err := p.decide(ctx, f)
	size := int64(0)
	if err == nil {
		size, err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := p.guard(n, first); err != nil || n == 0 {
		return err
	}
	if err := p.touch(); err != nil {
		return err
	}
	p.Progress.begin(Deleting, n)
	return p.deleteAll(ctx, size)
}

// decide writes the victims to a file.
func (p *pass) decide(ctx context.Context, f *journal.File) (n int64, first []string, err error) {
	asked := map[string]string{}
	var order []string
	settle := func() error {
		if len(order) == 0 {
			return nil
		}
		owned, err := ledger.Owned(p.Dir, asked)
		if err != nil {
			return err
		}
		for _, k := range order {
			if !owned[k] {
				p.st.Counts.Kept++
				continue
			}
			if n++; n <= shown {
				first = append(first, k)
			}
			if err := f.Line(victim{k, asked[k]}); err != nil {
				return err
			}
		}
		clear(asked)
		order = order[:0]
		return nil
	}
	for v, err := range p.missing(ctx) {
		if err != nil {
			return 0, nil, err
		}
		asked[v.Key] = v.Version
		if order = append(order, v.Key); len(order) == askAtOnce {
			if err := settle(); err != nil {
				return 0, nil, err
			}
		}
	}
	return n, first, settle()
}

// missing yields the keys that the tree has and the source has not.
func (p *pass) missing(ctx context.Context) iter.Seq2[victim, error] {
	return func(yield func(victim, error) bool) {
		tree, err := p.openKeys(treeKeys, p.st.TreeGeneration)
		if err != nil {
			yield(victim{}, err)
			return
		}
		list, err := p.openKeys(sourceKeys, p.st.SourceGeneration)
		if err != nil {
			yield(victim{}, err)
			return
		}
		next, stop := iter.Pull2(list.Sorted(ctx, ""))
		defer stop()
		have, err, more := next()
		for e, terr := range tree.Sorted(ctx, "") {
			if terr != nil {
				yield(victim{}, terr)
				return
			}
			for err == nil && more && have.Key < e.Key {
				have, err, more = next()
			}
			if more && err != nil {
				yield(victim{}, err)
				return
			}
			p.Progress.Done.Add(1)
			if more && have.Key == e.Key || p.expiring(e) {
				continue
			}
			if !yield(victim{e.Key, string(e.Value)}, nil) {
				return
			}
		}
	}
}

// expiring reports whether a key goes by itself, or has gone by now.
func (p *pass) expiring(e *spool.Entry) bool {
	return e.Expiry != 0 && e.Expiry <= p.Now().Add(tolerance).UnixMilli()
}

// guard refuses what looks like a mistake. Nothing has been deleted by then.
func (p *pass) guard(n int64, first []string) error {
	if n == 0 {
		return nil
	}
	quoted := make([]string, len(first))
	for i, k := range first {
		quoted[i] = fmt.Sprintf("%q", k)
	}
	which := fmt.Sprintf("%s first; all are in %s", strings.Join(quoted, ", "), p.Dir.Join(deletesName))
	limit := p.MaxDeletes
	if limit == 0 {
		limit = max(MinDeletes, p.st.TreeKeys/10)
	}
	switch {
	case p.Yes:
		return nil
	case p.st.Nameless > 0:
		return fmt.Errorf("%w: the source has records that could not be read and whose keys are not known, %d of them (the first one: %s), and what it seems to have no more may be theirs: %s; mend them, run without --deletes, or delete all the same with --yes",
			ErrUnreadable, p.st.Nameless, p.st.FirstNameless, which)
	case p.st.SourceKeys == 0:
		return fmt.Errorf("%w: the source has no records at all, and the tree has %d keys of it (%s); if that is so, give --yes", ErrTooManyDeletes, n, which)
	case n > limit:
		return fmt.Errorf("%w: %d of %d keys, and %d are allowed (%s); allow more with --max-deletes, or any number with --yes", ErrTooManyDeletes, n, p.st.TreeKeys, limit, which)
	}
	return nil
}

// deleteAll deletes the victims, each under the condition that it has not been
// written since.
func (p *pass) deleteAll(ctx context.Context, size int64) error {
	var batch []victim
	err := journal.Lines(p.Dir, deletesName, size, func(line []byte) (bool, error) {
		var v victim
		if err := json.Unmarshal(line, &v); err != nil {
			return false, fmt.Errorf("%w: %s: %w", journal.ErrCorrupt, deletesName, err)
		}
		if batch = append(batch, v); len(batch) < batchOps {
			return true, nil
		}
		err := p.deleteBatch(ctx, batch)
		batch = batch[:0]
		return true, err
	})
	if err != nil {
		return err
	}
	return p.deleteBatch(ctx, batch)
}

func (p *pass) deleteBatch(ctx context.Context, left []victim) error {
	if len(left) == 0 {
		return nil
	}
	return p.patiently(ctx, func() error {
		ops := make([]client.Op, len(left))
		for i, v := range left {
			ops[i] = client.Op{Delete: true, Key: v.Key, IfVersion: v.Version}
		}
		results, err := p.Tree.Batch(ctx, client.Batch{Ops: ops})
		if err != nil {
			return err
		}
		left, err = p.deleted(left, results)
		return err
	})
}

// deleted accounts for each result and returns what is left.
func (p *pass) deleted(sent []victim, results []client.OpResult) (left []victim, busy error) {
	for i, r := range results {
		switch err := r.Err(); {
		case err == nil, errors.Is(err, client.ErrKeyNotFound), errors.Is(err, client.ErrVersionMismatch) && r.Version == "":
			// A key that is gone was deleted by this pass before its reply was
			// lost, or has expired.
			p.st.Counts.Deleted++
		case errors.Is(err, client.ErrVersionMismatch):
			p.st.Counts.Kept++
		case passing(err):
			left = append(left, sent[i])
			busy = &client.Error{Status: http.StatusServiceUnavailable, Code: client.Code(r.Status), Detail: r.Detail}
			continue
		default:
			return nil, fmt.Errorf("delete key %q: %w", r.Key, err)
		}
		p.Progress.Done.Add(1)
	}
	return left, busy
}
