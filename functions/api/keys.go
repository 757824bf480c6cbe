package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/latticekv/lattice/core/tree"
)

const (
	defaultType = "application/octet-stream"
	// maxTypeBytes bounds a stored Content-Type.
	maxTypeBytes = 255
	modeGetOrSet = "get-or-set"
)

// getKey answers GET and HEAD of a key with its raw value.
func (s *Server) getKey(w http.ResponseWriter, r *request) error {
	if err := r.takeKey(s.opts.MaxKeyLength); err != nil {
		return err
	}
	cond, err := parseCondition(r.Header)
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
	item, found, err := t.Get(s.reading(r.Context(), r), r.key, read)
	if err != nil {
		return err
	}
	if err := s.holdAnswer(r, int64(len(item.Value))); err != nil {
		return err
	}
	return answerItem(w, r, cond, &item, found)
}

// answerItem evaluates the conditions of a read in the order of RFC 9110,
// section 13.2.2.
func answerItem(w http.ResponseWriter, r *request, cond condition, item *tree.Item, found bool) error {
	if cond.match != nil && !(found && cond.match.matchStrong(item.Version)) {
		mismatch := &tree.MismatchError{}
		if found {
			mismatch.Current = item.Version
		}
		return mismatch
	}
	if !found {
		return failf(CodeKeyNotFound, "the tree has no such key")
	}
	if cond.noneMatch != nil && cond.noneMatch.matchWeak(item.Version) {
		setItemHeaders(w.Header(), item)
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return writeItem(w, r, item)
}

// putRequest is a PUT whose form has been checked.
type putRequest struct {
	value   []byte
	options tree.PutOptions
	cond    condition
}

// putKey answers PUT of a key.
func (s *Server) putKey(w http.ResponseWriter, r *request) error {
	put, err := s.parsePut(w, r)
	if err != nil {
		return err
	}
	t, err := s.openToWrite(r, !put.cond.needsKey())
	if err != nil {
		return err
	}
	res, err := put.cond.put(s.reading(r.Context(), r), t, r.key, put.value, put.options)
	if err != nil {
		return err
	}
	if res.Existing != nil {
		if err := s.holdAnswer(r, int64(len(res.Existing.Value))); err != nil {
			return err
		}
		return writeItem(w, r, res.Existing)
	}
	w.Header().Set("ETag", quoteVersion(res.Version))
	status := http.StatusOK
	if res.Created {
		status = http.StatusCreated
	}
	return writeJSON(w, r, status, versionBody{res.Version.String()})
}

type versionBody struct {
	Version string `json:"version"`
}

// openToWrite opens the tree of a write; only a write that can put a value
// creates it.
func (s *Server) openToWrite(r *request, create bool) (handle, error) {
	if create {
		return s.db.openOrCreate(r.Context(), r.tree)
	}
	return s.db.open(r.Context(), r.tree)
}

// parsePut checks everything that can be checked before the tree is touched;
// the body comes last, for it costs most.
func (s *Server) parsePut(w http.ResponseWriter, r *request) (put putRequest, err error) {
	if err = r.takeKey(s.opts.MaxKeyLength); err != nil {
		return put, err
	}
	if put.options.Type, err = storedType(r.Header.Values("Content-Type")); err != nil {
		return put, err
	}
	if put.options.TTL, err = requestTTL(r.Header, r.query); err != nil {
		return put, err
	}
	if put.cond, err = parseCondition(r.Header); err != nil {
		return put, err
	}
	if put.options.GetOrSet, err = getOrSet(r, put.cond); err != nil {
		return put, err
	}
	put.value, err = s.readContent(w, r, bodyLimit{s.opts.MaxValueSizeBytes, CodeValueTooLarge, "the value"})
	return put, err
}

func getOrSet(r *request, cond condition) (bool, error) {
	mode, ok := r.query["mode"]
	if !ok {
		return false, nil
	}
	if mode != modeGetOrSet {
		return false, argument("mode", "the only mode is %s", modeGetOrSet)
	}
	if !cond.empty() {
		return false, argument("mode", "%s cannot be combined with If-Match or If-None-Match", modeGetOrSet)
	}
	return true, nil
}

// storedType checks the media type that is stored with a value.
func storedType(lines []string) (string, error) {
	if len(lines) == 0 || lines[0] == "" {
		return defaultType, nil
	}
	if len(lines) > 1 {
		return "", argument("Content-Type", "given more than once")
	}
	if len(lines[0]) > maxTypeBytes {
		return "", argument("Content-Type", "longer than %d bytes", maxTypeBytes)
	}
	if mediaType, _, err := mime.ParseMediaType(lines[0]); err != nil || !strings.Contains(mediaType, "/") {
		return "", argument("Content-Type", "not a media type")
	}
	return lines[0], nil
}

// deleteKey answers DELETE of a key.
func (s *Server) deleteKey(w http.ResponseWriter, r *request) error {
	if err := r.takeKey(s.opts.MaxKeyLength); err != nil {
		return err
	}
	cond, err := parseCondition(r.Header)
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	existed, err := cond.delete(r.Context(), t, r.key)
	if err != nil {
		return err
	}
	w.Header().Set("Lattice-Existed", strconv.FormatBool(existed))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
