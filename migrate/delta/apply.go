package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
	"github.com/latticekv/lattice/migrate/verify"
)

const (
	// saveRecords and saveEvery are what a crash may cost.
	saveRecords = 20_000
	saveEvery   = 5 * time.Second
	// maxRestarts bounds how often a source that cannot resume is begun anew.
	maxRestarts = 10
	// compareKeys and compareBytes bound what is compared at once.
	compareKeys  = 500
	compareBytes = 4 << 20
)

// reading is how a source is read from a position on.
type reading func(context.Context, source.Position) iter.Seq2[source.Page, error]

// pages reads pages from the position on, calls each with them, and saves from
// time to time. What follows the last saving is saved with the next stage.
func (p *pass) pages(ctx context.Context, read reading, list *spool.Spool, each func(*source.Page) error) error {
	unsaved, saved := 0, time.Now()
	for page, err := range read(ctx, p.st.Position) {
		if errors.Is(err, source.ErrRestart) {
			return err
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read the source: %w", err), p.saveStopped(unsaved, list))
		}
		if err := each(&page); err != nil {
			return err
		}
		n := len(page.Records) + len(page.Faults)
		unsaved += n
		if p.st.Position = page.Next; page.Next == nil {
			break
		}
		if unsaved >= saveRecords || time.Since(saved) >= saveEvery {
			if err := p.saveKeys(list); err != nil {
				return err
			}
			unsaved, saved = 0, time.Now()
		}
		if err := p.Wait(ctx, n); err != nil {
			return errors.Join(err, p.saveStopped(unsaved, list))
		}
	}
	return p.checkpoint(list)
}

// saveStopped keeps what was done before a failure of somebody else.
func (p *pass) saveStopped(unsaved int, list *spool.Spool) error {
	if unsaved == 0 {
		return nil
	}
	return p.saveKeys(list)
}

// checkpoint makes durable the keys that were listed, if any are.
func (p *pass) checkpoint(list *spool.Spool) (err error) {
	if list != nil {
		p.st.SourceGeneration, err = list.Checkpoint()
	}
	return err
}

// saveKeys saves, and before that the keys that were listed.
func (p *pass) saveKeys(list *spool.Spool) error {
	if err := p.checkpoint(list); err != nil {
		return err
	}
	return p.save()
}

// anew calls read until the source can be read to its end.
func (p *pass) anew(again func() error, read func() error) error {
	for restarts := 0; ; restarts++ {
		err := read()
		if !errors.Is(err, source.ErrRestart) || restarts == maxRestarts {
			return err
		}
		p.Notify(fmt.Sprintf("%v: reading begins anew; nothing is lost", err))
		p.st.Position = nil
		if err := again(); err != nil {
			return err
		}
	}
}

// apply reads changes, or all records, and writes what differs.
func (p *pass) apply(ctx context.Context) error {
	total := p.Info.Estimate
	read := reading(p.Source.Read)
	if !p.compares() {
		total = 0
		read = func(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
			return p.Source.(source.Changing).ReadSince(ctx, p.Since, from)
		}
	}
	p.Progress.begin(Applying, total)
	p.Progress.Done.Store(p.st.Counts.Read)
	var list *spool.Spool
	if p.Deletes && p.compares() && !p.apart {
		var err error
		if list, err = p.openKeys(sourceKeys, p.st.SourceGeneration); err != nil {
			return err
		}
	}
	return p.anew(func() error { return p.recount(list) }, func() error {
		return p.pages(ctx, read, list, func(page *source.Page) error { return p.applyPage(ctx, page, list) })
	})
}

// recount forgets what was counted of a reading that begins anew.
func (p *pass) recount(list *spool.Spool) error {
	c := &p.st.Counts
	c.Read, c.Same, c.Expired, c.Rejected = 0, 0, 0, 0
	p.Progress.Done.Store(0)
	p.Progress.Rejected.Store(0)
	p.st.Nameless, p.st.FirstNameless, p.st.SourceKeys = 0, "", 0
	if err := p.rejects.Close(); err != nil {
		return err
	}
	var err error
	if p.rejects, err = journal.Open(p.Dir, rejectName, 0); err != nil {
		return err
	}
	p.st.SourceGeneration = 0
	if err := p.save(); err != nil || list == nil {
		return err
	}
	return list.Clear()
}

// applyPage writes the changes of a page; they are durable on return.
func (p *pass) applyPage(ctx context.Context, page *source.Page, list *spool.Spool) error {
	c := &p.st.Counts
	c.Expired += page.Expired
	for i := range page.Faults {
		c.Read++
		f := page.Faults[i]
		f.Key = p.keyOf(&f)
		if err := p.unreadable(f, list); err != nil {
			return err
		}
	}
	part := newPortion()
	var e spool.Entry
	for i := range page.Records {
		c.Read++
		ch, ok, err := p.change(&page.Records[i], &e, list)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if part.add(ch); len(part.changes) >= compareKeys*2 || part.size >= compareBytes {
			if err := p.applyPortion(ctx, part); err != nil {
				return err
			}
			part = newPortion()
		}
	}
	p.Progress.Done.Store(c.Read)
	return p.applyPortion(ctx, part)
}

