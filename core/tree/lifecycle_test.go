package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func TestCreateIsIdempotentForTheSameSettings(t *testing.T) {
	in, m := fresh(t)
	ctx := t.Context()
	o := CreateOptions{ShardCount: 8, Options: map[string]json.RawMessage{"SoftDeleteDuration": raw(`"1h"`)}}
	info, created, err := in.Create(ctx, "t", o)
	if err != nil || !created || info.Shards != 8 || info.State != StateActive || info.Created.IsZero() || !info.Deleted.IsZero() {
		t.Fatalf("%+v %v %v", info, created, err)
	}
	other := open(t, m.Table(), m.Blobs())
	for name, o := range map[string]CreateOptions{
		"same": o, "nothing said": {}, "count only": {ShardCount: 8},
		"same in another form": {Options: map[string]json.RawMessage{"SoftDeleteDuration": raw(`3600`)}},
	} {
		if again, created, err := other.Create(ctx, "t", o); err != nil || created || again.Created != info.Created {
			t.Errorf("%s: %+v %v %v", name, again, created, err)
		}
	}
	for name, o := range map[string]CreateOptions{
		"other count": {ShardCount: 4}, "other value": {Options: map[string]json.RawMessage{"SoftDeleteDuration": raw(`"2h"`)}},
		"more options": {Options: map[string]json.RawMessage{"SoftDeleteDuration": raw(`"1h"`), "MaxScanRetries": raw(`1`)}},
	} {
		if _, _, err := other.Create(ctx, "t", o); !errors.Is(err, ErrTreeExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCreateRefusesBadArguments(t *testing.T) {
	in, _ := fresh(t)
	for _, c := range []struct {
		name, field string
		o           CreateOptions
	}{
		{"_x", "tree", CreateOptions{}},
		{"t", "shardCount", CreateOptions{ShardCount: 257}},
		{"t", "shardCount", CreateOptions{ShardCount: -1}},
		{"t", "options.Nonsense", CreateOptions{Options: map[string]json.RawMessage{"Nonsense": raw("1")}}},
		{"t", "options.CacheBytes", CreateOptions{Options: map[string]json.RawMessage{"CacheBytes": raw("1048576")}}},
		{"t", "options", CreateOptions{Options: map[string]json.RawMessage{"CacheBytes": raw("1048576"), "X": raw("1")}}},
	} {
		_, _, err := in.Create(t.Context(), c.name, c.o)
		wantArgument(t, err, c.field)
	}
	if infos, _, err := in.List(t.Context(), "", 10); err != nil || len(infos) != 0 {
		t.Errorf("something was created: %v %v", infos, err)
	}
}

func TestSixtyFourFirstWritesMakeOneTree(t *testing.T) {
	m := memory.New(memory.Options{})
	var instances []*instance
	for range 4 {
		instances = append(instances, open(t, m.Table(), m.Blobs()))
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			in := instances[i%4]
			h, err := in.OpenOrCreate(t.Context(), "t")
			if err == nil {
				_, err = h.Put(t.Context(), fmt.Sprintf("k%02d", i), nil, PutOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	keys, _ := walkPages(t, open(t, m.Table(), m.Blobs()).writer(t, "t"), ScanQuery{Limit: 100})
	if len(keys) != 64 {
		t.Errorf("%d keys of 64 survived", len(keys))
	}
}

func TestOneOfManyCreatorsIsToldSo(t *testing.T) {
	m := memory.New(memory.Options{})
	var created atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		in := open(t, m.Table(), m.Blobs())
		for range 4 {
			wg.Go(func() {
				_, mine, err := in.Create(t.Context(), "t", CreateOptions{})
				if err != nil {
					t.Error(err)
				}
				if mine {
					created.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if created.Load() != 1 {
		t.Errorf("%d creators were told that they created the tree", created.Load())
	}
}

func TestReadingCreatesNothing(t *testing.T) {
	in, _ := fresh(t)
	_, err := in.Open(t.Context(), "t")
	wantErr(t, err, ErrTreeNotFound)
	_, err = in.Info(t.Context(), "t")
	wantErr(t, err, ErrTreeNotFound)
	off, _ := fresh(t, func(o *options.Options) { o.AutoCreateTrees = false })
	_, err = off.OpenOrCreate(t.Context(), "t")
	wantErr(t, err, ErrTreeNotFound)
	for _, f := range []func(context.Context, string) error{in.Delete, in.Recover, in.Purge} {
		wantErr(t, f(t.Context(), "t"), ErrTreeNotFound)
		wantArgument(t, f(t.Context(), "_t"), "tree")
	}
}

func TestNotFoundIsNotRemembered(t *testing.T) {
	a, m := fresh(t)
	b := open(t, m.Table(), m.Blobs())
	_, err := a.Open(t.Context(), "t")
	wantErr(t, err, ErrTreeNotFound)
	put(t, b.writer(t, "t"), "k")
	h, err := a.Open(t.Context(), "t")
	must(t, err)
	if _, ok, err := h.Get(t.Context(), "k", ReadOptions{}); err != nil || !ok {
		t.Errorf("%v %v", ok, err)
	}
}

func TestDeletedTreeRefusesEverythingOnEveryInstance(t *testing.T) {
	a, m := fresh(t)
	b := open(t, m.Table(), m.Blobs())
	ctx := t.Context()
	put(t, a.writer(t, "t"), "k")
	h := b.writer(t, "t") // b remembers the tree as active
	put(t, h, "k2")
	must(t, a.Delete(ctx, "t"))
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrTreeDeleted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := h.Get(ctx, "k", ReadOptions{})
	check("get", err)
	_, err = h.Put(ctx, "k", nil, PutOptions{})
	check("put", err)
	_, err = h.Batch(ctx, []BatchOp{{Key: "k"}})
	check("batch", err)
	_, err = h.GetMany(ctx, []string{"k"}, ReadOptions{})
	check("get many", err)
	_, err = h.Scan(ctx, ScanQuery{Limit: 1})
	check("scan", err)
	_, err = h.Count(ctx, Bounds{}, ReadOptions{})
	check("count", err)
	_, err = h.DeleteRange(ctx, Bounds{})
	check("delete range", err)
	_, err = b.OpenOrCreate(ctx, "t")
	check("open", err)
	_, _, err = b.Create(ctx, "t", CreateOptions{})
	check("create", err)
	_, err = b.SetOptions(ctx, "t", nil)
	check("set options", err)
	must(t, b.Delete(ctx, "t")) // again
	info, err := b.Info(ctx, "t")
	if err != nil || info.State != StateDeleted || info.Deleted.IsZero() {
		t.Errorf("%+v %v", info, err)
	}
	must(t, b.Recover(ctx, "t"))
	wantErr(t, b.Recover(ctx, "t"), ErrTreeNotDeleted)
	wantErr(t, b.Purge(ctx, "t"), ErrTreeNotDeleted)
	for _, in := range []*instance{a, b} {
		if keys, _ := walkPages(t, in.writer(t, "t"), ScanQuery{Limit: 10}); !slices.Equal(keys, []string{"k", "k2"}) {
			t.Errorf("recovered %v", keys)
		}
	}
}

func TestNoWriteIsAcknowledgedAfterADeleteReturned(t *testing.T) {
	a, m := fresh(t)
	put(t, a.writer(t, "t"), "seed")
	var deleted atomic.Bool
	var wg sync.WaitGroup
	acked := make([][]string, 8)
	for i := range acked {
		in := open(t, m.Table(), m.Blobs())
		h := in.writer(t, "t")
		wg.Go(func() {
			for n := range 2000 {
				late := deleted.Load()
				key := fmt.Sprintf("%d-%06d", i, n)
				if _, err := h.Put(t.Context(), key, nil, PutOptions{}); err != nil {
					if !errors.Is(err, ErrTreeDeleted) {
						t.Error(err)
					}
					return
				}
				if late {
					t.Error("a write was acknowledged that began after the delete had returned")
				}
				acked[i] = append(acked[i], key)
			}
		})
	}
	must(t, a.Delete(t.Context(), "t"))
	deleted.Store(true)
	wg.Wait()
	must(t, a.Recover(t.Context(), "t"))
	want := append(slices.Concat(acked...), "seed")
	slices.Sort(want)
	if keys, _ := walkPages(t, a.writer(t, "t"), ScanQuery{Limit: 1000}); !slices.Equal(keys, want) {
		t.Errorf("%d keys after recovery, %d acknowledged", len(keys), len(want))
	}
}

func TestPurgedTreeIsGoneAndItsNameFree(t *testing.T) {
	a, m := fresh(t)
	b := open(t, m.Table(), m.Blobs())
	ctx := t.Context()
	h := b.writer(t, "t")
	load(t, h, 50)
	_, err := h.Put(ctx, "large", make([]byte, 1<<20), PutOptions{})
	must(t, err)
	partitions := h.entry.cur.Load().partitions
	must(t, a.Delete(ctx, "t"))
	must(t, a.Purge(ctx, "t"))
	wantErr(t, a.Purge(ctx, "t"), ErrTreeNotFound)
	for _, p := range partitions {
		page, err := m.Table().Range(ctx, p, store.RangeQuery{})
		if err != nil || len(page.Rows) != 1 {
			t.Errorf("%s holds %d rows, %v: only the closed head stays", p, len(page.Rows), err)
		}
	}
	if blobs, err := m.Blobs().List(ctx, "", ""); err != nil || len(blobs.Blobs) != 0 {
		t.Errorf("%d blobs left, %v", len(blobs.Blobs), err)
	}
	reader, err := b.Open(ctx, "t") // remembered as active
	must(t, err)
	_, _, err = reader.Get(ctx, "large", ReadOptions{})
	wantErr(t, err, ErrTreeNotFound)
	put(t, h, "new") // the writer creates it again
	for _, in := range []*instance{a, b} {
		if keys, _ := walkPages(t, in.writer(t, "t"), ScanQuery{Limit: 10}); !slices.Equal(keys, []string{"new"}) {
			t.Errorf("the new tree holds %v", keys)
		}
	}
}

func TestGravesAreClearedLongAfterThePurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, m := fresh(t)
		ctx := t.Context()
		var partitions, records []string
		for i := range 3 {
			h := in.writer(t, "t")
			partitions = append(partitions, h.entry.cur.Load().partitions...)
			records = append(records, "t-"+h.entry.cur.Load().ID)
			_, err := m.Table().Apply(ctx, records[i], []store.Op{store.Insert("monitor", nil), store.Insert("split-1", nil)})
			must(t, err)
			must(t, in.Delete(ctx, "t"))
			must(t, in.Purge(ctx, "t"))
			must(t, in.clock.Sleep(ctx, time.Duration(i)*24*time.Hour))
		}
		rows := func() (heads, graves int) {
			for _, p := range partitions {
				page, err := m.Table().Range(ctx, p, store.RangeQuery{})
				must(t, err)
				heads += len(page.Rows)
			}
			page, err := m.Table().Range(ctx, partitionRegistry, store.RangeQuery{From: gravePrefix, To: gravePrefix + "~"})
			must(t, err)
			return heads, len(page.Rows)
		}
		for _, c := range []struct {
			wait  time.Duration
			heads int
		}{{0, 12}, {4*24*time.Hour + time.Second, 4}, {0, 4}, {2 * 24 * time.Hour, 0}} {
			must(t, in.clock.Sleep(ctx, c.wait))
			rep, err := in.Collect(ctx, 0)
			must(t, err)
			if heads, graves := rows(); heads != c.heads || graves != c.heads/4 || rep.Failed != 0 {
				t.Errorf("after %v: %d heads of %d graves, want %d: %+v", c.wait, heads, graves, c.heads, rep)
			}
		}
		for _, p := range records {
			if page, err := m.Table().Range(ctx, p, store.RangeQuery{}); err != nil || len(page.Rows) != 0 {
				t.Errorf("%d rows about splits are left, %v", len(page.Rows), err)
			}
		}
	})
}

func TestDamagedGraveIsLoud(t *testing.T) {
	in, m := fresh(t)
	for _, data := range [][]byte{[]byte("x"), graveFormat.Seal([]byte(`{"id":"00"}`)), graveFormat.Seal([]byte(`{"more":1}`))} {
		_, _ = m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Delete(gravePrefix+"0", "")})
		_, err := m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Insert(gravePrefix+"0", data)})
		must(t, err)
		_, err = in.Collect(t.Context(), 0)
		wantErr(t, err, store.ErrCorrupt)
	}
}

func TestListPagesInOrderOfNames(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DefaultShardCount = 1 })
	want := []string{"0", "A", "B.c", "a", "a-b", "aa", "b", "z_9"}
	for _, n := range []string{"b", "aa", "0", "z_9", "A", "a-b", "B.c", "a"} {
		in.writer(t, n)
	}
	must(t, in.Delete(t.Context(), "aa"))
	for limit := 1; limit <= 9; limit++ {
		var got []string
		for after := ""; ; {
			infos, next, err := in.List(t.Context(), after, limit)
			must(t, err)
			for _, i := range infos {
				got = append(got, i.Name)
				if (i.State == StateDeleted) != (i.Name == "aa") {
					t.Errorf("%s is %s", i.Name, i.State)
				}
			}
			if after = next; after == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	for _, limit := range []int{0, -1, maxListed + 1} {
		_, _, err := in.List(t.Context(), "", limit)
		wantArgument(t, err, "limit")
	}
}

func TestOptionsOfATree(t *testing.T) {
	in, m := fresh(t)
	ctx := t.Context()
	in.writer(t, "t")
	info, err := in.SetOptions(ctx, "t", map[string]json.RawMessage{"MaxScanRetries": raw("9"), "SoftDeleteDuration": raw("60")})
	if err != nil || string(info.Options["SoftDeleteDuration"]) != `"1m0s"` {
		t.Fatalf("%v %v", info.Options, err)
	}
	info, err = in.SetOptions(ctx, "t", map[string]json.RawMessage{"SoftDeleteDuration": raw("null")})
	if err != nil || len(info.Options) != 1 {
		t.Fatalf("%v %v", info.Options, err)
	}
	_, err = in.SetOptions(ctx, "t", map[string]json.RawMessage{"Leases": raw("true")})
	wantArgument(t, err, "options.Leases")
	values, err := open(t, m.Table(), m.Blobs()).Settings(info)
	must(t, err)
	for _, v := range values {
		if v.Name == "MaxScanRetries" && (v.Value != 9 || v.Origin != options.OriginTree) {
			t.Errorf("%+v", v)
		}
	}
	_, err = in.SetOptions(ctx, "nope", nil)
	wantErr(t, err, ErrTreeNotFound)
}

func TestOptionsReachOtherInstancesWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, m := fresh(t)
		b := open(t, m.Table(), m.Blobs())
		h := b.writer(t, "t")
		_, err := a.SetOptions(t.Context(), "t", map[string]json.RawMessage{"MaxScanRetries": raw("9")})
		must(t, err)
		if got := h.entry.cur.Load().opts.MaxScanRetries; got != 3 {
			t.Fatalf("already %d", got)
		}
		must(t, a.clock.Sleep(t.Context(), metaMaxAge+time.Second))
		b.writer(t, "t")
		if got := h.entry.cur.Load().opts.MaxScanRetries; got != 9 {
			t.Errorf("still %d", got)
		}
	})
}

