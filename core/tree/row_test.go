package tree

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
	"pgregory.net/rapid"
)

func sampleRow(t testing.TB) row {
	t.Helper()
	r, err := newRow("orders", 4, map[string]json.RawMessage{"MaxScanRetries": json.RawMessage("5")}, clock.Instant{Wall: 1_700_000_000_123e6})
	must(t, err)
	r.ID = "00000000000000ab"
	r.stamp("01")
	return r
}

// goldenRow is the stored form of sampleRow: what is written today must be read
// by every later version.
const goldenRow = `{"name":"orders","id":"00000000000000ab","state":"creating","settled":false,"epoch":1,"revision":1,"created":1700000000123,` +
	`"shardCount":4,"options":{"MaxScanRetries":5},"mapVersion":0,"slots":[[0,1023,0],[1024,2047,1],[2048,3071,2],[3072,4095,3]],"nextShard":4,"updates":["01"]}`

func TestRowHasItsGoldenForm(t *testing.T) {
	r := sampleRow(t)
	data, err := encodeTreeRow(&r)
	must(t, err)
	body, err := rowFormat.Open("x", data)
	must(t, err)
	if string(body) != goldenRow {
		t.Errorf("stored form changed:\n%s\nwant\n%s", body, goldenRow)
	}
	back, err := decodeTreeRow("orders", rowFormat.Seal([]byte(goldenRow)))
	must(t, err)
	if !reflect.DeepEqual(back, r) {
		t.Errorf("read back %+v, want %+v", back, r)
	}
}

func TestDamagedRowIsRefusedByName(t *testing.T) {
	r := sampleRow(t)
	data, err := encodeTreeRow(&r)
	must(t, err)
	for i := range data {
		bad := append([]byte(nil), data...)
		bad[i] ^= 0x40
		if _, err := decodeTreeRow("orders", bad); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "orders") {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
	for n := range data {
		if _, err := decodeTreeRow("orders", data[:n]); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestRowThatMakesNoSenseIsRefused(t *testing.T) {
	for name, edit := range map[string][2]string{
		"other name":           {`"name":"orders"`, `"name":"other"`},
		"short id":             {`00000000000000ab`, `ab`},
		"id not hex":           {`00000000000000ab`, `000000000000000g`},
		"unknown state":        {`"creating"`, `"sleeping"`},
		"unknown field":        {`"epoch":1`, `"epoch":1,"extra":true`},
		"gap in slots":         {`[1024,2047,1]`, `[1025,2047,1]`},
		"slots end early":      {`,[3072,4095,3]`, ``},
		"slot out of range":    {`[3072,4095,3]`, `[3072,4096,3]`},
		"wrapping slot":        {`[3072,4095,3]`, `[3072,69631,3]`},
		"shard not allocated":  {`[3072,4095,3]`, `[3072,4095,4]`},
		"no shards":            {`"nextShard":4`, `"nextShard":0`},
		"absurdly many shards": {`"nextShard":4`, `"nextShard":4000000000`},
		"negative shard count": {`"nextShard":4`, `"nextShard":-1`},
		"too many updates":     {`["01"]`, `["` + strings.Repeat(`x","`, keptUpdates) + `"]`},
		"not JSON":             {`{"name"`, `"name"`},
	} {
		text := strings.Replace(goldenRow, edit[0], edit[1], 1)
		if text == goldenRow {
			t.Fatalf("%s: nothing replaced", name)
		}
		if _, err := decodeTreeRow("orders", rowFormat.Seal([]byte(text))); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRowDecoderNeverPanics(f *testing.F) {
	f.Add([]byte(goldenRow), true)
	f.Add([]byte(`{"slots":[[4294967295,0,0]]}`), true)
	f.Add([]byte("LTTR\x01"), false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = rowFormat.Seal(data)
		}
		r, err := decodeTreeRow("orders", data)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("not ErrCorrupt: %v", err)
			}
			return
		}
		if m, err := r.shardMap(); err != nil || len(m.Shards()) == 0 {
			t.Fatalf("accepted a row without a map: %v", err)
		}
	})
}

func FuzzPositionDecoderNeverPanics(f *testing.F) {
	f.Add([]byte(`{"tree":"a","shard":1}`), true)
	f.Add([]byte(`{"tree":"_","shard":-1}`), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = positionFormat.Seal(data)
		}
		if _, err := decodePosition("~walk", data); err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("not ErrCorrupt: %v", err)
		}
	})
}

func TestMapSurvivesTheRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs := []keyspace.Range{}
		for slot := range uint16(keyspace.Slots) {
			runs = append(runs, keyspace.Range{From: slot, To: slot, Shard: keyspace.ShardID(slot % 7)})
		}
		for range rapid.IntRange(0, 20).Draw(t, "edits") {
			runs[rapid.IntRange(0, keyspace.Slots-1).Draw(t, "slot")].Shard = keyspace.ShardID(rapid.IntRange(0, 9).Draw(t, "shard"))
		}
		m, err := keyspace.FromRanges(rapid.Uint64().Draw(t, "version"), runs)
		if err != nil {
			t.Fatal(err)
		}
		r := row{NextShard: 10}
		r.setMap(m)
		back, err := r.shardMap()
		if err != nil || *back != *m {
			t.Fatalf("the map changed: %v", err)
		}
	})
}

func TestRowRemembersOnlyTheLatestUpdates(t *testing.T) {
	r := row{}
	for i := range keptUpdates + 5 {
		before := r.Updates
		r.stamp(string(rune('a' + i)))
		if len(before) > 0 && !r.carries(before[len(before)-1]) {
			t.Fatal("an update was forgotten at once")
		}
	}
	if len(r.Updates) != keptUpdates || r.carries("a") || !r.carries(string(rune('a'+keptUpdates+4))) || r.Revision != keptUpdates+5 {
		t.Errorf("got %+v", r)
	}
}

func TestPartitionNamesFitTheStore(t *testing.T) {
	r := sampleRow(t)
	for _, id := range []keyspace.ShardID{0, 255, maxShards} {
		if err := store.CheckKey("partition", r.partition(id)); err != nil {
			t.Error(err)
		}
		if err := store.CheckBlobName(r.partition(id) + "/x"); err != nil {
			t.Error(err)
		}
	}
	long := strings.Repeat("z", 128)
	if err := store.CheckKey("row key", rowKey(long)); err != nil {
		t.Error(err)
	}
	if rowKey("z...") >= endOfTrees || rowKey("a") >= rowKey("ab") || rowKey("Z") >= rowKey("a") {
		t.Error("row keys are out of order")
	}
}

func TestTreeNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A.b_c-9": true, "0": true, strings.Repeat("x", 128): true,
		"": false, "_sys": false, ".a": false, "-a": false, "a b": false, "a/b": false, "é": false, "a\x00": false, "~": false,
		strings.Repeat("x", 129): false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := CheckName("_sys"); !strings.Contains(err.Error(), "reserved") {
		t.Errorf("the reserved name says %v", err)
	}
}
