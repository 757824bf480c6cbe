package cli

import (
	"runtime/debug"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate"
	"github.com/latticekv/lattice/migrate/delta"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// place is what a comparison or a delta pass works with.
type place struct {
	dir     *durable.Dir
	lock    *durable.Lock
	info    source.Info
	mapper  mapper
	mapping string
	// last is what the migration or a pass has left, if known.
	last  delta.Cut
	known bool
	// cut is the one to ask changes from; empty asks none.
	cut string
}

func (p *place) close() { p.lock.Unlock() }

// mapper makes entries of records.
type mapper interface {
	Map(*source.Record, *spool.Entry) error
}

// open takes the folder, and asks source and service for what the flags leave
// open.
func (f *migrateFlags) open(e *env, src source.Source) (_ *place, err error) {
	p := &place{}
	// As in a migration: the buffers of the sort are most of the memory.
	debug.SetMemoryLimit(int64(f.SortMemory)<<20 + 96<<20)
	if p.info, err = src.Inspect(e.ctx); err != nil {
		return nil, err
	}
	if err := f.limits(e); err != nil {
		return nil, err
	}
	mappers, err := f.mapper(&p.info)
	if err != nil {
		return nil, usagef("%v", err)
	}
	if err := migrate.CheckFolder(f.dir()); err != nil {
		return nil, err
	}
	if p.dir, err = durable.Open(f.dir(), nil); err != nil {
		return nil, err
	}
	if p.lock, err = p.dir.Lock(); err != nil {
		return nil, err
	}
	if err := f.adopt(e, p, src); err != nil {
		p.close()
		return nil, err
	}
	started := time.Now().UTC()
	if p.known {
		started = p.last.Started
	} else if f.TTLColumn != "" {
		f.note("times to live count from now: the folder does not tell when the migration began")
	}
	if p.mapper, err = mappers(started); err != nil {
		p.close()
		return nil, usagef("%v", err)
	}
	p.mapping = shapeText(f.shapes(&p.info))
	if p.known {
		// What was begun for another migration in this folder is not gone on with.
		p.mapping += " started=" + started.Format(time.RFC3339Nano)
	}
	return p, nil
}

// lasting is what stays the same of an identity while the source changes: that
// of a file names its size and time, so that one reading is not mixed up with
// another.
func lasting(kind, identity string) string {
	if i := strings.LastIndex(identity, " of "); kind == "file" && i >= 0 {
		return identity[:i]
	}
	return identity
}

// sameTree refuses a pass over a tree that is not the one that the migration
// has loaded.
func (f *migrateFlags) sameTree(e *env, p *place) error {
	if !p.known {
		return nil
	}
	t, err := e.tree(f.Tree)
	if err != nil {
		return err
	}
	info, err := t.Info(e.ctx)
	return migrate.CheckTree(f.Tree, p.last.TreeCreated, &info, err)
}

// adopt reads what the folder tells of the migration, and refuses another one's.
func (f *migrateFlags) adopt(e *env, p *place, src source.Source) (err error) {
	if err := f.sameMigration(e, p); err != nil {
		return err
	}
	if p.last, p.known, err = delta.LastCut(p.dir); err != nil {
		return err
	}
	if p.known {
		for _, c := range []struct{ what, was, is string }{{"the source", lasting(p.info.Kind, p.last.Source), lasting(p.info.Kind, p.info.Identity)}, {"the tree", p.last.Target, f.targetName(e)}} {
			if c.was != c.is {
				return &migrate.MismatchError{Dir: p.dir.Path(), What: c.what, Was: c.was, Is: c.is}
			}
		}
	}
	if f.Since != "" {
		if err := f.sameTree(e, p); err != nil {
			return err
		}
	}
	_, tells := src.(source.Changing)
	tells = tells && p.info.Cut != ""
	switch {
	case f.Since != "" && f.Since != sinceState && !tells:
		return usagef("this source cannot tell what has changed since a cut; --since state reads it whole and compares")
	case f.Since != "" && f.Since != sinceState:
		p.cut = f.Since
	case tells && p.known:
		p.cut = p.last.Cut
	}
	return nil
}
