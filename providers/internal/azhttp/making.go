package azhttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// Place is a table or a container that need not exist when it is opened: reads
// of one that is missing find nothing, and the first write makes it. So a process
// starts without asking the storage anything. Safe for concurrent use.
//
// A place that this process has seen and that is missing later was deleted.
// Taking that for an empty one would make a new, empty store of it, so from then on
// it is an error.
type Place struct {
	// What it is, "table" or "container", and its Name.
	What, Name string
	// Setting is the environment variable that names it.
	Setting string
	// Role is what an identity must have to make it.
	Role string
	// Command makes it, by the account's owner.
	Command string
	// Missing reports whether a refusal says that the place is not there.
	Missing func(*StatusError) bool
	// BeingDeleted is the code of the refusal that says that the name is blocked.
	BeingDeleted string
	// Exists is the code of the refusal to make it a second time.
	Exists string
	// Create makes it: one exchange. Its errors wrap a StatusError where the
	// service answered.
	Create func(ctx context.Context) error
	// Unused, unless nil, is asked where the place is missing: it refuses with
	// store.ErrCorrupt if something else shows that it was in use, so that a loss is
	// not taken for a beginning. Prepare, unless nil, is done on top before the place is made.
	Unused, Prepare func(ctx context.Context) error
	// Fixed says that the place is not made by writes: one that is missing is an
	// error.
	Fixed bool

	seen atomic.Bool
	// made is when this process made it, in Unix nanoseconds, 0 if it did not.
	made   atomic.Int64
	flight flights
}

// Read makes a read, and reports found as false where the place does not exist
// yet.
func (p *Place) Read(ctx context.Context, read func() error) (found bool, err error) {
	seen := p.seen.Load()
	switch err = read(); {
	case !p.absent(err):
		return true, p.explain(err)
	case seen:
		return true, p.gone(err)
	}
	lost := p.unused(ctx)
	if lost == nil {
		return false, nil
	}
	// Another process may have made the place, and used it, between the two looks.
	if err = read(); !p.absent(err) {
		return true, p.explain(err)
	}
	return false, lost
}

// Write makes a write; where the place does not exist yet it is made, and the
// write is made once more. A write that finds no place has had no effect.
func (p *Place) Write(ctx context.Context, write func() error) error {
	seen := p.seen.Load()
	err := write()
	switch {
	case !p.absent(err):
		return p.explain(err)
	case seen || p.Fixed:
		return p.gone(err)
	}
	unmade := p.Make(ctx)
	// Also where it was not made: another process may have done so, and used it.
	switch err = write(); {
	case !p.absent(err):
		return p.explain(err)
	case unmade != nil:
		return unmade
	}
	return p.gone(err)
}

// absent reports whether an answer says that the place is missing. Success, and
// every word of a row or blob in it, shows that it is there.
func (p *Place) absent(err error) bool {
	if p.missing(err) {
		return true
	}
	if err == nil || errors.Is(err, store.ErrNotFound) || store.LostRace(err) {
		p.seen.Store(true)
	}
	return false
}

// unused refuses if the place was in use, as far as anything else shows.
func (p *Place) unused(ctx context.Context) error {
	if p.Unused == nil {
		return nil
	}
	err := p.Unused(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrCorrupt):
		return fmt.Errorf("%s %s is gone, and is not made anew where data was: restore it, or begin with new names of table and container: %w", p.What, p.Name, err)
	}
	return fmt.Errorf("%s %s does not exist, and whether it was in use before cannot be found out: %w", p.What, p.Name, err)
}

// Make creates the place unless this process knows that it exists. Many callers at
// once share one attempt.
func (p *Place) Make(ctx context.Context) error {
	return p.flight.do(ctx, func(ctx context.Context) error {
		if p.seen.Load() {
			return nil
		}
		for _, step := range []func(context.Context) error{p.unused, p.Prepare, p.create} {
			if step == nil {
				continue
			}
			if err := step(ctx); err != nil {
				return fmt.Errorf("create %s %s: %w", p.What, p.Name, err)
			}
		}
		p.made.Store(time.Now().UnixNano())
		p.seen.Store(true)
		return nil
	})
}

