package migrate

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cespare/xxhash/v2"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// dropped is told of an entry that gives way to another one of its key.
// Conflict says that they are two records, of which the first stays.
type dropped func(kept, other *spool.Entry, conflict bool) error

// unique yields one entry for each key of a sorted sequence. Of two records of
// one key the first one stays, be they alike or not. If rereads is set, two of
// one origin are one record that was read twice, and the later reading counts.
// An entry is valid until the next.
func unique(entries iter.Seq2[*spool.Entry, error], rereads bool, drop dropped) iter.Seq2[*spool.Entry, error] {
	return func(yield func(*spool.Entry, error) bool) {
		var kept holder
		for e, err := range entries {
			switch {
			case err != nil:
				yield(nil, err)
				return
			case !kept.full:
				kept.hold(e)
				continue
			case kept.Key == e.Key:
				if err := kept.meet(e, rereads, drop); err != nil {
					yield(nil, err)
					return
				}
				continue
			}
			if !yield(&kept.Entry, nil) {
				return
			}
			kept.hold(e)
		}
		if kept.full {
			yield(&kept.Entry, nil)
		}
	}
}

// holder keeps a copy of an entry.
type holder struct {
	spool.Entry
	full bool
	buf  []byte
}

func (h *holder) hold(e *spool.Entry) {
	h.buf = append(h.buf[:0], e.Value...)
	h.Entry, h.full = *e, true
	h.Value = h.buf
}

// meet decides between the entry that is held and another one of its key.
func (h *holder) meet(e *spool.Entry, rereads bool, drop dropped) error {
	if rereads && h.Origin == e.Origin {
		old := h.Entry
		if drop != nil {
			if err := drop(e, &old, false); err != nil {
				return err
			}
		}
		h.hold(e)
		return nil
	}
	if drop == nil {
		return nil
	}
	alike := bytes.Equal(h.Value, e.Value) && h.Type == e.Type && h.Expiry == e.Expiry
	return drop(&h.Entry, e, !alike)
}

// contentDigest tells entries of one key apart.
func contentDigest(e *spool.Entry) uint64 {
	d := xxhash.New()
	var n [16]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(e.Type)))
	binary.LittleEndian.PutUint64(n[8:], uint64(e.Expiry))
	_, _ = d.Write(n[:])
	_, _ = d.WriteString(e.Type)
	_, _ = d.Write(e.Value)
	return d.Sum64()
}

// sorted yields the entries of the spool behind a key, one for each key.
func (m *migration) sorted(ctx context.Context, after string, drop dropped) iter.Seq2[*spool.Entry, error] {
	// Where all pages come from one moment, and reading was not begun anew, no
	// record comes twice: two of one origin are two records.
	rereads := !m.st.Consistent || m.st.Restarts > 0
	return unique(m.spool.Sorted(ctx, after), rereads, drop)
}

// conflict is the fault of a record whose key another one has.
func conflict(e *spool.Entry, other string) source.Fault {
	return source.Fault{Origin: e.Origin, Key: e.Key, Reason: fmt.Sprintf("its key is that of %s, which holds something else", other)}
}

// duplicate accounts for a record that came twice, and tells of the first one.
func (m *migration) duplicate(key, kept, other string) {
	m.st.Counts.Duplicates++
	if m.toldTwice {
		return
	}
	m.toldTwice = true
	if kept == other {
		m.note("seen twice: %s was read again, with key %q; the later reading counts, and others like it are only counted", other, key)
		return
	}
	m.note("seen twice: %s holds what %s does, with key %q; it is dropped, and others like it are only counted", other, kept, key)
}

// check finds what comes twice and counts what is left, before anything is
// loaded.
func (m *migration) check(ctx context.Context) error {
	before := m.st.Counts
	if err := m.recount(ctx); err != nil {
		m.st.Counts = before
		return m.interruptedOr(ctx, err)
	}
	m.st.Phase = PhaseLoad
	return nil
}

func (m *migration) recount(ctx context.Context) error {
	c := &m.st.Counts
	left := int64(0)
	drop := func(kept, other *spool.Entry, isConflict bool) error {
		m.Stats.Done.Add(1)
		if isConflict {
			return m.reject(conflict(other, kept.Origin))
		}
		m.duplicate(other.Key, kept.Origin, other.Origin)
		return nil
	}
	for e, err := range m.sorted(ctx, "", drop) {
		if err != nil {
			return fmt.Errorf("sort: %w", err)
		}
		if left++; e.Expiry != 0 {
			c.Expiring++
		}
		m.Stats.Done.Add(1)
	}
	if left+c.Duplicates+c.Rejected+c.Expired != c.Read {
		return fmt.Errorf("%w: %d records were read, %d of them rejected, %d duplicates, %d expired, and %d are left",
			ErrUnbalanced, c.Read, c.Rejected, c.Duplicates, c.Expired, left)
	}
	return nil
}

// left is how many entries are to be loaded in all.
func (c *Counts) left() int64 { return c.Read - c.Rejected - c.Duplicates - c.Expired }
