package cosmos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

func TestValueKeepsOrderAndDigits(t *testing.T) {
	const body = `{"z":1.10,"id":"1","big":12345678901234567890123,"exp":1e400,"n":-0.0,"pk":"p","text":"<&>\u0001","in":{"b":[1.0,{}],"a":null}`
	g := newGateway(body + `,"_rid":"r","_self":"s","_etag":"e","_attachments":"a","_ts":1700000000}`)
	records, _, _ := collect(t, g.open(t, Options{}).Read(t.Context(), nil))
	if got := string(records[0].Payload); got != body+"}" {
		t.Errorf("value %s", got)
	}
	for name, want := range map[string]any{
		"z": source.Number("1.10"), "big": source.Number("12345678901234567890123"), "exp": source.Number("1e400"), "_ts": int64(1700000000), "pk": "p",
	} {
		if got, ok := records[0].Get(name); !ok || got != want {
			t.Errorf("field %s is %v, want %v", name, got, want)
		}
	}
	if _, ok := records[0].Get("_etag"); ok {
		t.Error("a property of the service is a field")
	}
	records, _, _ = collect(t, g.open(t, Options{KeepSystem: true}).Read(t.Context(), nil))
	if got := string(records[0].Payload); got != g.items[0] {
		t.Errorf("with the service's properties: %s", got)
	}
}

func TestPartitionKeyFields(t *testing.T) {
	for _, c := range []struct {
		paths, item string
		want        map[string]any
		template    string
	}{
		{`"/tenant"`, `{"id":"1","tenant":"t","pk":"shadowed"}`, map[string]any{"pk": "t", "tenant": "t", "id": "1"}, "{pk}/{id}"},
		{`"/id"`, `{"id":"1"}`, map[string]any{"pk": "1", "id": "1"}, "{id}"},
		{`"/n"`, `{"id":"1","n":18446744073709551615}`, map[string]any{"pk": uint64(18446744073709551615)}, "{pk}/{id}"},
		{`"/b"`, `{"id":"1","b":true}`, map[string]any{"pk": true}, "{pk}/{id}"},
		{`"/none"`, `{"id":"1"}`, map[string]any{"pk": nil}, "{pk}/{id}"},
		{`"/a/b"`, `{"id":"1","a":"no object"}`, map[string]any{"pk": nil, "a.b": nil}, "{pk}/{id}"},
		{`"/a/\"x/y\""`, `{"id":"1","a":{"x/y":"deep"}}`, map[string]any{"pk": "deep", "a.x/y": "deep"}, "{pk}/{id}"},
		{`"/t","/u","/s"`, `{"id":"1","t":"a","u":7}`, map[string]any{"pk1": "a", "pk2": int64(7), "pk3": nil}, "{pk1}/{pk2}/{pk3}/{id}"},
	} {
		g := newGateway(c.item)
		g.container = `{"id":"items","_rid":"r","partitionKey":{"paths":[` + c.paths + `],"kind":"Hash"}}`
		s := g.open(t, Options{})
		info, err := s.Inspect(t.Context())
		if err != nil || info.KeyTemplate != c.template {
			t.Errorf("%s: template %q, %v", c.paths, info.KeyTemplate, err)
		}
		records, faults, _ := collect(t, s.Read(t.Context(), nil))
		if len(records) != 1 {
			t.Fatalf("%s: faults %v", c.paths, faults)
		}
		for name, want := range c.want {
			if got, ok := records[0].Get(name); !ok || got != want {
				t.Errorf("%s: field %s is %v (%v), want %v", c.paths, name, got, ok, want)
			}
		}
	}
	for _, bad := range []string{"", `"no slash"`, `"/"`, `"/a/\"open"`} {
		g := newGateway()
		g.container = `{"id":"items","_rid":"r","partitionKey":{"paths":[` + bad + `],"kind":"Hash"}}`
		if _, err := g.open(t, Options{}).Inspect(t.Context()); err == nil {
			t.Errorf("the path %s was accepted", bad)
		}
	}
}