func TestConcurrentUpdatesAllCount(t *testing.T) {
	m := memory.New(memory.Options{})
	open(t, m.Table(), m.Blobs()).writer(t, "t")
	var wg sync.WaitGroup
	for i := range 8 {
		flaky := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		flaky.Add(
			faulty.Rule{When: faulty.Kinds(faulty.Apply), Chance: 0.2, Do: faulty.Lose()},
			faulty.Rule{When: faulty.Kinds(faulty.Apply), Chance: 0.2, Do: faulty.Duplicate()},
			faulty.Rule{When: faulty.Any, Chance: 0.1, Do: faulty.Fail(store.ErrThrottled)},
		)
		in := open(t, flaky.Table(), flaky.Blobs())
		wg.Go(func() {
			for range 5 {
				if _, err := in.reg.update(t.Context(), "t", func(r *row) error { r.NextShard++; return nil }); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	s, err := (&registry{table: m.Table()}).read(t.Context(), "t")
	must(t, err)
	if s.NextShard != 4+40 {
		t.Errorf("next shard is %d, 44 expected: an update was lost or counted twice", s.NextShard)
	}
}

func TestUpdateGivesUpWithTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		open(t, m.Table(), m.Blobs()).writer(t, "t")
		flaky := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		flaky.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Do: faulty.Fail(store.ErrThrottled)})
		in := open(t, flaky.Table(), flaky.Blobs())
		_, err := in.SetOptions(t.Context(), "t", map[string]json.RawMessage{"MaxScanRetries": raw("1")})
		wantErr(t, err, store.ErrThrottled)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = in.SetOptions(ctx, "t", map[string]json.RawMessage{"MaxScanRetries": raw("1")})
		wantErr(t, err, store.ErrThrottled)
	})
}