// change maps a record. One that has expired replaces what the tree may have
// of it, and vanishes at once.
func (p *pass) change(r *source.Record, e *spool.Entry, list *spool.Spool) (change, bool, error) {
	err := p.Map(r, e)
	gone := errors.Is(err, mapping.ErrExpired)
	if err != nil && !gone {
		return change{}, false, p.unreadable(source.Fault{Origin: r.Origin, Key: e.Key, Reason: err.Error()}, list)
	}
	if gone {
		p.st.Counts.Expired++
		return newChange(e.Key, nil, "", p.Now(), r.Origin), true, nil
	}
	expiry := time.Time{}
	if e.Expiry != 0 {
		expiry = time.UnixMilli(e.Expiry)
	}
	return newChange(e.Key, e.Value, e.Type, expiry, r.Origin), true, p.listed(e.Key, list)
}

// unreadable rejects a record.
func (p *pass) unreadable(f source.Fault, list *spool.Spool) error {
	if err := p.present(&f, list); err != nil {
		return err
	}
	return p.fault(f)
}

// present notes that the source has a record that cannot be read or mapped. Its
// key, if it is known, is there all the same.
func (p *pass) present(f *source.Fault, list *spool.Spool) error {
	switch {
	case list == nil:
	case f.Key != "":
		return p.listed(f.Key, list)
	default:
		if p.st.Nameless++; p.st.Nameless == 1 {
			p.st.FirstNameless = source.Short(f.Origin) + ": " + f.Reason
		}
	}
	return nil
}

// keyOf is the key in the tree of a record that could not be read: that of a
// fault is the source's, and is taken if a key can be made of it alone.
func (p *pass) keyOf(f *source.Fault) string {
	if f.Key == "" || len(p.Info.KeyFields) != 1 {
		return ""
	}
	var e spool.Entry
	r := source.Record{Origin: f.Origin, Fields: []source.Field{{Name: p.Info.KeyFields[0], Value: f.Key}}, Payload: []byte{}}
	_ = p.Map(&r, &e) // the key is all that is asked for
	return e.Key
}

// listed notes that the source has a key.
func (p *pass) listed(key string, list *spool.Spool) error {
	if list == nil {
		return nil
	}
	p.st.SourceKeys++
	return list.Add(&spool.Entry{Key: key})
}

// portion is changes of different keys that are dealt with together.
type portion struct {
	changes []change
	at      map[string]int
	size    int
}

func newPortion() *portion { return &portion{at: map[string]int{}} }

// add takes a change; it replaces an earlier one of its key.
func (t *portion) add(c change) {
	t.size += c.op.Size()
	if i, ok := t.at[c.op.Key]; ok {
		t.changes[i] = c
		return
	}
	t.at[c.op.Key] = len(t.changes)
	t.changes = append(t.changes, c)
}

func (p *pass) applyPortion(ctx context.Context, t *portion) error {
	if !p.compares() {
		return p.write(ctx, t.changes)
	}
	for rest := t.changes; len(rest) > 0; {
		n := min(len(rest), compareKeys)
		differ, err := p.different(ctx, rest[:n])
		if err != nil {
			return err
		}
		if err := p.write(ctx, differ); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// different returns the changes that the tree does not have yet.
func (p *pass) different(ctx context.Context, changes []change) ([]change, error) {
	keys := make([]string, len(changes))
	for i := range changes {
		keys[i] = changes[i].op.Key
	}
	have := make(map[string]client.Entry, len(keys))
	err := p.patiently(ctx, func() error {
		return verify.Fetch(ctx, p.Tree, keys, func(e client.Entry) { have[e.Key] = e })
	})
	if err != nil && !errors.Is(err, client.ErrTreeNotFound) {
		return nil, err
	}
	var out []change
	now := p.Now()
	for i := range changes {
		c := &changes[i]
		e, ok := have[c.op.Key]
		gone := !c.expiry.IsZero() && !c.expiry.After(now)
		switch {
		case !ok && gone:
		case ok && !gone && c.same(&e):
			p.st.Counts.Same++
		default:
			out = append(out, *c)
		}
	}
	return out, nil
}

// same reports whether the tree has an entry already.
func (c *change) same(e *client.Entry) bool {
	value := c.op.Value
	if c.op.JSON != nil {
		value = c.op.JSON
	}
	if string(value) != string(e.Value) || c.expiry.IsZero() != e.ExpiresAt.IsZero() {
		return false
	}
	return c.expiry.Sub(e.ExpiresAt).Abs() <= tolerance
}
