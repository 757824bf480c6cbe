// Package redissource reads real Redis servers as a migration does.
package redissource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/redis"
)

// Every type has the form that the package documents, whether it is small and
// read at once or large and read in parts.
func TestEveryTypeHasItsForm(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, c, ctx := start(t)
	must(t, c.Set(ctx, "string", "any \x00\xff bytes", 0).Err())
	must(t, c.Set(ctx, "empty", "", 0).Err())
	must(t, c.HSet(ctx, "hash", "b", "2", "a", "1", "c", "\xff").Err())
	must(t, c.HSet(ctx, "hash-binary", "b", "2", "\xfe", "1").Err())
	must(t, c.RPush(ctx, "list", "x", "", "x", `"<&>"`, "é\n").Err())
	must(t, c.SAdd(ctx, "set", "b", "a", "\xff").Err())
	must(t, c.ZAdd(ctx, "zset", goredis.Z{Score: 0.1, Member: "p"}, goredis.Z{Score: math.Inf(1), Member: "q"}, goredis.Z{Score: math.Inf(-1), Member: "r"},
		goredis.Z{Score: 9007199254740993, Member: "s"}, goredis.Z{Score: -1.5e300, Member: "t"}).Err())
	must(t, c.XAdd(ctx, &goredis.XAddArgs{Stream: "stream", ID: "1-1", Values: []any{"z", "1", "a", "2"}}).Err())
	must(t, c.XAdd(ctx, &goredis.XAddArgs{Stream: "stream", ID: "2-0", Values: []any{"f", "1", "f", "2"}}).Err())
	must(t, c.PFAdd(ctx, "hyperloglog", "a", "b").Err())

	d := readAll(t, open(t, redis.Options{URL: server.URL, DB: -1}), nil)
	for key, want := range map[string]string{
		"hash":        `{"a":"1","b":"2","c":{"base64":"/w=="}}`,
		"hash-binary": `[["b","2"],[{"base64":"/g=="},"1"]]`,
		"list":        `["x","","x","\"<&>\"","é\n"]`,
		"set":         `["a","b",{"base64":"/w=="}]`,
		"zset":        `[{"member":"r","score":"-inf"},{"member":"t","score":-1.5e+300},{"member":"p","score":0.1},{"member":"s","score":9.007199254740992e+15},{"member":"q","score":"inf"}]`,
		"stream":      `[{"id":"1-1","fields":{"z":"1","a":"2"}},{"id":"2-0","fields":[["f","1"],["f","2"]]}]`,
	} {
		r := d.get(t, key)
		if string(r.Payload) != want || r.Type != "application/json" || !json.Valid(r.Payload) {
			t.Errorf("%s: %s %s, want %s", key, r.Type, r.Payload, want)
		}
	}
	for key, want := range map[string]string{"string": "any \x00\xff bytes", "empty": ""} {
		if r := d.get(t, key); string(r.Payload) != want || r.Payload == nil || r.Type != "application/octet-stream" {
			t.Errorf("%s: %s %q", key, r.Type, r.Payload)
		}
	}
	if r := d.get(t, "hyperloglog"); !bytes.HasPrefix(r.Payload, []byte("HYLL")) {
		t.Errorf("hyperloglog is not its string: %.20q", r.Payload)
	}
	if len(d.faults) != 0 || d.expired != 0 {
		t.Errorf("faults %v, expired %d", d.faults, d.expired)
	}
}

// Collections of 5,000 elements are read in parts, and none is lost, doubled or
// out of order.
func TestLargeCollectionsAreWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	const n = 5000
	server, c, ctx := start(t)
	_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i := range n {
			p.HSet(ctx, "hash", fmt.Sprintf("f%05d", i), i)
			p.RPush(ctx, "list", i)
			p.SAdd(ctx, "set", fmt.Sprintf("m%05d", i))
			p.ZAdd(ctx, "zset", goredis.Z{Score: float64(n - i), Member: i})
			p.XAdd(ctx, &goredis.XAddArgs{Stream: "stream", ID: fmt.Sprintf("7-%d", i+1), Values: []any{"i", i}})
		}
		return nil
	})
	must(t, err)
	must(t, c.PExpireAt(ctx, "list", time.UnixMilli(4_000_000_000_123)).Err())
	d := readAll(t, open(t, redis.Options{URL: server.URL, DB: -1}), nil)
	want := map[string]func(i int) string{
		"list": func(i int) string { return fmt.Sprintf(`"%d"`, i) },
		"set":  func(i int) string { return fmt.Sprintf(`"m%05d"`, i) },
		"zset": func(i int) string { return fmt.Sprintf(`{"member":"%d","score":%d}`, n-1-i, i+1) },
		"stream": func(i int) string {
			return fmt.Sprintf(`{"id":"7-%d","fields":{"i":"%d"}}`, i+1, i)
		},
		"hash": func(i int) string { return fmt.Sprintf(`"f%05d":"%d"`, i, i) },
	}
	for key, element := range want {
		var parts []string
		for i := range n {
			parts = append(parts, element(i))
		}
		text := "[" + strings.Join(parts, ",") + "]"
		if key == "hash" {
			text = "{" + strings.Join(parts, ",") + "}"
		}
		if got := string(d.get(t, key).Payload); got != text {
			t.Errorf("%s is not what was written: %d bytes, want %d", key, len(got), len(text))
		}
	}
	if got := d.get(t, "list").Expiry; got.UnixMilli() != 4_000_000_000_123 {
		t.Errorf("expiry %v", got)
	}
}

// Values from 1 byte up are carried or told with their size.
func TestValuesOverTheLimitAreTold(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, c, ctx := start(t)
	const limit = 1000
	for _, n := range []int{1, limit - 1, limit, limit + 1, 5 << 20} {
		must(t, c.Set(ctx, fmt.Sprintf("s%d", n), strings.Repeat("x", n), 0).Err())
	}
	must(t, c.RPush(ctx, "few-large", strings.Repeat("x", limit)).Err())
	many := make([]any, 3000)
	for i := range many {
		many[i] = i
	}
	must(t, c.SAdd(ctx, "many", many...).Err())
	d := readAll(t, open(t, redis.Options{URL: server.URL, DB: -1, MaxValueBytes: limit}), nil)
	for _, n := range []int{1, limit - 1, limit} {
		if got := len(d.get(t, fmt.Sprintf("s%d", n)).Payload); got != n {
			t.Errorf("%d bytes, want %d", got, n)
		}
	}
	for key, size := range map[string]string{"s1001": "1001", "s5242880": "5242880", "few-large": "1004", "many": "3000"} {
		f := d.faults[fmt.Sprintf("key %q of db 0", key)]
		if !strings.Contains(f.Reason, size) || f.Key != key {
			t.Errorf("%s: fault %+v, want one that says %s", key, f, size)
		}
	}
	if len(d.records) != 3 || len(d.faults) != 4 {
		t.Errorf("%d records, %d faults", len(d.records), len(d.faults))
	}
}