func TestLateDecisionsDoNotTouchTheShards(t *testing.T) {
	a, m := fresh(t)
	b := open(t, m.Table(), m.Blobs())
	ctx := t.Context()
	put(t, a.writer(t, "t"), "k")
	must(t, a.Delete(ctx, "t"))
	deleted, err := a.reg.read(ctx, "t")
	must(t, err)
	must(t, b.Recover(ctx, "t"))
	recovered, err := a.reg.read(ctx, "t")
	must(t, err)
	// An instance that was frozen in the middle of the delete goes on with it.
	_, err = a.settleClosed(ctx, deleted, true)
	must(t, err)
	closed(t, b, false)
	must(t, b.Delete(ctx, "t"))
	// And so does one that was frozen in the middle of the recovery.
	_, err = a.settleClosed(ctx, recovered, false)
	must(t, err)
	closed(t, b, true)
}

func TestPurgeByCollectLeavesATreeAloneThatWasDeletedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t, func(o *options.Options) { o.SoftDeleteDuration = time.Hour })
		ctx := t.Context()
		put(t, in.writer(t, "t"), "k")
		must(t, in.Delete(ctx, "t"))
		first, err := in.reg.read(ctx, "t")
		must(t, err)
		must(t, in.clock.Sleep(ctx, 2*time.Hour))
		must(t, in.Recover(ctx, "t"))
		must(t, in.Delete(ctx, "t"))
		// A collector that read the row before acts on what it saw.
		wantErr(t, in.purge(ctx, "t", first.Deleted), ErrTreeNotDeleted)
		rep, err := in.Collect(ctx, 0)
		if err != nil || len(rep.Purged) != 0 {
			t.Errorf("%+v %v", rep, err)
		}
		must(t, in.Recover(ctx, "t"))
		if _, ok, err := in.writer(t, "t").Get(ctx, "k", ReadOptions{}); err != nil || !ok {
			t.Errorf("%v %v", ok, err)
		}
	})
}

