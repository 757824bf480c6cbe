package api

import (
	"net/http"

	"github.com/latticekv/lattice/core/tree"
)

// listEntries answers GET …/entries: a page, or the whole range as a stream.
func (s *Server) listEntries(w http.ResponseWriter, r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	q, err := s.scanQuery(r)
	if err != nil {
		return err
	}
	if prefersStream(r.Header.Values("Accept")) {
		return s.streamEntries(w, r, q, f)
	}
	ctx, cancel := s.withTimeout(r)
	defer cancel()
	t, err := s.db.open(ctx, r.tree)
	if err != nil {
		return err
	}
	page, err := t.Scan(s.reading(ctx, r), q)
	if err != nil {
		return err
	}
	return s.writePage(w, r, entriesPage(page.Items, f, q.KeysOnly, page.NextToken))
}

func (s *Server) scanQuery(r *request) (q tree.ScanQuery, err error) {
	if q.Bounds, _, err = r.bounds(); err != nil {
		return q, err
	}
	if q.Reverse, err = r.flag("reverse"); err != nil {
		return q, err
	}
	if q.KeysOnly, err = r.flag("keysOnly"); err != nil {
		return q, err
	}
	if q.Limit, err = r.limit(s.opts.DefaultPageEntries, s.opts.MaxPageEntries); err != nil {
		return q, err
	}
	if q.Read, err = r.readOptions(); err != nil {
		return q, err
	}
	q.Token = r.query["pageToken"]
	q.MaxBytes = s.opts.MaxPageBytes
	return q, nil
}

type deletedBody struct {
	Deleted int64 `json:"deleted"`
}

// deleteEntries answers DELETE …/entries.
func (s *Server) deleteEntries(w http.ResponseWriter, r *request) error {
	b, bounded, err := r.bounds()
	if err != nil {
		return err
	}
	all, err := r.flag("all")
	if err != nil {
		return err
	}
	switch {
	case all && bounded:
		return argument("all", "cannot be combined with start, end or prefix")
	case !all && !bounded:
		return argument("all", "a range without bounds is deleted only with all=true")
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	n, err := t.DeleteRange(r.Context(), b)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, deletedBody{n})
}

type countBody struct {
	Count      int64            `json:"count"`
	MapVersion uint64           `json:"mapVersion"`
	Shards     []shardCountBody `json:"shards,omitempty"`
}

type shardCountBody struct {
	Shard uint32 `json:"shard"`
	Count int64  `json:"count"`
}

// count answers GET …/count.
func (s *Server) count(w http.ResponseWriter, r *request) error {
	b, _, err := r.bounds()
	if err != nil {
		return err
	}
	perShard, err := r.flag("perShard")
	if err != nil {
		return err
	}
	read, err := r.readOptions()
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	c, err := t.Count(r.Context(), b, read)
	if err != nil {
		return err
	}
	body := countBody{Count: c.Total, MapVersion: c.MapVersion}
	if perShard {
		for _, sc := range c.PerShard {
			body.Shards = append(body.Shards, shardCountBody{uint32(sc.Shard), sc.Count})
		}
	}
	return writeJSON(w, r, http.StatusOK, body)
}
