package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
)

// treeBody describes a tree.
type treeBody struct {
	Name       string `json:"name"`
	State      string `json:"state"`
	Shards     int    `json:"shards"`
	MapVersion uint64 `json:"mapVersion"`
	Created    string `json:"created"`
	Deleted    string `json:"deleted,omitempty"`
	// Options are all settings as they apply; left out of lists.
	Options map[string]settingBody `json:"options,omitempty"`
}

// settingBody is one option as it applies.
type settingBody struct {
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

func newTree(info *tree.Info) treeBody {
	return treeBody{
		Name: info.Name, State: string(info.State), Shards: info.Shards, MapVersion: info.MapVersion,
		Created: formatTime(info.Created), Deleted: formatIfSet(info.Deleted),
	}
}

func formatIfSet(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return formatTime(t)
}

// treeSettings returns a tree with its settings as they apply.
func (s *Server) treeSettings(info *tree.Info) (treeBody, error) {
	applied, err := s.opts.ForTree(info.Options)
	if err != nil {
		return treeBody{}, err
	}
	body := newTree(info)
	body.Options = map[string]settingBody{}
	for _, v := range applied.Values() {
		body.Options[v.Name] = settingBody{Value: v.Value, Origin: string(v.Origin)}
	}
	return body, nil
}

func (s *Server) writeTree(w http.ResponseWriter, r *request, status int, info *tree.Info) error {
	body, err := s.treeSettings(info)
	if err != nil {
		return err
	}
	return writeJSON(w, r, status, body)
}

type treesBody struct {
	Trees         []treeBody `json:"trees"`
	NextPageToken string     `json:"nextPageToken,omitempty"`
}

// maxListedTrees bounds a page of trees.
const maxListedTrees = 1000

// treeLimits returns the default and the largest limit of a list of trees.
func (s *Server) treeLimits() (def, most int) {
	most = min(maxListedTrees, s.opts.MaxPageEntries)
	return min(s.opts.DefaultPageEntries, most), most
}

// listTrees answers GET /v1/trees.
func (s *Server) listTrees(w http.ResponseWriter, r *request) error {
	limit, err := r.limit(s.treeLimits())
	if err != nil {
		return err
	}
	after, err := treeToken(r.query["pageToken"])
	if err != nil {
		return err
	}
	infos, next, err := s.visibleTrees(r, after, limit)
	if err != nil {
		return err
	}
	body := treesBody{Trees: make([]treeBody, len(infos))}
	for i := range infos {
		body.Trees[i] = newTree(&infos[i])
	}
	if next != "" {
		body.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(next))
	}
	return writeJSON(w, r, http.StatusOK, body)
}

// treeToken reads the page token of a list of trees: the place to go on after.
// A caller who makes one up sees no more than the list shows anyway.
func treeToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || !treeName.Match(after) {
		return "", argument("pageToken", "not a token of this list")
	}
	return string(after), nil
}

// createTree answers PUT of a tree.
func (s *Server) createTree(w http.ResponseWriter, r *request) error {
	o, err := s.parseCreate(w, r)
	if err != nil {
		return err
	}
	info, created, err := s.db.Create(r.Context(), r.tree, o)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return s.writeTree(w, r, status, &info)
}

// parseCreate reads the body; an empty one asks for the defaults.
func (s *Server) parseCreate(w http.ResponseWriter, r *request) (o tree.CreateOptions, err error) {
	body, err := s.readContent(w, r, s.jsonLimit())
	if err != nil || len(body) == 0 {
		return o, err
	}
	err = parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (known bool, err error) {
			switch name {
			case "shardCount":
				o.ShardCount, err = p.shardCount(name)
				return true, err
			case "options":
				o.Options, err = p.options(name)
				return true, err
			}
			return false, nil
		})
	})
	if err != nil {
		return o, err
	}
	o.Options, err = s.checkOptions(o.Options)
	return o, err
}

// maxShardCount bounds the shards of a new tree.
const maxShardCount = 256