func TestSettingsThatNoLongerFitAreReportedAndCanBeMended(t *testing.T) {
	in, m := fresh(t)
	in.writer(t, "t")
	_, err := in.SetOptions(t.Context(), "t", map[string]json.RawMessage{"InlineValueBytes": raw(`"512KiB"`)})
	must(t, err)
	small := open(t, m.Table(), m.Blobs(), func(o *options.Options) { o.GroupCommitMaxBytes = 256 << 10 })
	if _, err = small.Open(t.Context(), "t"); err == nil || !strings.Contains(err.Error(), "InlineValueBytes") {
		t.Fatalf("opened with settings that do not fit: %v", err)
	}
	_, err = small.SetOptions(t.Context(), "t", map[string]json.RawMessage{"InlineValueBytes": raw(`null`)})
	must(t, err)
	put(t, small.writer(t, "t"), "k")
}

func TestDamagedRegistryRowIsLoud(t *testing.T) {
	in, m := fresh(t)
	_, err := m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Insert(rowKey("t"), []byte("junk"))})
	must(t, err)
	_, err = in.OpenOrCreate(t.Context(), "t")
	wantErr(t, err, store.ErrCorrupt)
	_, _, err = in.List(t.Context(), "", 10)
	wantErr(t, err, store.ErrCorrupt)
	_, err = in.Collect(t.Context(), 0)
	wantErr(t, err, store.ErrCorrupt)
}

