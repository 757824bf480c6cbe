package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/client"
)

// checkEmpty refuses a tree with keys, or with traces of deleted ones, before
// hours are spent on reading.
func (m *migration) checkEmpty(ctx context.Context) error {
	var n client.Count
	err := m.patiently(ctx, func() (err error) {
		n, err = m.Target.Count(ctx, client.Range{}, client.CountOptions{})
		return err
	})
	switch {
	case errors.Is(err, client.ErrTreeNotFound):
		return nil
	case errors.Is(err, client.ErrTreeDeleted):
		return m.deleted("")
	case err != nil:
		return fmt.Errorf("look at tree %s: %w", m.Tree, err)
	case n.Total > 0:
		return m.notEmpty("has " + counted(n.Total, "key"))
	}
	return m.checkTraces(ctx)
}

// checkTraces refuses a tree without keys that remembers some. Who may not ask
// for that is told when the load begins.
func (m *migration) checkTraces(ctx context.Context) error {
	var d client.Diagnostics
	err := m.patiently(ctx, func() (err error) {
		d, err = m.Target.Diagnostics(ctx, true)
		return err
	})
	switch {
	case errors.Is(err, ErrInterrupted) || errors.Is(err, ErrPatience):
		return err
	case err == nil && d.Totals.Tombstones > 0:
		return m.notEmpty("holds " + counted(d.Totals.Tombstones, "trace") + " of deleted keys")
	case err == nil && d.Totals.Expired > 0:
		return m.notEmpty("holds " + counted(d.Totals.Expired, "key") + " that has expired and is still stored")
	}
	return nil
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (m *migration) notEmpty(why string) error {
	return fmt.Errorf("%w: a migration fills an empty tree, and %s %s; choose another tree, or remove it with \"lattice trees delete %s\" and \"lattice trees purge %s\"",
		ErrNotEmpty, m.Tree, why, m.Tree, m.Tree)
}

// deleted says how to get a soft-deleted tree back.
func (m *migration) deleted(then string) error {
	if then == "" {
		then = fmt.Sprintf(", or remove it for good with \"lattice trees purge %s\"", m.Tree)
	}
	return fmt.Errorf("%w: %s was deleted and can still be had back; bring it back with \"lattice trees recover %s\"%s", ErrNoTree, m.Tree, m.Tree, then)
}

// resuming ends the advice of deleted where the migration can go on afterwards.
const resuming = ", and run the same command again"

// missing says how to make a tree that the service does not make.
func (m *migration) missing() error {
	return fmt.Errorf("%w: there is no tree %s, and the service makes none by itself; make it with \"lattice trees create %s\", and run the same command again", ErrNoTree, m.Tree, m.Tree)
}

// remember notes which tree is loaded.
func (m *migration) remember(ctx context.Context) error {
	if !m.st.TreeCreated.IsZero() {
		return nil
	}
	info, err := m.info(ctx)
	if err == nil {
		m.st.TreeCreated = info.Created
	}
	return err
}

func (m *migration) info(ctx context.Context) (info client.TreeInfo, err error) {
	err = m.patiently(ctx, func() (err error) {
		info, err = m.Target.Info(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("look at tree %s: %w", m.Tree, err)
	}
	return info, err
}

// CheckTree refuses a tree that is not the one that was loaded: that one was
// made at a moment, zero if nobody knows it. info and err are what the service
// says of the tree, name is how it is called.
func CheckTree(name string, made time.Time, info *client.TreeInfo, err error) error {
	const again = "to migrate anew, run \"lattice migrate\" with --restart in place of --since, or choose another folder with --state"
	switch {
	case errors.Is(err, client.ErrTreeNotFound) || err == nil && info.State == "purging":
		return fmt.Errorf("%w: tree %s was deleted for good since it was loaded; %s", ErrNoTree, name, again)
	case errors.Is(err, client.ErrTreeDeleted) || err == nil && info.State != "active":
		return fmt.Errorf("%w: tree %s was deleted since it was loaded; bring it back with \"lattice trees recover %s\", and run the same command again", ErrNoTree, name, name)
	case err != nil:
		return fmt.Errorf("look at tree %s: %w", name, err)
	case !made.IsZero() && !info.Created.Equal(made):
		return fmt.Errorf("%w: tree %s was made on %s, and the one that was loaded on %s; %s",
			ErrOtherTree, name, info.Created.UTC().Format(time.DateTime), made.UTC().Format(time.DateTime), again)
	}
	return nil
}

// countTree counts the keys of the tree as it is now.
func (m *migration) countTree(ctx context.Context) error {
	err := m.patiently(ctx, func() error {
		n, err := m.Target.Count(ctx, client.Range{}, client.CountOptions{})
		if err == nil {
			m.st.LiveKeys = n.Total
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("count the keys of tree %s: %w", m.Tree, err)
	}
	return nil
}

// lookAgain looks at the tree of a migration that an earlier run has completed.
func (m *migration) lookAgain(ctx context.Context) error {
	m.earlier = true
	info, err := m.info(ctx)
	if errors.Is(err, ErrInterrupted) || errors.Is(err, ErrPatience) {
		return err
	}
	if err := CheckTree(m.Tree, m.st.TreeCreated, &info, err); err != nil {
		return err
	}
	if err := m.countTree(ctx); err != nil {
		return err
	}
	c := &m.st.Counts
	stay := c.Loaded - c.Expiring
	switch live := m.st.LiveKeys; {
	case live == 0 && stay > 0:
		return fmt.Errorf("%w: %d entries were loaded, and the tree has no keys at all any more: somebody has deleted them; \"lattice migrate\" with --since state writes again what the source has", ErrDiffers, c.Loaded)
	case live < stay:
		m.note("the tree has %d keys, at least %d fewer than were loaded: a delta pass, or somebody else, has deleted them since; \"lattice verify\" compares it with the source", live, stay-live)
	case live > c.Loaded:
		m.note("the tree has %d keys, %d more than were loaded: a delta pass, or somebody else, has written to it since", live, live-c.Loaded)
	}
	return nil
}
