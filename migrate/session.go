package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/client"
)

// lost reports whether the service does not know a load.
func lost(err error) bool {
	return errors.Is(err, client.ErrOperationNotFound) || errors.Is(err, client.ErrTreeNotFound) || errors.Is(err, client.ErrTreeDeleted)
}

// enter opens the session, or finds where it stands.
func (m *migration) enter(ctx context.Context) (client.BulkState, error) {
	var at client.BulkState
	err := m.patiently(ctx, func() (err error) {
		at, err = m.Target.BulkLoadState(ctx, m.st.Session)
		return err
	})
	if lost(err) && !m.st.Begun {
		err = m.patiently(ctx, func() (err error) {
			at, _, err = m.Target.BeginBulkLoad(ctx, m.st.Session)
			return err
		})
	}
	switch {
	case errors.Is(err, client.ErrTreeDeleted):
		return at, m.deleted(resuming)
	case errors.Is(err, client.ErrTreeNotFound) && !m.st.Begun:
		return at, m.missing()
	case lost(err):
		return at, m.sessionLost("it does not know it any more; the tree was probably deleted")
	case errors.Is(err, client.ErrTreeNotEmpty):
		return at, m.notEmpty("holds keys, or traces of deleted ones")
	case errors.Is(err, client.ErrOperationInProgress):
		return at, fmt.Errorf("tree %s is being loaded by somebody else: %w; wait until that load is committed or aborted, and run the same command again", m.Tree, err)
	case err != nil:
		return at, fmt.Errorf("open the load of tree %s: %w", m.Tree, err)
	}
	if at.Status == client.BulkAborted {
		return at, m.sessionLost("it was aborted")
	}
	if !m.st.Begun {
		if err := m.remember(ctx); err != nil {
			return at, err
		}
		m.st.Begun = true
		if err := m.save(); err != nil {
			return at, err
		}
	}
	return at, m.agree(at)
}

func (m *migration) sessionLost(why string) error {
	return fmt.Errorf("%w %s of tree %s: %s. What is left of it cannot be completed: empty the tree with \"lattice trees delete %s\" and \"lattice trees purge %s\", if it still exists, and run the same command with --restart",
		ErrSessionLost, m.st.Session, m.Tree, why, m.Tree, m.Tree)
}

// agree compares where the service stands with what this side knows: all
// chunks before the pending ones are acknowledged, and none after.
func (m *migration) agree(at client.BulkState) error {
	first, next := m.st.Chunks, m.st.Chunks
	if len(m.st.Pending) > 0 {
		first = m.st.Pending[0].Index
	}
	if at.NextChunk < first || at.NextChunk > next {
		return m.sessionLost(fmt.Sprintf("it expects chunk %d, and this folder knows of chunks %d to %d", at.NextChunk, first, next))
	}
	if at.Status == client.BulkCommitted && at.NextChunk != next {
		return m.sessionLost("it was committed before all was sent")
	}
	return nil
}

// settle sends what is pending, from the chunk that the service expects.
func (m *migration) settle(ctx context.Context, next int64) error {
	for len(m.st.Pending) > 0 {
		p := m.st.Pending[0]
		if p.Index >= next {
			if err := m.send(ctx, p); err != nil {
				return err
			}
		}
		m.st.Counts.Loaded += p.Entries
		m.st.Pending = m.st.Pending[1:]
		m.Stats.Loaded.Store(m.st.Counts.Loaded)
		if m.Order == OrderSort {
			m.Stats.Done.Store(m.st.Counts.Loaded)
		}
		if err := m.dir.Remove(chunkName(p.Index)); err != nil {
			return err
		}
	}
	return nil
}

// send sends one chunk until it is acknowledged.
func (m *migration) send(ctx context.Context, p parcel) error {
	body, err := m.body(p)
	if err != nil {
		return err
	}
	var ack client.BulkAck
	err = m.patiently(ctx, func() (err error) {
		ack, err = m.Target.AppendBulkLoad(ctx, m.st.Session, p.Index, body, client.BulkOptions{})
		return err
	})
	switch {
	case errors.Is(err, client.ErrTreeDeleted):
		return m.deleted(resuming)
	case lost(err):
		return m.sessionLost("it does not know it any more; the tree was probably deleted")
	case errors.Is(err, client.ErrRequestTooLarge):
		return m.tooLarge(p, err)
	case err != nil:
		return fmt.Errorf("load chunk %d: %w", p.Index, err)
	case ack.Accepted != p.Entries:
		return fmt.Errorf("%w: chunk %d has %d entries and the service accepted %d", ErrUnbalanced, p.Index, p.Entries, ack.Accepted)
	}
	if m.st.OverLimit == 0 && ack.FirstOverLimit != nil {
		f := ack.FirstOverLimit
		m.note("the %s of %q has %d bytes, over the limit of %d for ordinary writes; it is loaded all the same", f.What, f.Key, f.Size, f.Limit)
	}
	m.st.OverLimit += ack.OverLimit
	return nil
}

// tooLarge says that the service takes smaller chunks only.
func (m *migration) tooLarge(p parcel, err error) error {
	if p.Entries == 1 {
		return fmt.Errorf("chunk %d, a single entry, is larger than the service takes: %w; reject such values with --max-value-bytes and --restart", p.Index, err)
	}
	return fmt.Errorf("chunk %d of %d bytes is larger than the service takes: %w; raise the service's MaxBulkChunkBytes, or run with a smaller --chunk-bytes and --restart", p.Index, p.Bytes, err)
}

// commit ends the session.
func (m *migration) commit(ctx context.Context) error {
	var at client.BulkState
	err := m.patiently(ctx, func() (err error) {
		at, err = m.Target.CommitBulkLoad(ctx, m.st.Session)
		return err
	})
	if errors.Is(err, client.ErrTreeDeleted) {
		return m.deleted(resuming)
	}
	if lost(err) {
		return m.sessionLost("it does not know it any more; the tree was probably deleted")
	}
	if err != nil {
		return fmt.Errorf("commit the load: %w", err)
	}
	if at.NextChunk != m.st.Chunks || at.Accepted != m.st.Counts.Loaded {
		return fmt.Errorf("%w: %d entries in %d chunks were sent, and the service counts %d in %d", ErrUnbalanced, m.st.Counts.Loaded, m.st.Chunks, at.Accepted, at.NextChunk)
	}
	m.st.LiveKeys, m.st.OverLimit = at.TotalLiveKeys, at.OverLimit
	m.st.Committed, m.st.Phase = true, PhaseVerify
	return nil
}
