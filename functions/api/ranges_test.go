package api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

const tr = "/v1/trees/t"

// rawVersion strips the quotes of an ETag.
func rawVersion(etag string) string { return strings.Trim(etag, `"`) }

func TestBatchGet(t *testing.T) {
	r := newRig(t)
	r.do("POST", tr+"/batch-get", `{"keys":["a"]}`).wantProblem(404, CodeTreeNotFound)
	va, vb := r.put(k+"a", "one"), r.put(k+"b?ttl=1h", `{ "x" : [1, 2] }`, "Content-Type", "application/json")
	r.put(k+"c", "\xff\x00")
	r.do("POST", tr+"/batch-get", `{"keys":["a","nope","a"]}`).wantStatus(200).
		wantBody(`{"entries":[{"key":"a","value":"b25l","version":` + va + `},{"key":"a","value":"b25l","version":` + va + `}]}`)
	got := decode[entriesBody](r.do("POST", tr+"/batch-get?as=json", `{"keys":["b","a","c"]}`).wantStatus(200))
	if string(got.Entries[0].JSON) != `{"x":[1,2]}` || got.Entries[0].Version != rawVersion(vb) || got.Entries[0].ExpiresAt == "" {
		t.Errorf("as JSON: %+v", got.Entries[0])
	}
	if got.Entries[1].Value == nil || got.Entries[1].JSON != nil {
		t.Errorf("what is not JSON is not given as a value: %+v", got.Entries[1])
	}
	got = decode[entriesBody](r.do("POST", tr+"/batch-get?as=text", `{"keys":["a","c"]}`).wantStatus(200))
	if *got.Entries[0].Text != "one" || got.Entries[1].Text != nil || *got.Entries[1].Value != "/wA=" {
		t.Errorf("as text: %+v", got.Entries)
	}
	r.do("POST", tr+"/batch-get", `{"keys":[]}`).wantStatus(200).wantBody(`{"entries":[]}`)
}

func TestBatchGetRefusals(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Options.MaxBatchOperations, c.MaxBatchGetBytes = 3, 100 })
	r.put(k+"a", strings.Repeat("x", 60))
	tests := map[string]struct {
		query, body string
		status      int
		code        Code
	}{
		"no body":       {"", "", 400, CodeInvalidArgument},
		"no keys":       {"", `{}`, 400, CodeInvalidArgument},
		"null keys":     {"", `{"keys":null}`, 400, CodeInvalidArgument},
		"not an array":  {"", `{"keys":"a"}`, 400, CodeInvalidArgument},
		"number":        {"", `{"keys":[1]}`, 400, CodeInvalidArgument},
		"null key":      {"", `{"keys":[null]}`, 400, CodeInvalidArgument},
		"empty key":     {"", `{"keys":[""]}`, 400, CodeInvalidArgument},
		"too long":      {"", `{"keys":["` + strings.Repeat("k", 1025) + `"]}`, 413, CodeKeyTooLong},
		"too many":      {"", `{"keys":["a","b","c","d"]}`, 413, CodeRequestTooLarge},
		"answer large":  {"", `{"keys":["a","a"]}`, 413, CodeRequestTooLarge},
		"unknown field": {"", `{"keys":["a"],"x":1}`, 400, CodeInvalidArgument},
		"wrong case":    {"", `{"Keys":["a"]}`, 400, CodeInvalidArgument},
		"field twice":   {"", `{"keys":["a"],"keys":["b"]}`, 400, CodeInvalidArgument},
		"garbage":       {"", `{"keys":["a"]} x`, 400, CodeInvalidArgument},
		"second object": {"", `{"keys":["a"]}{}`, 400, CodeInvalidArgument},
		"not UTF-8":     {"", "{\"keys\":[\"\xff\"]}", 400, CodeInvalidArgument},
		"half a pair":   {"", `{"keys":["\ud800"]}`, 400, CodeInvalidArgument},
		"bad as":        {"?as=xml", `{"keys":["a"]}`, 400, CodeInvalidArgument},
		"unknown param": {"?limit=3", `{"keys":["a"]}`, 400, CodeInvalidArgument},
		"array":         {"", `["a"]`, 400, CodeInvalidArgument},
		"cut off":       {"", `{"keys":["a"`, 400, CodeInvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r.do("POST", tr+"/batch-get"+tt.query, tt.body).wantProblem(tt.status, tt.code)
		})
	}
	r.do("POST", tr+"/batch-get", `{"keys":["a"]}`).wantStatus(200)
	r.do("POST", tr+"/batch-get", `{"keys":["\ud83e\udd8a"]}`).wantStatus(200)
}

