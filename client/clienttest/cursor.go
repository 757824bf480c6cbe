package clienttest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The lives of cursors that are not used, and how many snapshots a tree may have
// open, as in a service with default settings.
const (
	CursorIdleTTL     = 48 * time.Hour
	SnapshotCursorTTL = 6 * time.Hour
	MaxSnapshots      = 64
)

// cursor is a bookmark.
type cursor struct {
	kind    string
	bounds  bounds
	reverse bool
	// entries are those of a snapshot, nil for a live cursor.
	entries map[string]entry
	// page is the last page, which holds the keys after prev up to last.
	page       int64
	prev, last string
	more       bool
	deleted    int
	ttl        time.Duration
	expires    time.Time
}

// cursorCall serves what lies under cursors.
func (s *Server) cursorCall(w http.ResponseWriter, r *http.Request, name, rest string) *refusal {
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	id, step, _ := strings.Cut(rest, "/")
	if id == "" && r.Method == http.MethodPost {
		return s.openCursor(w, r, t)
	}
	c := t.cursors[id]
	late := c != nil && !s.now().Before(c.expires)
	switch {
	case late && c.entries != nil:
		return refuse(410, "snapshot_expired", "the snapshot of the cursor is not kept any more")
	case c == nil || late:
		return refuse(404, "cursor_not_found", "no cursor %q", id)
	case r.Method == http.MethodPost && step == "next":
		return s.nextPage(w, r, t, c)
	case r.Method == http.MethodDelete && step == "":
		delete(t.cursors, id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return refuse(404, "route_not_found", "no such resource")
}

func (s *Server) openCursor(w http.ResponseWriter, r *http.Request, t *tree) *refusal {
	var in struct {
		Kind               string
		Snapshot, Reverse  bool
		Start, End, Prefix string
	}
	if f := decode(r, &in); f != nil {
		return f
	}
	if !slices.Contains([]string{"keys", "entries", "delete-range"}, in.Kind) {
		return refuse(400, "invalid_argument", "kind: must be keys, entries or delete-range")
	}
	if in.Kind == "delete-range" && (in.Snapshot || in.Reverse) {
		return refuse(400, "invalid_argument", "a delete-range has no snapshot and no reverse")
	}
	if in.Prefix != "" && (in.Start != "" || in.End != "") {
		return refuse(400, "invalid_argument", "prefix: excludes start and end")
	}
	c := &cursor{kind: in.Kind, bounds: bounds{in.Start, in.End, in.Prefix}, reverse: in.Reverse, more: true, ttl: CursorIdleTTL}
	s.clock++
	id, out := fmt.Sprintf("%032x", s.clock), map[string]any{}
	if in.Snapshot {
		if t.snapshots(s.now()) >= MaxSnapshots {
			return refuse(429, "quota_exceeded", "%d snapshots are open", MaxSnapshots)
		}
		c.entries, c.ttl, out["snapshotVersion"] = maps.Clone(t.entries), SnapshotCursorTTL, s.version()
	}
	c.expires = s.now().Add(c.ttl)
	if t.cursors == nil {
		t.cursors = map[string]*cursor{}
	}
	t.cursors[id] = c
	out["cursorId"], out["expiresAt"] = id, c.expires.UTC()
	answer(w, http.StatusCreated, out)
	return nil
}

// snapshots counts those that are open.
func (t *tree) snapshots(now time.Time) (n int) {
	for _, c := range t.cursors {
		if c.entries != nil && now.Before(c.expires) {
			n++
		}
	}
	return n
}

// Cursors returns how many cursors of a tree are open.
func (s *Server) Cursors(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trees[name]; t != nil {
		return len(t.cursors)
	}
	return 0
}

func (s *Server) nextPage(w http.ResponseWriter, r *http.Request, t *tree, c *cursor) *refusal {
	in := struct {
		Limit int
		Page  *int64
	}{Limit: defaultPage}
	if r.ContentLength != 0 {
		if f := decode(r, &in); f != nil {
			return f
		}
	}
	if in.Limit < 1 || in.Limit > maxPage {
		return refuse(400, "invalid_argument", "limit: 1 to %d", maxPage)
	}
	if in.Page != nil && (*in.Page < 1 || *in.Page != c.page && *in.Page != c.page+1) {
		return refuse(400, "invalid_argument", "page: page %d is next, and page %d can be had again", c.page+1, c.page)
	}
	if in.Page == nil || *in.Page == c.page+1 {
		s.advance(t, c, in.Limit)
	}
	c.expires = s.now().Add(c.ttl)
	out := map[string]any{"page": c.page, "hasMore": c.more, "expiresAt": c.expires.UTC()}
	if c.kind == "delete-range" {
		out["deleted"] = c.deleted
	} else {
		out["entries"] = s.pageOf(t, c)
	}
	answer(w, http.StatusOK, out)
	return nil
}

// advance moves the bookmark on by up to limit entries.
func (s *Server) advance(t *tree, c *cursor, limit int) {
	keys := s.keysAfter(t, c, c.last)
	c.page, c.prev, c.more, c.deleted = c.page+1, c.last, len(keys) > limit, 0
	keys = keys[:min(limit, len(keys))]
	if len(keys) > 0 {
		c.last = keys[len(keys)-1]
	}
	if c.kind == "delete-range" {
		for _, k := range keys {
			t.remove(k)
		}
		c.deleted = len(keys)
	}
}

// pageOf returns the entries of the present page, as they are now.
func (s *Server) pageOf(t *tree, c *cursor) []wire {
	entries := []wire{}
	for _, k := range s.keysAfter(t, c, c.prev) {
		if c.prev == c.last || c.past(k, c.last) {
			break
		}
		e := t.entries[k]
		if c.entries != nil {
			e = c.entries[k]
		}
		entries = append(entries, e.wire(k, c.kind == "keys"))
	}
	return entries
}

// keysAfter returns the keys of the cursor that come after one; all if it is
// empty.
func (s *Server) keysAfter(t *tree, c *cursor, after string) []string {
	from := t
	if c.entries != nil {
		from = &tree{entries: c.entries}
	}
	keys := s.keys(from, c.bounds)
	if c.reverse {
		slices.Reverse(keys)
	}
	for i, k := range keys {
		if after == "" || c.past(k, after) {
			return keys[i:]
		}
	}
	return nil
}

// past reports whether a key comes after another in the order of the cursor.
func (c *cursor) past(key, other string) bool {
	if c.reverse {
		return key < other
	}
	return key > other
}
