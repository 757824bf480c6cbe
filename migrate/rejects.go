package migrate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/source"
)

// Reject is a line of the reject file.
type Reject struct {
	// Origin says where the record is, Key what its key is, if it has one.
	Origin string `json:"origin"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

// maxKinds bounds how many kinds of reasons are counted apart.
const maxKinds = 200

// maxRejectKey is the longest key that the reject file tells.
const maxRejectKey = 64 << 10

// otherKinds is the kind of reasons beyond maxKinds.
const otherKinds = "other reasons"

// reject accounts for a record that is not loaded.
func (m *migration) reject(f source.Fault) error {
	m.st.Counts.Rejected++
	kind := kindOf(f.Reason)
	if _, known := m.st.Reasons[kind]; !known && len(m.st.Reasons) >= maxKinds {
		kind = otherKinds
	}
	m.st.Reasons[kind]++
	if !m.told[kind] {
		m.told[kind] = true
		m.Notify(Event{Kind: EventReject, Text: fmt.Sprintf("rejected: %s: %s", source.Short(f.Origin), f.Reason), Fault: &f})
	}
	if len(f.Key) > maxRejectKey {
		f.Key = ""
	}
	if err := m.rejects.Line(Reject{f.Origin, f.Key, f.Reason}); err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	return nil
}

// kindOf is a reason with its numbers left out, so that reasons that differ in
// sizes alone are one kind.
func kindOf(reason string) string {
	var b strings.Builder
	digit := false
	for _, r := range reason {
		if r >= '0' && r <= '9' {
			if !digit {
				b.WriteByte('N')
			}
			digit = true
			continue
		}
		digit = false
		b.WriteRune(r)
	}
	return b.String()
}

func parseReject(line []byte) (Reject, error) {
	var r Reject
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("%s is damaged: %w", rejectName, err)
	}
	return r, nil
}

// forgetRejects empties the reject file.
func (m *migration) forgetRejects() (err error) {
	if err := m.rejects.Close(); err != nil {
		return err
	}
	m.rejects, err = journal.Open(m.dir, rejectName, 0)
	return err
}

// tooMany refuses to go on when more was rejected than is allowed.
func (m *migration) tooMany() error {
	n := m.st.Counts.Rejected
	if m.MaxRejects < 0 || n <= m.MaxRejects {
		return nil
	}
	loaded := "Nothing was loaded"
	if m.st.Counts.Loaded > 0 {
		loaded = fmt.Sprintf("%d entries were loaded before", m.st.Counts.Loaded)
	}
	return fmt.Errorf("%w: %d, and %d are allowed; they are listed in %s. %s: mend the source and run with --restart, or go on without these records with --max-rejects=-1",
		ErrTooManyRejects, n, m.MaxRejects, m.dir.Join(rejectName), loaded)
}