func TestBatch(t *testing.T) {
	r := newRig(t)
	old := rawVersion(r.put(k+"old", "1"))
	body := fmt.Sprintf(`{"operations":[
		{"op":"set","key":"v","value":"AP8="},
		{"op":"set","key":"t","text":"é\u0000","ttl":"1h"},
		{"op":"set","key":"j","json":{ "a" : [1, null] },"ttl":90},
		{"op":"set","key":"n","json":null},
		{"op":"set","key":"e","value":""},
		{"op":"set","key":"old","text":"2","ifVersion":%q},
		{"op":"set","key":"old","text":"3","ifAbsent":true},
		{"op":"delete","key":"v","ifVersion":"000000000000000100000001"},
		{"op":"delete","key":"e"},
		{"op":"delete","key":"never"},
		{"op":"set","key":%q,"text":"x"}
	],"atomic":false}`, old, strings.Repeat("k", 1025))
	got := decode[resultsBody](r.do("POST", tr+"/batch", body).wantStatus(200))
	var statuses []string
	for _, res := range got.Results {
		statuses = append(statuses, res.Status)
	}
	want := []string{"ok", "ok", "ok", "ok", "ok", "ok", "version_mismatch", "version_mismatch", "ok", "ok", "key_too_long"}
	if !slices.Equal(statuses, want) {
		t.Fatalf("statuses %v, want %v", statuses, want)
	}
	if got.Results[6].Version != got.Results[5].Version || got.Results[0].Existed != nil || got.Results[0].Version == "" {
		t.Errorf("results %+v", got.Results)
	}
	if !*got.Results[8].Existed || *got.Results[9].Existed || got.Results[8].Version != "" {
		t.Errorf("deletes %+v", got.Results[8:10])
	}
	r.do("GET", k+"v", "").wantBody("\x00\xff").wantHeader("Content-Type", defaultType)
	r.do("GET", k+"t", "").wantBody("é\x00").wantHeader("Content-Type", textType)
	r.do("GET", k+"j", "").wantBody(`{"a":[1,null]}`).wantHeader("Content-Type", jsonType)
	r.do("GET", k+"n", "").wantBody(`null`)
	r.do("GET", k+"old", "").wantBody("2")
	r.do("POST", tr+"/batch", `{"operations":[]}`).wantStatus(200).wantBody(`{"results":[]}`)
}

func TestBatchRefusalsChangeNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Options.MaxBatchOperations = 3 })
	good := `{"op":"set","key":"a","text":"1"}`
	tests := map[string]struct {
		ops    string
		status int
		code   Code
		detail string
	}{
		"no op":                {good + `,{"key":"a","text":"1"}`, 400, CodeInvalidArgument, "operations[1].op"},
		"unknown op":           {`{"op":"upsert","key":"a","text":"1"}`, 400, CodeInvalidArgument, "operations[0].op"},
		"no key":               {good + `,{"op":"set","text":"1"}`, 400, CodeInvalidArgument, "operations[1].key"},
		"empty key":            {`{"op":"set","key":"","text":"1"}`, 400, CodeInvalidArgument, "operations[0].key"},
		"no value":             {`{"op":"set","key":"a"}`, 400, CodeInvalidArgument, "operations[0]"},
		"two values":           {`{"op":"set","key":"a","text":"1","json":1}`, 400, CodeInvalidArgument, "operations[0]"},
		"null value":           {`{"op":"set","key":"a","value":null}`, 400, CodeInvalidArgument, "operations[0].value"},
		"null text":            {`{"op":"set","key":"a","text":null}`, 400, CodeInvalidArgument, "operations[0].text"},
		"bad base64":           {`{"op":"set","key":"a","value":"a"}`, 400, CodeInvalidArgument, "operations[0].value"},
		"base64url":            {`{"op":"set","key":"a","value":"_-8="}`, 400, CodeInvalidArgument, "operations[0].value"},
		"value of numbers":     {`{"op":"set","key":"a","value":[1,2]}`, 400, CodeInvalidArgument, "operations[0].value"},
		"text as number":       {`{"op":"set","key":"a","text":1}`, 400, CodeInvalidArgument, "operations[0].text"},
		"unknown field":        {good + `,{"op":"set","key":"a","text":"1","Ttl":"1s"}`, 400, CodeInvalidArgument, "operations[1].Ttl"},
		"field twice":          {`{"op":"set","key":"a","key":"b","text":"1"}`, 400, CodeInvalidArgument, "operations[0].key"},
		"zero ttl":             {`{"op":"set","key":"a","text":"1","ttl":0}`, 400, CodeInvalidArgument, "operations[0].ttl"},
		"negative ttl":         {`{"op":"set","key":"a","text":"1","ttl":"-1s"}`, 400, CodeInvalidArgument, "operations[0].ttl"},
		"ttl of another type":  {`{"op":"set","key":"a","text":"1","ttl":true}`, 400, CodeInvalidArgument, "operations[0].ttl"},
		"null ttl":             {`{"op":"set","key":"a","text":"1","ttl":null}`, 400, CodeInvalidArgument, "operations[0].ttl"},
		"bad version":          {`{"op":"set","key":"a","text":"1","ifVersion":"x"}`, 400, CodeInvalidArgument, "operations[0].ifVersion"},
		"zero version":         {`{"op":"delete","key":"a","ifVersion":"000000000000000000000000"}`, 400, CodeInvalidArgument, "operations[0].ifVersion"},
		"contradiction":        {`{"op":"set","key":"a","text":"1","ifAbsent":true,"ifVersion":"000000000000000100000001"}`, 400, CodeInvalidArgument, "operations[0].ifAbsent"},
		"ifAbsent not a bool":  {`{"op":"set","key":"a","text":"1","ifAbsent":"true"}`, 400, CodeInvalidArgument, "operations[0].ifAbsent"},
		"delete with value":    {`{"op":"delete","key":"a","text":"1"}`, 400, CodeInvalidArgument, "operations[0].text"},
		"delete with ttl":      {`{"op":"delete","key":"a","ttl":"1s"}`, 400, CodeInvalidArgument, "operations[0].ttl"},
		"delete with ifAbsent": {`{"op":"delete","key":"a","ifAbsent":true}`, 400, CodeInvalidArgument, "operations[0].ifAbsent"},
		"not an object":        {good + `,"a"`, 400, CodeInvalidArgument, "operations[1]"},
		"null":                 {`null`, 400, CodeInvalidArgument, "operations[0]"},
		"missing comma":        {good + good, 400, CodeInvalidArgument, "malformed"},
		"too many":             {good + `,` + good + `,` + good + `,` + good, 413, CodeRequestTooLarge, "3"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := r.do("POST", tr+"/batch", `{"operations":[`+tt.ops+`]}`).wantProblem(tt.status, tt.code)
			if !strings.Contains(p.Detail, tt.detail) {
				t.Errorf("detail %q does not name %q", p.Detail, tt.detail)
			}
		})
	}
	for name, body := range map[string]string{
		"no operations": `{}`, "null": `null`, "nothing": ``, "text": `x`, "operations null": `{"operations":null}`,
		"atomic not a bool": `{"operations":[],"atomic":1}`, "unknown": `{"operations":[],"Atomic":true}`,
		"operation id null": `{"operations":[],"operationId":null}`,
	} {
		t.Run(name, func(t *testing.T) { r.do("POST", tr+"/batch", body).wantProblem(400, CodeInvalidArgument) })
	}
	if len(r.db.trees) != 0 {
		t.Error("a refused batch created the tree")
	}
}

func TestBatchSizeIsThatOfKeysAndValues(t *testing.T) {
	r := newRig(t)
	limit := int(testOptions().MaxBatchBytes)
	fits := base64.StdEncoding.EncodeToString(make([]byte, limit-1))
	r.do("POST", tr+"/batch", `{"operations":[{"op":"set","key":"a","value":"`+fits+`"}]}`).wantStatus(200)
	over := base64.StdEncoding.EncodeToString(make([]byte, limit))
	p := r.do("POST", tr+"/batch", `{"operations":[{"op":"set","key":"b","value":"`+over+`"}]}`).wantProblem(413, CodeRequestTooLarge)
	if p.Limit != int64(limit) {
		t.Errorf("limit %d", p.Limit)
	}
	r.do("POST", tr+"/batch", strings.Repeat(" ", 3*limit)).wantProblem(413, CodeRequestTooLarge)
}