func (p *parser) shardCount(path string) (int, error) {
	n, err := p.count(path)
	if err == nil && (n < 1 || n > maxShardCount) {
		err = argument(path, "must be 1 to %d", maxShardCount)
	}
	return n, err
}

// options reads a map from option names to JSON values.
func (p *parser) options(path string) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	err := p.object(path, func(name string) (bool, error) {
		raw, err := p.raw(join(path, name))
		all[name] = raw
		return true, err
	})
	return all, err
}

// checkOptions validates a tree's settings before anything is created, and
// returns them in the one form that is stored.
func (s *Server) checkOptions(own map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	canonical, err := s.opts.Patch(nil, own)
	return canonical, optionsError(err)
}

// optionsError puts the faults of options into the caller's words.
func optionsError(err error) error {
	faults := options.Faults(err)
	if len(faults) == 0 {
		return err
	}
	reason := ""
	for _, f := range faults[1:] {
		reason += "; " + join("options", f.Name) + ": " + f.Reason
	}
	return argument(join("options", faults[0].Name), "%s", faults[0].Reason+reason)
}

// getTree answers GET of a tree, deleted ones included.
func (s *Server) getTree(w http.ResponseWriter, r *request) error {
	info, err := s.db.Info(r.Context(), r.tree)
	if err != nil {
		return err
	}
	return s.writeTree(w, r, http.StatusOK, &info)
}

// patchTree answers PATCH of a tree: null takes a setting back.
func (s *Server) patchTree(w http.ResponseWriter, r *request) error {
	body, err := s.readBody(w, r, s.jsonLimit())
	if err != nil {
		return err
	}
	var patch map[string]json.RawMessage
	err = parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (bool, error) {
			if name != "options" {
				return false, nil
			}
			var err error
			patch, err = p.options(name)
			return true, err
		})
	})
	if err != nil {
		return err
	}
	if patch == nil {
		return argument("options", "missing")
	}
	info, err := s.db.SetOptions(r.Context(), r.tree, patch)
	if err != nil {
		return optionsError(err)
	}
	return s.writeTree(w, r, http.StatusOK, &info)
}

// deleteTree answers DELETE of a tree: a soft delete.
func (s *Server) deleteTree(w http.ResponseWriter, r *request) error {
	if err := s.db.Delete(r.Context(), r.tree); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// recoverTree answers POST …/recover.
func (s *Server) recoverTree(w http.ResponseWriter, r *request) error {
	if err := s.db.Recover(r.Context(), r.tree); err != nil {
		return err
	}
	return s.getTree(w, r)
}

// purgeTree answers POST …/purge: 204 when nothing is left of the tree, 202
// when the collection still has to remove the rest.
func (s *Server) purgeTree(w http.ResponseWriter, r *request) error {
	if err := s.db.Purge(r.Context(), r.tree); err != nil {
		return err
	}
	info, err := s.db.Info(r.Context(), r.tree)
	if errors.Is(err, tree.ErrTreeNotFound) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusAccepted, newTree(&info))
}

type shardMapBody struct {
	Version uint64           `json:"version"`
	Slots   int              `json:"slots"`
	Shards  []shardSlotsBody `json:"shards"`
}

type shardSlotsBody struct {
	Shard uint32 `json:"shard"`
	// Slots are runs, both ends included.
	Slots [][2]uint16 `json:"slots"`
}

// getShardMap answers GET …/shard-map.
func (s *Server) getShardMap(w http.ResponseWriter, r *request) error {
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	// What the instance remembers may be older than a split by another.
	m, err := t.ReadShardMap(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, newShardMap(m))
}

func newShardMap(m *keyspace.Map) shardMapBody {
	body := shardMapBody{Version: m.Version, Slots: keyspace.Slots}
	at := map[keyspace.ShardID]int{}
	for i, id := range m.Shards() {
		at[id] = i
		body.Shards = append(body.Shards, shardSlotsBody{Shard: uint32(id)})
	}
	for _, run := range m.Ranges() {
		sh := &body.Shards[at[run.Shard]]
		sh.Slots = append(sh.Slots, [2]uint16{run.From, run.To})
	}
	return body
}
