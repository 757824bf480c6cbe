package service

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/providers/memory"
)

// model is what a tree must hold, and the versions it gave out.
type model struct {
	values map[string]string
	tags   map[string]string
}

// machine drives one tree through HTTP, from two instances over one store, and
// holds every answer against the model.
type machine struct {
	t         *testing.T
	instances []*instance
	tree      string
	model     model
}

var modelKeys = []string{"a", "a/b", "a//b", "b", "b%2F", "c", "🦊", "\x00", "z z", "é"}

// TestAnswersFollowTheModel makes random requests; rapid prints the seed of a
// sequence that fails.
func TestAnswersFollowTheModel(t *testing.T) {
	m := memory.New(memory.Options{})
	small := func(c *Config) { c.Options.CheckpointTailRows = 3 }
	instances := []*instance{newInstance(t, m.Table(), m.Blobs(), small), newInstance(t, m.Table(), m.Blobs(), small)}
	trees := 0
	rapid.Check(t, func(rt *rapid.T) {
		trees++
		mc := &machine{t: t, instances: instances, tree: fmt.Sprintf("/v1/trees/t%d", trees), model: model{map[string]string{}, map[string]string{}}}
		mc.pick(rt).want(201, "PUT", mc.tree, `{"shardCount":3}`)
		rt.Repeat(map[string]func(*rapid.T){
			"get": mc.get, "put": mc.put, "putIf": mc.putIf, "getOrSet": mc.getOrSet, "delete": mc.delete, "batch": mc.batch,
			"scan": mc.scan, "count": mc.count, "deleteRange": mc.deleteRange, "tick": mc.tick,
		})
	})
}

func (m *machine) pick(rt *rapid.T) *instance {
	return m.instances[rapid.IntRange(0, len(m.instances)-1).Draw(rt, "instance")]
}

func (m *machine) key(rt *rapid.T) (key, path string) {
	key = rapid.SampledFrom(modelKeys).Draw(rt, "key")
	return key, m.tree + "/keys/" + url.PathEscape(key)
}

func value(rt *rapid.T) string { return rapid.StringN(0, 20, -1).Draw(rt, "value") }

func (m *machine) get(rt *rapid.T) {
	key, path := m.key(rt)
	status, h, body := m.pick(rt).do("GET", path, nil)
	want, ok := m.model.values[key]
	if (status == 200) != ok || ok && (string(body) != want || h.Get("ETag") != m.model.tags[key]) {
		rt.Fatalf("GET %q: %d %q %s, want %q %s (%t)", key, status, body, h.Get("ETag"), want, m.model.tags[key], ok)
	}
}

func (m *machine) put(rt *rapid.T) {
	key, path := m.key(rt)
	m.write(rt, key, path, value(rt), true)
}

// write puts a value and demands that it is taken or refused.
func (m *machine) write(rt *rapid.T, key, path, v string, taken bool, header ...string) {
	status, h, body := m.pick(rt).do("PUT", path, []byte(v), header...)
	_, existed := m.model.values[key]
	want := 412
	if taken {
		want = map[bool]int{true: 200, false: 201}[existed]
	}
	if status != want {
		rt.Fatalf("PUT %q %v: %d %s, want %d", key, header, status, body, want)
	}
	if !taken {
		if h.Get("ETag") != m.model.tags[key] {
			rt.Fatalf("PUT %q %v: refused with ETag %s, want %s", key, header, h.Get("ETag"), m.model.tags[key])
		}
		return
	}
	if old := m.model.tags[key]; h.Get("ETag") <= old {
		rt.Fatalf("PUT %q: version %s after %s", key, h.Get("ETag"), old)
	}
	m.model.values[key], m.model.tags[key] = v, h.Get("ETag")
}

func (m *machine) putIf(rt *rapid.T) {
	key, path := m.key(rt)
	_, exists := m.model.values[key]
	current, stale := m.model.tags[key], `"000000000000000100000001"`
	cases := []struct {
		header, tag string
		taken       bool
	}{
		{"If-None-Match", "*", !exists}, {"If-None-Match", stale, true}, {"If-Match", "*", exists}, {"If-Match", stale, false},
	}
	if exists {
		cases = append(cases, []struct {
			header, tag string
			taken       bool
		}{
			{"If-Match", current, true}, {"If-Match", stale + ", " + current, true}, {"If-Match", "W/" + current, false},
			{"If-None-Match", current, false}, {"If-None-Match", stale + ",W/" + current, false},
		}...)
	}
	c := rapid.SampledFrom(cases).Draw(rt, "condition")
	m.write(rt, key, path, value(rt), c.taken, c.header, c.tag)
}

func (m *machine) getOrSet(rt *rapid.T) {
	key, path := m.key(rt)
	v := value(rt)
	want, exists := m.model.values[key]
	if !exists {
		m.write(rt, key, path+"?mode=get-or-set", v, true)
		return
	}
	status, h, body := m.pick(rt).do("PUT", path+"?mode=get-or-set", []byte(v))
	if status != 200 || string(body) != want || h.Get("ETag") != m.model.tags[key] {
		rt.Fatalf("get-or-set %q: %d %q, want %q", key, status, body, want)
	}
}

