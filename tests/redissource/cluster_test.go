package redissource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/redis"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/tests/engines"
)

const slots = 16384

// busPort returns a free port for a node to talk to its peers.
func busPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startCluster runs a cluster of masters that share the slots evenly.
func startCluster(t *testing.T, masters int) []engines.Redis {
	t.Helper()
	ctx := t.Context()
	nodes := make([]engines.Redis, masters)
	ports := make([]int, masters)
	for i := range nodes {
		ports[i] = busPort(t)
		nodes[i] = engines.StartRedis(t, "cluster-enabled yes", fmt.Sprintf("cluster-port %d", ports[i]))
		first, last := i*slots/masters, (i+1)*slots/masters-1
		must(t, nodes[i].Client(t).Do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last).Err())
	}
	for i := 1; i < masters; i++ {
		host, port, err := net.SplitHostPort(nodes[i].Addr)
		must(t, err)
		must(t, nodes[0].Client(t).Do(ctx, "CLUSTER", "MEET", host, port, ports[i]).Err())
	}
	for _, n := range nodes {
		await(t, func() bool {
			info, err := n.Client(t).ClusterInfo(ctx).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_slots_ok:16384") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", masters))
		})
	}
	return nodes
}

// await polls until a condition holds.
func await(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("the condition never came to hold")
		case <-tick.C:
		}
	}
}

// All masters of a cluster are read, through whichever of them the URL names;
// once slots have moved, the enumeration asks to be begun anew.
func TestClusterIsReadMasterByMaster(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	ctx := t.Context()
	nodes := startCluster(t, 3)
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{nodes[0].Addr},
		NewClient: func(o *goredis.Options) *goredis.Client {
			for _, n := range nodes {
				if n.Addr == o.Addr {
					o.Password = n.Password
				}
			}
			return goredis.NewClient(o)
		}})
	defer cluster.Close()
	for _, n := range nodes { // one password for all, as clusters have
		must(t, n.Client(t).ConfigSet(ctx, "requirepass", nodes[0].Password).Err())
	}
	for i := range nodes {
		nodes[i].Password = nodes[0].Password
	}
	const n = 3000
	_, err := cluster.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i := range n {
			p.Set(ctx, fmt.Sprintf("key:%d", i), i, 0)
			if i%100 == 0 {
				p.HSet(ctx, fmt.Sprintf("hash:%d", i), "f", i)
			}
		}
		return nil
	})
	must(t, err)

	url := "redis://:" + nodes[0].Password + "@" + nodes[1].Addr
	s := open(t, redis.Options{URL: url, DB: -1, ScanCount: 100})
	info, err := s.Inspect(ctx)
	must(t, err)
	const all = n + n/100
	if info.Estimate != all || !strings.Contains(strings.Join(info.Notes, " "), "3 masters") {
		t.Errorf("info %+v", info)
	}
	d := readAll(t, s, nil)
	if len(d.records) != all || len(d.faults) != 0 {
		t.Fatalf("%d records, want %d; faults %v", len(d.records), all, d.faults)
	}
	resumeOnSecondMaster(t, s, url, all)

	moveEmptySlot(t, nodes)
	seen := 0
	for _, err = range s.Read(ctx, nil) {
		seen++
	}
	if !errors.Is(err, source.ErrRestart) {
		t.Fatalf("slots moved before the enumeration ended, which says %v after %d pages", err, seen)
	}
	if d := readAll(t, s, nil); len(d.records) != all {
		t.Fatalf("begun anew: %d records, want %d", len(d.records), all)
	}
	if _, err := open(t, redis.Options{URL: url, DB: 1}).Inspect(ctx); err == nil || !strings.Contains(err.Error(), "database 0 only") {
		t.Errorf("database 1 of a cluster: %v", err)
	}
}

// resumeOnSecondMaster stops where the second master begins and goes on with a
// source of its own.
func resumeOnSecondMaster(t *testing.T, s *redis.Source, url string, all int) {
	t.Helper()
	d := newDataset()
	var at source.Position
	for p, err := range s.Read(t.Context(), nil) {
		must(t, err)
		d.add(p)
		if at = p.Next; strings.Contains(string(at), `"node":1,"cursor":"0"`) {
			break
		}
	}
	before := len(d.records)
	for p, err := range open(t, redis.Options{URL: url, DB: -1, ScanCount: 100}).Read(t.Context(), at) {
		must(t, err)
		d.add(p)
	}
	if len(d.records) != all || d.repeats != 0 || before == 0 || before == all {
		t.Fatalf("%d records before, %d after, want %d; %d repeated", before, len(d.records), all, d.repeats)
	}
}

// moveEmptySlot gives a slot without keys from the first master to the second.
func moveEmptySlot(t *testing.T, nodes []engines.Redis) {
	t.Helper()
	ctx := t.Context()
	to, err := nodes[1].Client(t).Do(ctx, "CLUSTER", "MYID").Text()
	must(t, err)
	first := nodes[0].Client(t)
	for slot := range slots / 3 {
		count, err := first.ClusterCountKeysInSlot(ctx, slot).Result()
		must(t, err)
		if count > 0 {
			continue
		}
		for _, i := range []int{1, 0, 2} {
			must(t, nodes[i].Client(t).Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to).Err())
		}
		return
	}
	t.Fatal("no slot is empty")
}
