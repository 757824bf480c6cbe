package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/latticekv/lattice/migrate/durable"
)

var (
	// ErrCorrupt: a run is damaged, cut off or missing. Nothing that was read
	// from the spool can be called complete.
	ErrCorrupt = errors.New("the spool is damaged")
	// ErrUnsaved: entries were added and no checkpoint followed.
	ErrUnsaved = errors.New("the spool has entries that are not saved")
)

// Entry is one entry on its way to a tree.
type Entry struct {
	Key   string
	Value []byte
	// Type is the media type of the value; empty is application/octet-stream.
	Type string
	// Expiry is in Unix milliseconds, 0 for never.
	Expiry int64
	// Origin says where the record is, for people.
	Origin string
}

// The default bounds, in bytes.
const (
	// DefaultSortMemory is what the buffer of added entries takes.
	DefaultSortMemory = 128 << 20
	// DefaultMergeMemory is what the readers of a merge take.
	DefaultMergeMemory = 64 << 20
)

// Options configure a Spool. Zero fields stand for the defaults.
type Options struct {
	// SortMemory bounds the buffer, in bytes, beside one entry that is larger.
	SortMemory int
	// MergeMemory bounds what a merge reads into, in bytes; at least two runs
	// are merged at a time, whatever their blocks take.
	MergeMemory int
	// BlockBytes is about how long a block of a run is before compression.
	BlockBytes int
	// MaxFanIn bounds how many runs are merged at a time.
	MaxFanIn int
}

func (o Options) withDefaults() Options {
	o.SortMemory = cmp.Or(o.SortMemory, DefaultSortMemory)
	o.MergeMemory = cmp.Or(o.MergeMemory, DefaultMergeMemory)
	o.BlockBytes = cmp.Or(o.BlockBytes, 256<<10)
	o.MaxFanIn = max(cmp.Or(o.MaxFanIn, 64), 2)
	return o
}

// Spool is used by one goroutine at a time.
type Spool struct {
	o    Options
	dir  *durable.Dir
	buf  buffer
	runs []span
	// writing holds what encodes runs, made when it is needed.
	writing *blockWriter
}

// Open opens the spool in a folder at a generation; 0 is empty. Runs after it
// are removed, and so is what a crash left unfinished. A run before it that is
// not there is ErrCorrupt.
func Open(dir *durable.Dir, generation int64, o Options) (*Spool, error) {
	o = o.withDefaults()
	s := &Spool{o: o, dir: dir, buf: newBuffer(o.SortMemory)}
	if err := dir.Sweep(); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	names, err := dir.Names()
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	found := make([]span, 0, len(names))
	for _, name := range names {
		if r, ok := parseSpan(name); ok {
			found = append(found, r)
		}
	}
	if err := s.adopt(found, generation); err != nil {
		return nil, err
	}
	return s, nil
}