// Open finds out with a read whether the place is there, and makes it if it is
// not: for those who want to know at the start that the storage answers. One that
// exists need not be creatable.
func (p *Place) Open(ctx context.Context, read func(context.Context) error) error {
	found := false
	err := Reads.Do(ctx, func(ctx context.Context) (err error) {
		found, err = p.Read(ctx, func() error { return read(ctx) })
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reach %s %s: %w", p.What, p.Name, err)
	}
	switch {
	case found:
		return nil
	case p.Fixed:
		return p.gone(store.ErrNotFound)
	}
	unmade := p.Make(ctx)
	if errors.Is(unmade, store.ErrCorrupt) && !p.absent(read(ctx)) && p.seen.Load() {
		return nil // another process made it, and used it, between the two looks
	}
	return unmade
}

// create tries until the place exists or trying again is of no use.
func (p *Place) create(ctx context.Context) error {
	var final error
	err := Reads.Do(ctx, func(ctx context.Context) error {
		err := p.Create(ctx)
		var refused *StatusError
		if !errors.As(err, &refused) {
			return err
		}
		switch {
		case refused.Code == p.Exists:
			return nil
		case refused.Code == p.BeingDeleted:
			final = p.explain(err)
			return nil
		case refused.Denied():
			final = fmt.Errorf("it does not exist and these credentials may not create it; create it with `%s`, "+
				"or give the identity the role %q, or the signature the permission to create containers (c on resource type c): %w", p.Command, p.Role, err)
			return nil
		}
		return err
	})
	return errors.Join(err, final)
}

func (p *Place) missing(err error) bool {
	var refused *StatusError
	return errors.As(err, &refused) && p.Missing(refused)
}

// settling is how long a place that was made may be unknown to other front ends of
// the service.
const settling = time.Minute

// gone is what a place that was there comes to. What it held is missing, and no
// second try brings it back; unless it was made just now.
func (p *Place) gone(err error) error {
	if made := p.made.Load(); made != 0 && time.Since(time.Unix(0, made)) < settling {
		return fmt.Errorf("%s %s was made just now and is not found: %w: %v", p.What, p.Name, store.ErrUnavailable, err)
	}
	return store.Corruptf("%s %s is gone, and is not made anew where data was: restore it, or begin with new names of table and container; "+
		"if it never was there, create it with `%s`: %v", p.What, p.Name, p.Command, err)
}

// explain says what a name that is blocked means; other errors are as they were.
func (p *Place) explain(err error) error {
	var refused *StatusError
	if !errors.As(err, &refused) || refused.Code != p.BeingDeleted {
		return err
	}
	return fmt.Errorf("%s %s is being deleted, which blocks its name for 40 s or more; wait, or choose another name with %s: %w",
		p.What, p.Name, p.Setting, err)
}

// flights lets one of the callers at a time do something, and gives what came of
// it to all who wait meanwhile.
type flights struct {
	mu      sync.Mutex
	current *flight
}

type flight struct {
	done chan struct{}
	err  error
	// gaveUp says that the one who flew it ran out of time, which says nothing
	// about the rest.
	gaveUp bool
}

func (f *flights) do(ctx context.Context, work func(context.Context) error) error {
	for {
		if err := store.CheckContext(ctx); err != nil {
			return err
		}
		mine, current := f.board()
		if mine {
			defer f.land(current)
			current.err = work(ctx)
			current.gaveUp = current.err != nil && ctx.Err() != nil
			return current.err
		}
		select {
		case <-current.done:
		case <-ctx.Done():
			return store.CheckContext(ctx)
		}
		if !current.gaveUp {
			return current.err
		}
	}
}

// board returns the flight under way, or a new one that is the caller's.
func (f *flights) board() (mine bool, current *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		return false, f.current
	}
	f.current = &flight{done: make(chan struct{}), err: errAborted}
	return true, f.current
}

func (f *flights) land(current *flight) {
	f.mu.Lock()
	f.current = nil
	f.mu.Unlock()
	close(current.done)
}

// errAborted is what those get who waited for one that panicked.
var errAborted = fmt.Errorf("%w: another request was to do this and broke off", store.ErrUnavailable)
