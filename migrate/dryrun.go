package migrate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// errSampled ends the reading of a sample.
var errSampled = errors.New("the sample is complete")

// maxFirst is how many keys and rejected records a trial shows.
const maxFirst = 10

// Trial says what a migration would do. Nothing was written to the tree.
type Trial struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Sampled says that only the first records were read.
	Sampled bool `json:"sampled"`
	Counts
	// Obstacle says why a migration would not begin as things are; empty if
	// nothing is known to be in the way.
	Obstacle string `json:"obstacle,omitempty"`
	// Entries is how many would be loaded, in about Chunks chunks.
	Entries int64 `json:"entries"`
	Chunks  int64 `json:"chunks"`
	// FirstKeys are the least keys, in order.
	FirstKeys []string `json:"firstKeys"`
	KeySizes  Sizes    `json:"keySizes"`
	KeyBars   []Bar    `json:"keyHistogram"`
	Shapes    []Shape  `json:"keyShapes"`
	// OtherShapes counts keys of shapes too many to be told apart.
	OtherShapes int64 `json:"otherShapes,omitempty"`
	ValueSizes  Sizes `json:"valueSizes"`
	// Reasons counts rejected records by kind of reason; FirstRejects are the
	// first ones.
	Reasons      map[string]int64 `json:"rejectedFor,omitempty"`
	FirstRejects []Reject         `json:"firstRejects"`
	Lossy        []LossCount      `json:"lossyConversions,omitempty"`
	// FirstDuplicate says where the first two records of one key are.
	FirstDuplicate []string `json:"firstDuplicate,omitempty"`
}

// trial is a dry run.
type trial struct {
	*migration
	out    Trial
	keys   sizes
	values sizes
	shapes shapes
}

// DryRun reads and maps the source, all of it or the first records if sample is
// positive, and says what a migration would do. It writes nothing to the tree
// and leaves nothing on the disk.
func DryRun(ctx context.Context, o Options, sample int64) (Trial, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Trial{}, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Dir), 0o700); err != nil {
		return Trial{}, err
	}
	temp, err := os.MkdirTemp(filepath.Dir(o.Dir), "lattice-dry-run-")
	if err != nil {
		return Trial{}, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	o.Dir, o.Order = temp, OrderSort
	if sample > 0 {
		o.Source = &sampled{Source: o.Source, left: sample}
	}
	t := &trial{migration: &migration{Options: o, told: map[string]bool{}}}
	defer t.close()
	err = t.run(ctx, sample > 0)
	return t.out, t.interruptedOr(ctx, err)
}

func (t *trial) run(ctx context.Context, isSample bool) (err error) {
	if t.dir, err = durable.Open(t.Dir, t.Step); err != nil {
		return err
	}
	t.st = newState(&t.Options)
	if err := t.openFiles(); err != nil {
		return err
	}
	if err := t.obstacle(ctx); err != nil {
		return err
	}
	t.gauge()
	t.Notify(Event{Kind: EventPhase, Text: string(PhaseRead)})
	err = t.read(ctx)
	if errors.Is(err, errSampled) {
		t.out.Sampled = true
		err = nil
	}
	if err == nil {
		t.st.Phase = PhaseCheck
		t.gauge()
		t.Notify(Event{Kind: EventPhase, Text: string(PhaseCheck)})
		err = t.measure(ctx)
	}
	if err == nil {
		err = t.save()
	}
	if err == nil {
		err = t.summary()
	}
	return err
}

// obstacle looks whether the tree can be filled.
func (t *trial) obstacle(ctx context.Context) error {
	err := t.checkEmpty(ctx)
	if errors.Is(err, ErrNotEmpty) || errors.Is(err, ErrNoTree) {
		t.out.Obstacle = err.Error()
		return nil
	}
	return err
}

// measure looks at every entry in order.
func (t *trial) measure(ctx context.Context) error {
	b := &t.out
	chunk := newBuilder(&t.Options)
	drop := func(kept, other *spool.Entry, isConflict bool) error {
		if b.FirstDuplicate == nil {
			b.FirstDuplicate = []string{kept.Origin, other.Origin}
		}
		if isConflict {
			return t.reject(conflict(other, kept.Origin))
		}
		t.st.Counts.Duplicates++
		return nil
	}
	for e, err := range t.sorted(ctx, "", drop) {
		if err != nil {
			return err
		}
		t.Stats.Done.Add(1)
		if b.Entries++; e.Expiry != 0 {
			t.st.Counts.Expiring++
		}
		if len(b.FirstKeys) < maxFirst {
			b.FirstKeys = append(b.FirstKeys, e.Key)
		}
		t.keys.add(int64(len(e.Key)))
		t.values.add(int64(len(e.Value)))
		t.shapes.add(e.Key)
		if chunk.full(e) {
			chunk.w.Reset()
			b.Chunks++
		}
		if err := chunk.add(e); err != nil {
			return err
		}
	}
	if chunk.w.Entries() > 0 {
		b.Chunks++
	}
	return nil
}

func (t *trial) summary() error {
	b := &t.out
	b.Source, b.Target, b.Counts = t.st.Source, t.st.Target, t.st.Counts
	b.KeySizes, b.KeyBars, b.ValueSizes = t.keys.summary(), t.keys.histogram(), t.values.summary()
	b.Shapes, b.OtherShapes = t.shapes.top(maxFirst), t.shapes.other
	b.Reasons, b.Lossy = t.st.Reasons, t.st.Lossy
	b.FirstRejects = []Reject{}
	return journal.Lines(t.dir, rejectName, t.st.RejectBytes, func(line []byte) (bool, error) {
		r, err := parseReject(line)
		b.FirstRejects = append(b.FirstRejects, r)
		return len(b.FirstRejects) < maxFirst, err
	})
}

// sampled ends after some records.
type sampled struct {
	source.Source
	left int64
}

// Read implements source.Source.
func (s *sampled) Read(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		for p, err := range s.Source.Read(ctx, from) {
			if err == nil && int64(len(p.Records)) >= s.left {
				whole := int64(len(p.Records)) == s.left && p.Next == nil
				p.Records = p.Records[:s.left]
				if s.left = 0; !yield(p, nil) || whole {
					return
				}
				yield(source.Page{}, errSampled)
				return
			}
			s.left -= int64(len(p.Records))
			if !yield(p, err) {
				return
			}
		}
	}
}

// maxPassed is about how many rejected records FirstKeys passes over.
const maxPassed = 10_000

// FirstKeys maps the first records of a source until it has n keys, and returns
// them in order. Records that would be rejected are passed over.
func FirstKeys(ctx context.Context, o Options, n int) ([]string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	mapper, err := o.Mapper(newState(&o).Started)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	seen := 0
	for p, err := range o.Source.Read(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("read the source: %w", err)
		}
		for i := range p.Records {
			var e spool.Entry
			if len(keys) < n && mapper.Map(&p.Records[i], &e) == nil {
				keys = append(keys, e.Key)
			}
		}
		if seen += len(p.Records) + len(p.Faults); len(keys) == n || seen >= n+maxPassed {
			break
		}
	}
	slices.Sort(keys)
	return keys, nil
}