// Seconds, not milliseconds; only where the container has the feature on; the
// item's own before the container's.
func TestExpiry(t *testing.T) {
	const written = 1_700_000_000
	for _, c := range []struct {
		container, item string
		after           int64 // seconds after _ts; 0 is never
	}{
		{"", "", 0}, {"", "60", 0}, {"-1", "", 0}, {"-1", "60", 60}, {"-1", "-1", 0}, {"3600", "", 3600},
		{"3600", "60", 60}, {"3600", "-1", 0}, {"3600", "null", 3600}, {"3600", `"text"`, 3600}, {"2147483647", "", 2147483647}, {"1", "2147483647", 2147483647},
	} {
		item, container := fmt.Sprintf(`{"id":"1","pk":"p","_ts":%d`, written), `{"id":"items","_rid":"r","partitionKey":{"paths":["/pk"]}`
		if c.item != "" {
			item += `,"ttl":` + c.item
		}
		if c.container != "" {
			container += `,"defaultTtl":` + c.container
		}
		g := newGateway(item + "}")
		g.container = container + "}"
		records, faults, _ := collect(t, g.open(t, Options{}).Read(t.Context(), nil))
		var want time.Time
		if c.after > 0 {
			want = time.Unix(written+c.after, 0)
		}
		if len(records) != 1 || !records[0].Expiry.Equal(want) {
			t.Errorf("container %q, item %q: %+v %v, want %v", c.container, c.item, records, faults, want)
		}
	}
}

func TestFaults(t *testing.T) {
	g := newGateway(`{"pk":"p"}`, `{"id":7,"pk":"p"}`, `[1]`, `{"id":"1","pk":"p","ttl":5}`, `{"id":"2","pk":"p","_ts":1700000000}`)
	g.container = `{"id":"items","_rid":"r","defaultTtl":-1,"partitionKey":{"paths":["/pk"]}}`
	records, faults, _ := collect(t, g.open(t, Options{}).Read(t.Context(), nil))
	var reasons []string
	for _, f := range faults {
		reasons = append(reasons, f.Reason)
	}
	want := []string{"the item has no id", "the item has no id", "the item is no JSON object", "the item has a time to live, but no usable _ts: when it expires is not known"}
	if len(records) != 1 || !slices.Equal(reasons, want) {
		t.Errorf("%d records, faults %q", len(records), reasons)
	}
}

// The value holds what the item holds, whatever the names.
func FuzzItem(f *testing.F) {
	f.Add(`{"id":"1","a\"b":1,"é":[1,2],"":{}}`)
	f.Add(`{"id":"1","_etag":1,"x":1e5}`)
	f.Fuzz(func(t *testing.T, item string) {
		var whole map[string]json.RawMessage
		if json.Unmarshal([]byte(item), &whole) != nil || whole == nil {
			return
		}
		s := &Source{opts: Options{Container: "c"}, shape: shape{paths: [][]string{{"pk"}}}}
		r, fault := s.record([]byte(item))
		if fault != nil {
			return
		}
		var back map[string]json.RawMessage
		if err := json.Unmarshal(r.Payload, &back); err != nil {
			t.Fatalf("%s became %s: %v", item, r.Payload, err)
		}
		for _, name := range system {
			delete(whole, name)
		}
		if len(back) != len(whole) {
			t.Fatalf("%s became %s", item, r.Payload)
		}
		for name, raw := range whole {
			if strings.TrimSpace(string(raw)) != string(back[name]) {
				t.Fatalf("%s became %s: %q differs", item, r.Payload, name)
			}
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Endpoint: "https://Test.documents.example/", Key: testKey, Database: "d", Container: "c"}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"no endpoint":        func(o *Options) { o.Endpoint = "" },
		"no scheme":          func(o *Options) { o.Endpoint = "test.documents.example" },
		"a key that is none": func(o *Options) { o.Key = "not base64, secret" },
		"no database":        func(o *Options) { o.Database = "" },
		"no container":       func(o *Options) { o.Container = "" },
		"a whole query":      func(o *Options) { o.Filter = "SELECT * FROM c" },
		"a page of nothing":  func(o *Options) { o.PageSize = -1 },
		"a page of too much": func(o *Options) { o.PageSize = 10_001 },
		"a negative time":    func(o *Options) { o.RetryFor = -1 },
		"half a string":      func(o *Options) { o.ConnectionString = "AccountKey=secret" },
		"two accounts":       func(o *Options) { o.ConnectionString = "AccountEndpoint=https://other/;AccountKey=" + testKey },
		"a user in the URL":  func(o *Options) { o.Endpoint = "https://u:secret@host" },
		"a path in the URL":  func(o *Options) { o.Endpoint = "https://host/db" },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := New(Options{ConnectionString: "AccountKey=" + testKey + ";AccountEndpoint=https://host:443/;", Database: "a/b", Container: "c"})
	if err != nil || s.opts.Key != testKey || s.identity() != "https://host:443/a%2Fb/c" {
		t.Errorf("connection string: %v %v", s, err)
	}
}
