package delta

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

var (
	// ErrTooManyDeletes: more keys would be deleted than was allowed. None was.
	ErrTooManyDeletes = errors.New("too many keys would be deleted")
	// ErrUnreadable: records of the source could not be read whose keys nobody
	// knows, so that none can be said to be gone. None was deleted.
	ErrUnreadable = errors.New("nothing was deleted")
	// ErrTooManyRejects: more records could not be written than was allowed.
	ErrTooManyRejects = errors.New("too many rejected records")
	// ErrOtherPass: the folder holds an unfinished pass with other settings.
	ErrOtherPass = errors.New("the folder holds an unfinished delta pass with other settings")
	// ErrPatience: the service stayed busy or out of reach for too long.
	ErrPatience = errors.New("the service did not recover in time")
)

// The defaults.
const (
	DefaultRetryFor = 5 * time.Minute
	// MinDeletes is how many keys may be deleted of any tree without being
	// allowed; of a large one it is a tenth of its keys.
	MinDeletes = 100
	// tolerance is by how much two expiries may differ that are the same: whole
	// seconds of a source, and the way of a request with a time to live.
	tolerance = 2 * time.Second
)

// Options say what to do. Dir, Source, Tree and Map must be set.
type Options struct {
	// Dir is the folder of the migration. It must be this process's alone.
	Dir    *durable.Dir
	Source source.Source
	// Info is what Source.Inspect said before the pass; its Cut is that of the
	// next pass. SourceName is what of its Identity stays while the source
	// changes; empty if all does.
	Info       source.Info
	SourceName string
	// Tree is written to; its client must not repeat calls by itself. Target
	// names it with its service, without secrets.
	Tree   *client.Tree
	Target string
	// Map makes an entry of a record, as mapping.Mapper does; Mapping identifies
	// how.
	Map     func(*source.Record, *spool.Entry) error
	Mapping string
	// Since is the cut from which on changes are asked of the source; empty reads
	// it whole and compares.
	Since string
	// Deletes also deletes what the source has no more, among the keys of the
	// tree that begin with Prefix.
	Deletes bool
	Prefix  string
	// MaxDeletes is how many keys may be deleted; 0 is the greater of MinDeletes
	// and a tenth of the keys. A source without any record is not believed, nor
	// one with records that cannot be read and whose keys are not known. Yes
	// allows everything.
	MaxDeletes int64
	Yes        bool
	// MaxRejects is how many records may be rejected; negative is any number.
	MaxRejects int64
	// RetryFor is how long a service that is busy or gone is waited for.
	RetryFor time.Duration
	Spool    spool.Options
	// Restart forgets an unfinished pass.
	Restart bool
	// Wait is called with the number of records read, to keep a rate.
	Wait func(ctx context.Context, records int) error
	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// Progress, if set, is kept up to date.
	Progress *Progress
	// Notify, if set, is told what a person should know.
	Notify func(string)
}

// Phase is what a pass is doing.
type Phase int

// The phases.
const (
	// Applying: changes are read and written.
	Applying Phase = iota
	// ListingTree: the keys of the tree are listed.
	ListingTree
	// ListingSource: the keys of the source are listed.
	ListingSource
	// Deciding: the two lists are compared.
	Deciding
	// Deleting: keys are deleted.
	Deleting
)

// String names the phase for people.
func (p Phase) String() string {
	return [...]string{"delta", "keys of the tree", "keys of the source", "compare keys", "delete"}[p]
}

// Progress says how far a pass is.
type Progress struct {
	// OnPhase, if set, is told what is being done from then on.
	OnPhase func(Phase)
	// Done and Total are the work of the present phase; a Total of 0 is unknown.
	Done, Total atomic.Int64
	// Written and Rejected count over the whole pass.
	Written, Rejected atomic.Int64
	// waits counts requests that wait to be repeated, broken says that the
	// stream of keys is opened again.
	waits  atomic.Int32
	broken atomic.Bool
}

// Waiting says that the service is waited for.
func (p *Progress) Waiting() bool { return p.waits.Load() > 0 || p.broken.Load() }

func (p *Progress) begin(ph Phase, total int64) {
	p.Done.Store(0)
	p.Total.Store(max(total, 0))
	if p.OnPhase != nil {
		p.OnPhase(ph)
	}
}

func (o Options) withDefaults() (Options, error) {
	o.RetryFor = cmp.Or(o.RetryFor, DefaultRetryFor)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = &Progress{}
	}
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	if o.Wait == nil {
		o.Wait = func(ctx context.Context, _ int) error { return ctx.Err() }
	}
	_, changing := o.Source.(source.Changing)
	switch {
	case o.Dir == nil || o.Source == nil || o.Tree == nil || o.Map == nil:
		return o, errors.New("delta: folder, source, tree and mapping must be set")
	case o.Since != "" && (!changing || o.Info.Cut == ""):
		return o, errors.New("this source cannot tell what has changed since a cut; --since state reads it whole and compares")
	case o.MaxDeletes < 0 || o.RetryFor < 0:
		return o, errors.New("delta: an option is negative")
	}
	return o, nil
}