func TestReadyAsksBothStores(t *testing.T) {
	m := memory.New(memory.Options{})
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	in := open(t, f.Table(), f.Blobs())
	must(t, in.Ready(t.Context()))
	if f.Calls() != 2 {
		t.Errorf("%d calls", f.Calls())
	}
	f.Kill()
	wantErr(t, in.Ready(t.Context()), store.ErrUnavailable)
}

func TestNewReportsEveryFault(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a DB over nothing")
	}
	m := memory.New(memory.Options{})
	in, _ := fresh(t)
	o := options.Default()
	o.MaxScanRetries, o.MaxPageEntries = -1, 0
	_, err := New(Config{Table: m.Table(), Blobs: m.Blobs(), Clock: in.clock, Options: o})
	if len(options.Faults(err)) != 3 {
		t.Errorf("faults: %v", err)
	}
	db, err := New(Config{Table: m.Table(), Blobs: m.Blobs(), Clock: in.clock, Options: options.Default()})
	must(t, err)
	must(t, db.Ready(t.Context()))
	if got := db.Options(); got.MaxScanRetries != 3 {
		t.Errorf("options %+v", got)
	}
}

func TestRememberedTreesAreBounded(t *testing.T) {
	in, _ := fresh(t)
	for i := range maxCachedTrees + 100 {
		in.entryOf(fmt.Sprint("t", i))
	}
	if n := len(in.trees); n > maxCachedTrees {
		t.Errorf("%d trees remembered", n)
	}
}

// TestRecoveryWithAShardThatStaysClosedIsNotOver: whoever opens the tree next
// finishes it.
func TestRecoveryWithAShardThatStaysClosedIsNotOver(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DefaultShardCount = 4 })
	h := in.writer(t, "t")
	keys := load(t, h, 40)
	must(t, in.Delete(t.Context(), "t"))
	first := true
	in.hooks.set(func(op, partition string) error {
		if op == "close" && strings.HasSuffix(partition, "-2") && first {
			first = false
			return shard.ErrClosed
		}
		return nil
	})
	wantErr(t, in.Recover(t.Context(), "t"), store.ErrUnavailable)
	in.hooks.set(nil)
	if n, err := in.writer(t, "t").Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || n.Total != int64(len(keys)) {
		t.Errorf("then it has %+v, %v", n, err)
	}
}
