package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestTreeLifecycle(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ method, path, body string }{
		{"GET", tr, ""}, {"PATCH", tr, `{"options":{}}`}, {"DELETE", tr, ""}, {"POST", tr + "/recover", ""}, {"POST", tr + "/purge", ""}, {"GET", tr + "/shard-map", ""},
	} {
		if p := r.do(c.method, c.path, c.body).wantProblem(404, CodeTreeNotFound); p.Tree != "t" {
			t.Errorf("problem names tree %q", p.Tree)
		}
	}
	got := decode[treeBody](r.do("PUT", tr, `{"shardCount":2}`).wantStatus(201))
	if got.Name != "t" || got.State != "active" || got.Shards != 2 || got.Created == "" || got.Deleted != "" {
		t.Errorf("created %+v", got)
	}
	r.do("PUT", tr, `{"shardCount":2}`).wantStatus(200)
	r.do("PUT", tr, `{"shardCount":3}`).wantProblem(409, CodeTreeExists)
	r.do("PUT", "/v1/trees/empty", "").wantStatus(201)
	r.put(k+"a", "1")

	r.do("POST", tr+"/recover", "").wantProblem(409, CodeTreeExists)
	r.do("POST", tr+"/purge", "").wantProblem(409, CodeTreeExists)
	r.do("DELETE", tr, "").wantStatus(204).wantBody("")
	r.do("DELETE", tr, "").wantProblem(409, CodeTreeDeleted)
	for _, c := range []struct{ method, path, body string }{
		{"GET", k + "a", ""}, {"PUT", k + "a", "1"}, {"DELETE", k + "a", ""}, {"GET", tr + "/entries", ""}, {"GET", tr + "/count", ""},
		{"DELETE", tr + "/entries?all=true", ""}, {"POST", tr + "/batch-get", `{"keys":["a"]}`}, {"POST", tr + "/batch", `{"operations":[{"op":"set","key":"a","text":"1"}]}`},
		{"PUT", tr, ""}, {"PATCH", tr, `{"options":{}}`}, {"GET", tr + "/shard-map", ""},
	} {
		r.do(c.method, c.path, c.body).wantProblem(409, CodeTreeDeleted)
	}
	got = decode[treeBody](r.do("GET", tr, "").wantStatus(200))
	if got.State != "deleted" || got.Deleted == "" {
		t.Errorf("deleted %+v", got)
	}
	got = decode[treeBody](r.do("POST", tr+"/recover", "").wantStatus(200))
	if got.State != "active" {
		t.Errorf("recovered %+v", got)
	}
	r.do("GET", k+"a", "").wantBody("1")
	r.do("DELETE", tr, "").wantStatus(204)
	got = decode[treeBody](r.do("POST", tr+"/purge", "").wantStatus(202))
	if got.State != "purging" {
		t.Errorf("purging %+v", got)
	}
	r.do("DELETE", "/v1/trees/empty", "").wantStatus(204)
	r.do("POST", "/v1/trees/empty/purge", "").wantStatus(204)
	r.do("GET", "/v1/trees/empty", "").wantProblem(404, CodeTreeNotFound)
}

func TestTreeSettingsShowTheirOrigin(t *testing.T) {
	r := newRig(t, func(c *Config) {
		if err := c.Options.Set("MaxBatchOperations", "77"); err != nil {
			t.Fatal(err)
		}
	})
	r.do("PUT", tr, `{"options":{"TombstoneGracePeriod":"1h"}}`).wantStatus(201)
	got := decode[treeBody](r.do("GET", tr, "").wantStatus(200))
	want := map[string]settingBody{
		"TombstoneGracePeriod": {"1h0m0s", "tree"}, "MaxBatchOperations": {77.0, "service"}, "MaxScanRetries": {3.0, "default"},
	}
	for name, w := range want {
		if g := got.Options[name]; g != w {
			t.Errorf("%s is %v, want %v", name, g, w)
		}
	}
	r.do("PATCH", tr, `{"options":{"MaxScanRetries":5,"TombstoneGracePeriod":null}}`).wantStatus(200)
	got = decode[treeBody](r.do("GET", tr, ""))
	if got.Options["MaxScanRetries"] != (settingBody{5.0, "tree"}) || got.Options["TombstoneGracePeriod"].Origin != "default" {
		t.Errorf("patched: %v, %v", got.Options["MaxScanRetries"], got.Options["TombstoneGracePeriod"])
	}
	r.do("PATCH", tr, `{"options":{}}`).wantStatus(200)
}

