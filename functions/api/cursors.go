package api

import (
	"net/http"
	"net/url"

	"github.com/gorilla/mux"

	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
)

// cursorBody answers the opening of a cursor.
type cursorBody struct {
	CursorID  string `json:"cursorId"`
	ExpiresAt string `json:"expiresAt"`
	// SnapshotVersion is the moment that a snapshot shows: it has the entries
	// whose versions are not above it.
	SnapshotVersion string `json:"snapshotVersion,omitempty"`
}

// openCursor answers POST …/cursors.
func (s *Server) openCursor(w http.ResponseWriter, r *request) error {
	body, err := s.readBody(w, r, s.jsonLimit())
	if err != nil {
		return err
	}
	q, err := s.parseCursor(body)
	if err != nil {
		return err
	}
	if err := r.checkCursor(q.Kind); err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	info, err := t.OpenCursor(r.Context(), q)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusCreated, cursorBody{info.ID, formatTime(info.Expires), info.Snapshot})
}

// parseCursor reads the body that describes a cursor.
func (s *Server) parseCursor(body []byte) (tree.CursorQuery, error) {
	var q tree.CursorQuery
	bounds := map[string]string{}
	err := parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (known bool, err error) {
			switch name {
			case "kind":
				var kind string
				kind, err = p.text(name)
				q.Kind = tree.CursorKind(kind)
			case "snapshot":
				q.Snapshot, err = p.boolean(name)
			case "reverse":
				q.Reverse, err = p.boolean(name)
			case "start", "end", "prefix":
				if bounds[name], err = p.text(name); err == nil {
					err = s.checkBound(bounds[name])
				}
			default:
				return false, nil
			}
			return true, err
		})
	})
	if err != nil {
		return tree.CursorQuery{}, err
	}
	q.Bounds, _, err = parseBounds(bounds)
	return q, err
}

// checkBound refuses a bound that is longer than a key and the byte which makes
// it the successor of one: it would have to be kept.
func (s *Server) checkBound(bound string) error {
	if limit := s.opts.MaxKeyLength; len(bound) > limit+1 {
		return &tree.LimitError{What: "key", Key: clip(bound, limit), Size: int64(len(bound)), Limit: int64(limit)}
	}
	return nil
}

// nextPage answers POST …/cursors/{cursorId}/next.
func (s *Server) nextPage(w http.ResponseWriter, r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	id, err := r.cursorID()
	if err != nil {
		return err
	}
	// A page that was asked for by number and is lost on the way would be skipped.
	body, err := s.readContent(w, r, s.jsonLimit())
	if err != nil {
		return err
	}
	limit, page, err := s.parseNext(body)
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	if r.mayNot(auth.RoleWriter) {
		// The kind of a cursor never changes; a page of a delete-range deletes.
		kind, err := t.CursorKind(r.Context(), id)
		if err != nil {
			return err
		}
		if err := r.checkCursor(kind); err != nil {
			return err
		}
	}
	p, err := t.NextPage(s.reading(r.Context(), r), id, tree.PageQuery{Page: page, Limit: limit, Accept: s.acceptPage(r, f)})
	if err != nil {
		return err
	}
	out := cursorPage(&p, f)
	return writeBody(w, r, http.StatusOK, jsonType, out.render(out.size()))
}

// acceptPage refuses a page of a cursor for which there is no room while the cursor
// has not moved: later, a caller that asks without a number could not have it again.
func (s *Server) acceptPage(r *request, f form) func([]tree.Item) error {
	held := int64(0)
	return func(items []tree.Item) error {
		s.giveBack(r, held) // the page before was overtaken
		size := entriesPage(items, f, false, "").size() + pageOverheadBytes
		before := r.held.Load()
		err := s.holdPage(r, size)
		held = r.held.Load() - before
		return err
	}
}

// pageOverheadBytes is more than what surrounds the entries of a cursor's page.
const pageOverheadBytes = 256

// parseNext reads which page is wanted: 0 is the next one. The body may be
// left out.
func (s *Server) parseNext(body []byte) (limit int, page int64, err error) {
	limit = s.opts.DefaultPageEntries
	if len(body) == 0 {
		return limit, 0, nil
	}
	err = parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (known bool, err error) {
			switch name {
			case "limit":
				if limit, err = p.count(name); err == nil && (limit < 1 || limit > s.opts.MaxPageEntries) {
					f := failf(CodeInvalidArgument, "limit: must be 1 to %d", s.opts.MaxPageEntries)
					f.Limit, err = int64(s.opts.MaxPageEntries), f
				}
			case "page":
				var n int
				if n, err = p.count(name); err == nil && n < 1 {
					err = argument(name, "pages are counted from 1")
				}
				page = int64(n)
			default:
				return false, nil
			}
			return true, err
		})
	})
	return limit, page, err
}

// closeCursor answers DELETE …/cursors/{cursorId}.
func (s *Server) closeCursor(w http.ResponseWriter, r *request) error {
	id, err := r.cursorID()
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	if err := t.CloseCursor(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// cursorID reads the cursor of the path. What it looks like is for the tree to
// know: any other is a cursor that does not exist.
func (r *request) cursorID() (string, error) {
	id, err := url.PathUnescape(mux.Vars(r.Request)["cursorId"])
	if err != nil {
		return "", argument("cursorId", "not percent-encoded")
	}
	return id, nil
}