func fill(r *rig, keys ...string) {
	for _, key := range keys {
		r.put(k+url.PathEscape(key), "v-"+key)
	}
}

func keysOf(a *reply) []string {
	keys := []string{}
	for _, e := range decode[entriesBody](a).Entries {
		keys = append(keys, e.Key)
	}
	return keys
}

func TestScanRanges(t *testing.T) {
	r := newRig(t)
	r.do("GET", tr+"/entries", "").wantProblem(404, CodeTreeNotFound)
	fill(r, "a", "a/1", "a/2", "b", "b\x7f", "b\x7fz", "c", "é", "🦊", "\U0010ffff")
	all := []string{"a", "a/1", "a/2", "b", "b\x7f", "b\x7fz", "c", "é", "🦊", "\U0010ffff"}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	tests := map[string][]string{
		"":                           all,
		"reverse=true":               reversed,
		"reverse=false":              all,
		"start=b":                    all[3:],
		"end=b":                      all[:3],
		"start=a%2F1&end=c":          all[1:6],
		"start=b&end=b":              {},
		"start=&end=":                all,
		"prefix=a":                   all[:3],
		"prefix=b%7F":                all[4:6],
		"prefix=":                    all,
		"prefix=%F0%9F":              nil,
		"prefix=\U0010ffff":          all[9:],
		"prefix=zz":                  {},
		"prefix=a&reverse=true":      {"a/2", "a/1", "a"},
		"limit=2":                    all[:2],
		"limit=2&start=a%2F2":        all[2:4],
		"keysOnly=true&start=%F0%9F": nil,
	}
	for query, want := range tests {
		t.Run(query, func(t *testing.T) {
			got := r.do("GET", tr+"/entries?"+query, "")
			if want == nil {
				got.wantProblem(400, CodeInvalidArgument)
				return
			}
			if keys := keysOf(got.wantStatus(200)); !slices.Equal(keys, want) {
				t.Errorf("keys %q, want %q", keys, want)
			}
		})
	}
}

