package service

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/providers/memory"
)

// awkward are keys that a router or a store would like to change.
var awkward = []string{
	"\x00", "\n", " ", "#", "%", "%2F", "%25", "+", "/", "//", "../..", "a", "a#b", "a%2Fb", "a//b", "a/b", "a?b", "a\x00b",
	"é", "日本語", "\ufeff", "🦊", "\U0010ffff", strings.Repeat("k", 1024),
}

func TestEverythingIsThereAfterARestart(t *testing.T) {
	m := memory.New(memory.Options{})
	first := newInstance(t, m.Table(), m.Blobs(), func(c *Config) { c.Options.CheckpointTailRows = 1 })
	for i, key := range awkward {
		first.want(201, "PUT", "/v1/trees/t/keys/"+url.PathEscape(key), "value of "+key, "Content-Type", "text/x-awkward")
		if i == len(awkward)/2 {
			first.tick("checkpoint")
			first.tick("collect")
		}
	}
	want := slices.Sorted(slices.Values(awkward))
	for name, i := range map[string]*instance{"the same instance": first, "a cold one": newInstance(t, m.Table(), m.Blobs())} {
		t.Run(name, func(t *testing.T) {
			i.t = t
			for _, key := range awkward {
				got := i.want(200, "GET", "/v1/trees/t/key?b64="+base64.RawURLEncoding.EncodeToString([]byte(key)), "")
				if got != "value of "+key {
					t.Errorf("%q has the value %q", key, got)
				}
			}
			if got := streamed(t, i, ""); !slices.Equal(got, want) {
				t.Errorf("the stream gives %q, want %q", got, want)
			}
			back := slices.Clone(want)
			slices.Reverse(back)
			if got := streamed(t, i, "?reverse=true"); !slices.Equal(got, back) {
				t.Errorf("backwards the stream gives %q", got)
			}
		})
	}
}

func streamed(t *testing.T, i *instance, query string) []string {
	t.Helper()
	answer := i.want(200, "GET", "/v1/trees/t/entries"+query, "", "Accept", "application/x-ndjson")
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	var keys []string
	for _, line := range lines[:len(lines)-1] {
		var e struct{ Key string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %s: %v", line, err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

func TestLeasesAreGivenBackAtTheEnd(t *testing.T) {
	m := memory.New(memory.Options{})
	leased := func(c *Config) { c.Options.Leases = true; c.Options.LeaseDuration = options.Default().LeaseDuration }
	first := newInstance(t, m.Table(), m.Blobs(), leased)
	first.want(201, "PUT", "/v1/trees/t/keys/a", "1")
	first.svc.release(t.Context())
	second := newInstance(t, m.Table(), m.Blobs(), leased)
	start := time.Now()
	second.want(200, "PUT", "/v1/trees/t/keys/a", "2")
	if took := time.Since(start); took >= options.Default().LeaseDuration/2 {
		t.Errorf("the second instance waited %s for the lease", took)
	}
	if got := first.want(200, "GET", "/v1/trees/t/keys/a", ""); got != "2" {
		t.Errorf("the first instance reads %q", got)
	}
}