// adopt keeps the files that cover the runs up to the generation, the widest
// where there are several, and removes the others.
func (s *Spool) adopt(found []span, generation int64) error {
	slices.SortFunc(found, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	next := int64(0)
	for _, r := range found {
		if r.from == next && r.to <= generation {
			s.runs = append(s.runs, r)
			next = r.to
			continue
		}
		if r.from > next && r.from < generation {
			break
		}
		if err := s.dir.Remove(r.name()); err != nil {
			return fmt.Errorf("open spool: %w", err)
		}
	}
	if next != generation {
		return fmt.Errorf("%w: run %d of %d is missing in %s", ErrCorrupt, next+1, generation, s.dir.Path())
	}
	return nil
}

// Generation is the number of runs that are durable.
func (s *Spool) Generation() int64 {
	if len(s.runs) == 0 {
		return 0
	}
	return s.runs[len(s.runs)-1].to
}

// Held is how many bytes of memory the buffer takes.
func (s *Spool) Held() int { return s.buf.held() }

// Buffered is how many entries were added since the last run was written.
func (s *Spool) Buffered() int { return len(s.buf.index) }

// MaxEntryBytes is the most that an entry may take, its names included.
const MaxEntryBytes = maxBlock / 2

// Add takes an entry, of which nothing is kept. It may write a run; after an
// error the entry was not taken.
func (s *Spool) Add(e *Entry) error {
	if need := encodedBound(e); need > MaxEntryBytes {
		return fmt.Errorf("spool: an entry of %d bytes, %d are allowed", need, MaxEntryBytes)
	}
	if s.buf.full(e) {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.buf.add(e)
	return nil
}

// Checkpoint makes everything that was added durable and returns the
// generation at which to open the spool again. After an error nothing that was
// added is lost, and it can be tried again.
func (s *Spool) Checkpoint() (int64, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	return s.Generation(), nil
}

// flush writes the buffer as a run.
func (s *Spool) flush() error {
	if len(s.buf.index) == 0 {
		return nil
	}
	s.buf.sort()
	at := s.Generation()
	r, err := s.write(context.Background(), span{at, at + 1}, s.buf.entries())
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.runs = append(s.runs, r)
	s.buf.reset()
	return nil
}

// write makes one run file of records in order; it is durable on return.
func (s *Spool) write(ctx context.Context, r span, records iter.Seq2[[]byte, error]) (span, error) {
	f, err := s.dir.Create(r.name())
	if err != nil {
		return r, err
	}
	defer f.Discard()
	if s.writing == nil {
		s.writing = &blockWriter{size: s.o.BlockBytes}
	}
	if err := s.writing.begin(f); err != nil {
		return r, err
	}
	n := 0
	for rec, err := range records {
		if n++; err == nil && n%4096 == 0 {
			err = ctx.Err()
		}
		if err == nil {
			err = s.writing.add(rec)
		}
		if err != nil {
			return r, err
		}
	}
	if err := s.writing.end(); err != nil {
		return r, err
	}
	return r, f.Commit()
}

// Sorted yields the entries whose key is greater than after, all of them if
// after is empty, ascending by key, then in the order in which they were added.
// An entry is valid until the next one is asked for. It fails with ErrUnsaved
// if a checkpoint is due; its generation must have been saved. Too many runs are first merged into fewer, which
// survives a crash. The spool must not be changed meanwhile.
func (s *Spool) Sorted(ctx context.Context, after string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		if err := s.ready(ctx); err != nil {
			yield(nil, err)
			return
		}
		var e Entry
		for rec, err := range s.merged(ctx, s.runs) {
			if err == nil {
				err = e.decode(rec)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if after != "" && e.Key <= after {
				continue
			}
			if !yield(&e, nil) {
				return
			}
		}
	}
}

// ready merges runs until all that are left can be read at once.
func (s *Spool) ready(ctx context.Context) error {
	if len(s.buf.index) > 0 {
		return ErrUnsaved
	}
	for {
		width, err := s.fanIn()
		if err != nil || len(s.runs) <= width {
			return err
		}
		if err := s.mergePass(ctx, width); err != nil {
			return err
		}
	}
}

// mergePass replaces neighbouring runs by one, group by group, so that each
// run is copied at most once in a pass, and no more than needed.
func (s *Spool) mergePass(ctx context.Context, width int) error {
	excess := len(s.runs) - width
	for at := 0; excess > 0 && at+1 < len(s.runs); at++ {
		n := min(width, excess+1, len(s.runs)-at)
		if n < 2 {
			return nil
		}
		if err := s.mergeRuns(ctx, at, n); err != nil {
			return err
		}
		excess -= n - 1
	}
	return nil
}

func (s *Spool) mergeRuns(ctx context.Context, at, n int) error {
	group := slices.Clone(s.runs[at : at+n])
	wide := span{group[0].from, group[n-1].to}
	if _, err := s.write(ctx, wide, s.merged(ctx, group)); err != nil {
		return fmt.Errorf("merge the spool: %w", err)
	}
	s.runs = slices.Replace(s.runs, at, at+n, wide)
	for _, r := range group {
		if err := s.dir.Remove(r.name()); err != nil {
			return fmt.Errorf("merge the spool: %w", err)
		}
	}
	return nil
}

// Clear removes every run.
func (s *Spool) Clear() error {
	s.buf.reset()
	for _, r := range slices.Backward(s.runs) {
		if err := s.dir.Remove(r.name()); err != nil {
			return fmt.Errorf("clear the spool: %w", err)
		}
	}
	s.runs = nil
	return nil
}

// span is the runs that a file covers.
type span struct{ from, to int64 }

const extension = ".run"

func (r span) name() string { return fmt.Sprintf("%08d-%08d%s", r.from, r.to, extension) }

func parseSpan(name string) (span, bool) {
	var r span
	base, ok := strings.CutSuffix(name, extension)
	if !ok {
		return r, false
	}
	if n, err := fmt.Sscanf(base, "%d-%d", &r.from, &r.to); err != nil || n != 2 {
		return r, false
	}
	return r, r.from >= 0 && r.from < r.to && r.name() == name
}
