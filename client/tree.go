package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// TreeInfo describes a tree.
type TreeInfo struct {
	Name string `json:"name"`
	// State is "active", "deleted" or "purging".
	State      string    `json:"state"`
	Shards     int       `json:"shards"`
	MapVersion uint64    `json:"mapVersion"`
	Created    time.Time `json:"created"`
	// Deleted is when the tree was soft-deleted; nil if it is not.
	Deleted *time.Time `json:"deleted,omitempty"`
	// Options are the settings as they apply, by name. A list leaves them out.
	Options map[string]Setting `json:"options,omitempty"`
}

// Setting is one option of a tree as it applies.
type Setting struct {
	Value json.RawMessage `json:"value"`
	// Origin is "default", "service" or "tree".
	Origin string `json:"origin"`
}

// ListTrees yields every tree that the caller may see, by name. A failure is
// yielded once, as the last element.
func (c *Client) ListTrees(ctx context.Context) iter.Seq2[TreeInfo, error] {
	return func(yield func(TreeInfo, error) bool) {
		token := ""
		for {
			trees, next, err := c.treesPage(ctx, token)
			if err == nil && next != "" && next == token {
				err = fmt.Errorf("%w: the page token repeats", ErrProtocol)
			}
			if err != nil {
				yield(TreeInfo{}, err)
				return
			}
			for _, t := range trees {
				if !yield(t, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

func (c *Client) treesPage(ctx context.Context, token string) ([]TreeInfo, string, error) {
	q := newCall(http.MethodGet, "/v1/trees", repeatAlways)
	if token != "" {
		q.query = url.Values{"pageToken": {token}}
	}
	var out struct {
		Trees         []TreeInfo `json:"trees"`
		NextPageToken string     `json:"nextPageToken"`
	}
	err := c.doJSON(ctx, q, &out)
	return out.Trees, out.NextPageToken, err
}

// TreeOptions are settings by name, such as "TombstoneGracePeriod", with
// values in JSON.
type TreeOptions map[string]any

// CreateOptions qualify a Create.
type CreateOptions struct {
	// ShardCount is how many shards the tree starts with; 0 is the service's
	// default.
	ShardCount int
	// Options are settings of this tree alone.
	Options TreeOptions
}

// Create makes the tree and reports whether it is new. A tree with the same
// settings is no error; one with others is ErrTreeExists.
func (t *Tree) Create(ctx context.Context, o CreateOptions) (bool, error) {
	q, err := t.call(http.MethodPut, "", repeatAlways)
	if err != nil {
		return false, err
	}
	err = q.jsonBody(struct {
		ShardCount int         `json:"shardCount,omitempty"`
		Options    TreeOptions `json:"options,omitempty"`
	}{o.ShardCount, o.Options})
	if err != nil {
		return false, err
	}
	created := false
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		created = resp.StatusCode == http.StatusCreated
		return nil
	})
	return created, err
}

// Info returns the tree with its settings as they apply.
func (t *Tree) Info(ctx context.Context) (TreeInfo, error) {
	q, err := t.call(http.MethodGet, "", repeatAlways)
	if err != nil {
		return TreeInfo{}, err
	}
	var out TreeInfo
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}

// SetOptions changes settings of the tree; a nil value returns one to the
// service's.
func (t *Tree) SetOptions(ctx context.Context, o TreeOptions) (TreeInfo, error) {
	q, err := t.call(http.MethodPatch, "", repeatAlways)
	if err != nil {
		return TreeInfo{}, err
	}
	if err := q.jsonBody(map[string]TreeOptions{"options": o}); err != nil {
		return TreeInfo{}, err
	}
	var out TreeInfo
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}

// Drop soft-deletes the tree: reads and writes answer ErrTreeDeleted until it
// is recovered, or purged for good.
func (t *Tree) Drop(ctx context.Context) error { return t.act(ctx, http.MethodDelete, "") }

// Recover brings a soft-deleted tree back with all that it held.
func (t *Tree) Recover(ctx context.Context) error { return t.act(ctx, http.MethodPost, "/recover") }

// Purge removes a soft-deleted tree for good, without waiting for its time.
func (t *Tree) Purge(ctx context.Context) error { return t.act(ctx, http.MethodPost, "/purge") }

func (t *Tree) act(ctx context.Context, method, rest string) error {
	q, err := t.call(method, rest, repeatRefused)
	if err != nil {
		return err
	}
	return t.c.doJSON(ctx, q, nil)
}

// ShardMap says which shard owns which slots.
type ShardMap struct {
	Version uint64       `json:"version"`
	Slots   int          `json:"slots"`
	Shards  []ShardSlots `json:"shards"`
}

// ShardSlots are the slots of one shard, as inclusive ranges.
type ShardSlots struct {
	Shard int      `json:"shard"`
	Slots [][2]int `json:"slots"`
}

// ShardMap returns the tree's shard map.
func (t *Tree) ShardMap(ctx context.Context) (ShardMap, error) {
	q, err := t.call(http.MethodGet, "/shard-map", repeatAlways)
	if err != nil {
		return ShardMap{}, err
	}
	var out ShardMap
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}