func TestScanPagesJoinUp(t *testing.T) {
	r := newRig(t)
	keys := []string{"a", "b", "c", "d", "e", "f"}
	fill(r, keys...)
	for _, query := range []string{"limit=1", "limit=2", "limit=3", "limit=4", "limit=6", "limit=7", "limit=2&reverse=true"} {
		var got []string
		pages := 0
		for token := ""; pages < 20; pages++ {
			page := decode[entriesBody](r.do("GET", tr+"/entries?"+query+"&pageToken="+url.QueryEscape(token), "").wantStatus(200))
			for _, e := range page.Entries {
				got = append(got, e.Key)
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		if strings.Contains(query, "reverse") {
			slices.Reverse(got)
		}
		if !slices.Equal(got, keys) {
			t.Errorf("%s: pages give %q", query, got)
		}
	}
}

func TestScanForms(t *testing.T) {
	r := newRig(t)
	v := r.put(k+"a", "text")
	r.put(k+"b", `[ 1 ]`)
	r.do("GET", tr+"/entries?end=b", "").wantBody(`{"entries":[{"key":"a","value":"dGV4dA==","version":` + v + `}]}`)
	r.do("GET", tr+"/entries?end=b&as=text", "").wantBody(`{"entries":[{"key":"a","text":"text","version":` + v + `}]}`)
	r.do("GET", tr+"/entries?end=b&keysOnly=true", "").wantBody(`{"entries":[{"key":"a","version":` + v + `}]}`)
	got := decode[entriesBody](r.do("GET", tr+"/entries?as=json&start=b", "").wantStatus(200))
	if string(got.Entries[0].JSON) != "[1]" {
		t.Errorf("as JSON: %+v", got.Entries)
	}
	r.do("HEAD", tr+"/entries", "").wantStatus(200).wantBody("").wantHeader("Content-Type", jsonType)
}

func TestRangeRefusals(t *testing.T) {
	r := newRig(t)
	fill(r, "a")
	for _, query := range []string{
		"start=b&end=a", "prefix=a&start=a", "prefix=a&end=b", "prefix=&end=b", "start=%ff", "end=%ff", "prefix=%ff",
		"start=a&start=a", "x=1", "reverse=yes", "reverse=", "keysOnly=1", "limit=0", "limit=-1", "limit=10001", "limit=x",
		"limit=", "limit=1.0", "limit=%2B5", "limit=99999999999999999999", "pageToken=bad", "as=base64", "as=", "%zz", "Start=a",
	} {
		r.do("GET", tr+"/entries?"+query, "").wantProblem(400, CodeInvalidArgument)
	}
	if p := r.do("GET", tr+"/entries?limit=10001", "").wantProblem(400, CodeInvalidArgument); p.Limit != 10000 {
		t.Errorf("limit %d", p.Limit)
	}
	for _, query := range []string{"", "start=", "prefix=", "end=&start=", "all=false", "all=yes", "all=true&prefix=a", "all=true&start=a", "start=b&end=a", "limit=5", "prefix=a&end=b"} {
		r.do("DELETE", tr+"/entries?"+query, "").wantProblem(400, CodeInvalidArgument)
	}
	for _, query := range []string{"start=b&end=a", "perShard=1", "limit=5", "prefix=a&end=b"} {
		r.do("GET", tr+"/count?"+query, "").wantProblem(400, CodeInvalidArgument)
	}
	r.do("GET", tr+"/count", "").wantBody(`{"count":1,"mapVersion":0}`)
}

func TestRangeDelete(t *testing.T) {
	r := newRig(t)
	r.do("DELETE", tr+"/entries?all=true", "").wantProblem(404, CodeTreeNotFound)
	fill(r, "a", "a/1", "b", "c", "d")
	r.do("DELETE", tr+"/entries?prefix=a", "").wantStatus(200).wantBody(`{"deleted":2}`)
	r.do("DELETE", tr+"/entries?start=b&end=d", "").wantBody(`{"deleted":2}`)
	r.do("DELETE", tr+"/entries?start=x&end=x", "").wantBody(`{"deleted":0}`)
	r.do("DELETE", tr+"/entries?all=true", "").wantBody(`{"deleted":1}`)
	r.do("DELETE", tr+"/entries?all=true", "").wantBody(`{"deleted":0}`)
}

func TestCount(t *testing.T) {
	r := newRig(t)
	r.do("GET", tr+"/count", "").wantProblem(404, CodeTreeNotFound)
	fill(r, "a", "a/1", "b", "c", "d")
	r.do("GET", tr+"/count", "").wantStatus(200).wantBody(`{"count":5,"mapVersion":0}`)
	r.do("GET", tr+"/count?prefix=a", "").wantBody(`{"count":2,"mapVersion":0}`)
	r.do("GET", tr+"/count?start=b&end=d", "").wantBody(`{"count":2,"mapVersion":0}`)
	c := decode[countBody](r.do("GET", tr+"/count?perShard=true", "").wantStatus(200))
	sum := int64(0)
	for _, s := range c.Shards {
		sum += s.Count
	}
	if len(c.Shards) != 4 || sum != 5 || c.Count != 5 {
		t.Errorf("per shard: %+v", c)
	}
}

func TestExpiredKeysAreAbsentEverywhere(t *testing.T) {
	r := newRig(t)
	r.put(k+"a", "1")
	item := r.db.trees["t"].items["a"]
	item.Expiry = time.Unix(1, 0)
	r.db.trees["t"].items["a"] = item
	r.do("GET", k+"a", "").wantProblem(404, CodeKeyNotFound)
	r.do("GET", tr+"/entries", "").wantBody(`{"entries":[]}`)
	r.do("PUT", k+"a", "2", "If-None-Match", "*").wantStatus(201)
}

func TestVersionsRoundTripThroughJSON(t *testing.T) {
	v := clock.Version{Time: 1<<63 + 5, Writer: 1<<32 - 1}
	err := parseJSON([]byte(`"`+v.String()+`"`), func(p *parser) error {
		got, err := p.version("v")
		if got != v {
			t.Errorf("version %v, want %v", got, v)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