func (m *machine) delete(rt *rapid.T) {
	key, path := m.key(rt)
	status, h, _ := m.pick(rt).do("DELETE", path, nil)
	_, existed := m.model.values[key]
	if status != 204 || h.Get("Lattice-Existed") != fmt.Sprint(existed) {
		rt.Fatalf("DELETE %q: %d, existed %s, want %t", key, status, h.Get("Lattice-Existed"), existed)
	}
	m.forget(key)
}

func (m *machine) forget(key string) {
	delete(m.model.values, key)
	delete(m.model.tags, key)
}

func (m *machine) batch(rt *rapid.T) {
	type op struct {
		Op   string  `json:"op"`
		Key  string  `json:"key"`
		Text *string `json:"text,omitempty"`
	}
	var ops []op
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys), 1, 5, rapid.ID).Draw(rt, "keys") {
		o := op{Op: "delete", Key: key}
		if rapid.Bool().Draw(rt, "set") {
			v := value(rt)
			o.Op, o.Text = "set", &v
		}
		ops = append(ops, o)
	}
	body, err := json.Marshal(map[string]any{"operations": ops})
	if err != nil {
		rt.Fatal(err)
	}
	var answer struct {
		Results []struct {
			Key, Status, Version string
			Existed              bool
		}
	}
	if err := json.Unmarshal([]byte(m.pick(rt).want(200, "POST", m.tree+"/batch", string(body))), &answer); err != nil {
		rt.Fatal(err)
	}
	for i, res := range answer.Results {
		_, existed := m.model.values[ops[i].Key]
		if res.Key != ops[i].Key || res.Status != "ok" || ops[i].Op == "delete" && res.Existed != existed {
			rt.Fatalf("operation %+v: %+v", ops[i], res)
		}
		m.forget(res.Key)
		if ops[i].Text != nil {
			m.model.values[res.Key], m.model.tags[res.Key] = *ops[i].Text, `"`+res.Version+`"`
		}
	}
}

// bounds draws a range and returns its query and the keys of the model in it.
func (m *machine) bounds(rt *rapid.T) (query string, keys []string) {
	all := slices.Sorted(maps.Keys(m.model.values))
	from, to := rapid.SampledFrom(modelKeys).Draw(rt, "from"), rapid.SampledFrom(modelKeys).Draw(rt, "to")
	if from > to {
		from, to = to, from
	}
	if rapid.Bool().Draw(rt, "prefix") {
		for _, key := range all {
			if strings.HasPrefix(key, from) {
				keys = append(keys, key)
			}
		}
		return "prefix=" + url.QueryEscape(from), keys
	}
	for _, key := range all {
		if key >= from && key < to {
			keys = append(keys, key)
		}
	}
	return "start=" + url.QueryEscape(from) + "&end=" + url.QueryEscape(to), keys
}

func (m *machine) scan(rt *rapid.T) {
	query, want := m.bounds(rt)
	limit := rapid.IntRange(1, 4).Draw(rt, "limit")
	reverse := rapid.Bool().Draw(rt, "reverse")
	if reverse {
		slices.Reverse(want)
	}
	var got []string
	for token := ""; ; {
		var page struct {
			Entries       []struct{ Key, Text, Version string }
			NextPageToken string
		}
		target := fmt.Sprintf("%s/entries?%s&as=text&limit=%d&reverse=%t&pageToken=%s", m.tree, query, limit, reverse, url.QueryEscape(token))
		if err := json.Unmarshal([]byte(m.pick(rt).want(200, "GET", target, "")), &page); err != nil {
			rt.Fatal(err)
		}
		for _, e := range page.Entries {
			got = append(got, e.Key)
			if e.Text != m.model.values[e.Key] || `"`+e.Version+`"` != m.model.tags[e.Key] {
				rt.Fatalf("scan gives %+v, want %q %s", e, m.model.values[e.Key], m.model.tags[e.Key])
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("scan of %s gives %q, want %q", query, got, want)
	}
}

func (m *machine) count(rt *rapid.T) {
	query, want := m.bounds(rt)
	if got := m.pick(rt).want(200, "GET", m.tree+"/count?"+query, ""); !strings.HasPrefix(got, fmt.Sprintf(`{"count":%d,`, len(want))) {
		rt.Fatalf("count of %s: %s, want %d", query, got, len(want))
	}
}

func (m *machine) deleteRange(rt *rapid.T) {
	query, want := m.bounds(rt)
	if got := m.pick(rt).want(200, "DELETE", m.tree+"/entries?"+query, ""); got != fmt.Sprintf(`{"deleted":%d}`, len(want)) {
		rt.Fatalf("deletion of %s: %s, want %d", query, got, len(want))
	}
	for _, key := range want {
		m.forget(key)
	}
}

func (m *machine) tick(rt *rapid.T) {
	m.pick(rt).tick(rapid.SampledFrom([]string{"checkpoint", "collect"}).Draw(rt, "tick"))
}
