package api

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/latticekv/lattice/core/tree"
)

// page is an answer that holds entries, in memory as a whole.
type page struct {
	form     form
	keysOnly bool
	write    func(w *entryWriter)
}

// entriesPage is a page of entries; token is empty where there are no more.
func entriesPage(items []tree.Item, f form, keysOnly bool, token string) page {
	return page{f, keysOnly, func(w *entryWriter) {
		w.text(`{"entries":`)
		w.list(items)
		if token != "" {
			w.text(`,"nextPageToken":"`)
			w.quoted([]byte(token))
			w.text(`"`)
		}
		w.text("}")
	}}
}

// cursorPage is a page of a cursor: of entries, or of a delete-range.
func cursorPage(p *tree.CursorPage, f form) page {
	return page{f, p.Kind == tree.CursorKeys, func(w *entryWriter) {
		w.text(`{"page":`)
		w.text(strconv.FormatInt(p.Page, 10))
		if p.Kind == tree.CursorDeleteRange {
			w.text(`,"deleted":`)
			w.text(strconv.FormatInt(p.Deleted, 10))
		} else {
			w.text(`,"entries":`)
			w.list(p.Items)
		}
		w.text(`,"hasMore":`)
		w.text(strconv.FormatBool(p.HasMore))
		w.text(`,"expiresAt":"`)
		w.text(formatTime(p.Expires))
		w.text(`"}`)
	}}
}

// size is how many bytes the page will have.
func (p page) size() int64 {
	w := &entryWriter{form: p.form, keysOnly: p.keysOnly, measures: true}
	p.write(w)
	return w.size
}

// render returns the page, in memory made to its size.
func (p page) render(size int64) []byte {
	out := bytes.NewBuffer(make([]byte, 0, size))
	w := newEntryWriter(out, piece, p.form, p.keysOnly)
	p.write(w)
	if err := w.Flush(); err != nil {
		panic("a buffer in memory fails: " + err.Error())
	}
	return out.Bytes()
}

// writePage answers with a page for which there is room.
func (s *Server) writePage(w http.ResponseWriter, r *request, p page) error {
	size := p.size()
	if err := s.holdPage(r, size); err != nil {
		return err
	}
	return writeBody(w, r, http.StatusOK, jsonType, p.render(size))
}