func TestTreeRefusalsChangeNothing(t *testing.T) {
	r := newRig(t)
	bodies := map[string]string{
		"not an object": `[]`, "garbage": `{} x`, "unknown field": `{"shards":2}`, "zero shards": `{"shardCount":0}`,
		"too many shards": `{"shardCount":257}`, "negative": `{"shardCount":-1}`, "fraction": `{"shardCount":1.5}`, "text": `{"shardCount":"2"}`,
		"null count": `{"shardCount":null}`, "null options": `{"options":null}`, "options array": `{"options":[]}`,
		"unknown option": `{"options":{"NoSuch":1}}`, "service option": `{"options":{"MaxKeyLength":10}}`,
		"bad value": `{"options":{"MaxScanRetries":"many"}}`, "out of bounds": `{"options":{"MaxScanRetries":1000}}`,
		"option twice": `{"options":{"MaxScanRetries":1,"MaxScanRetries":2}}`,
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) { r.do("PUT", tr, body).wantProblem(400, CodeInvalidArgument) })
	}
	if len(r.db.trees) != 0 {
		t.Error("a refused request created a tree")
	}
	r.do("PUT", tr, "").wantStatus(201)
	p := r.do("PATCH", tr, `{"options":{"NoSuch":1,"MaxKeyLength":10}}`).wantProblem(400, CodeInvalidArgument)
	if !strings.Contains(p.Detail, "options.NoSuch") || !strings.Contains(p.Detail, "options.MaxKeyLength") {
		t.Errorf("not every fault is reported: %s", p.Detail)
	}
	for _, body := range []string{"", `{}`, `{"options":null}`, `{"options":{"MaxScanRetries":true}}`, `{"shardCount":2}`} {
		r.do("PATCH", tr, body).wantProblem(400, CodeInvalidArgument)
	}
	if own := r.db.trees["t"].info.Options; len(own) != 0 {
		t.Errorf("refused patches left %v", own)
	}
}

func TestListTrees(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/v1/trees", "").wantStatus(200).wantBody(`{"trees":[]}`)
	for i := range 5 {
		r.do("PUT", fmt.Sprintf("/v1/trees/t%d", i), `{"shardCount":1}`).wantStatus(201)
	}
	var names []string
	for token, pages := "", 0; pages < 10; pages++ {
		page := decode[treesBody](r.do("GET", "/v1/trees?limit=2&pageToken="+url.QueryEscape(token), "").wantStatus(200))
		for _, tree := range page.Trees {
			names = append(names, tree.Name)
			if tree.Shards != 1 || tree.State != "active" || tree.Created == "" || tree.Options != nil {
				t.Errorf("listed %+v", tree)
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "t0 t1 t2 t3 t4" {
		t.Errorf("names %s", got)
	}
	for _, query := range []string{"limit=0", "limit=1001", "pageToken=!", "pageToken=X3N5cw", "prefix=a"} {
		r.do("GET", "/v1/trees?"+query, "").wantProblem(400, CodeInvalidArgument)
	}
}

func TestShardMap(t *testing.T) {
	r := newRig(t)
	r.do("PUT", tr, `{"shardCount":3}`).wantStatus(201)
	r.do("GET", tr+"/shard-map", "").wantStatus(200).wantBody(`{"version":0,"slots":4096,"shards":[{"shard":0,"slots":[[0,1365]]},{"shard":1,"slots":[[1366,2730]]},{"shard":2,"slots":[[2731,4095]]}]}`)
}

func TestOptionValuesAreKeptInOneForm(t *testing.T) {
	r := newRig(t)
	r.do("PUT", tr, `{"options":{"TombstoneGracePeriod":3600}}`).wantStatus(201)
	if got := r.db.trees["t"].info.Options["TombstoneGracePeriod"]; !json.Valid(got) || string(got) != `"1h0m0s"` {
		t.Errorf("stored as %s", got)
	}
	r.do("PUT", tr, `{"options":{"TombstoneGracePeriod":"60m"}}`).wantStatus(200)
}
