package redis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// node is a server with keys of its own: the only one, or a master of a cluster.
type node struct {
	// id and first slot; empty outside of a cluster.
	id    string
	first int
	// addr is empty for the server of the URL.
	addr string
}

// options are how to connect to the node.
func (n node) options(dial *goredis.Options) *goredis.Options {
	o := *dial
	if n.addr == "" {
		return &o
	}
	o.Addr, o.Network = n.addr, "tcp"
	if host, _, err := net.SplitHostPort(n.addr); err == nil && o.TLSConfig != nil && net.ParseIP(host) == nil {
		o.TLSConfig = o.TLSConfig.Clone()
		o.TLSConfig.ServerName = host
	}
	return &o
}

// findNodes learns which servers hold the keys.
func (s *Source) findNodes(ctx context.Context) error {
	s.nodes, s.topology = []node{{}}, ""
	if mode := s.caps.info["redis_mode"]; mode != "" && mode != "cluster" {
		return nil
	}
	slots, err := s.slots(ctx)
	if refused(err) && s.caps.info["redis_mode"] == "" {
		return nil // neither INFO nor CLUSTER: one server, as far as one can know
	}
	if err != nil {
		return s.explain(err)
	}
	s.nodes, err = s.masters(slots)
	s.topology = layout(slots)
	return err
}

func (s *Source) slots(ctx context.Context) (slots []goredis.ClusterSlot, err error) {
	err = s.retry(ctx, func() (err error) {
		//lint:ignore SA1019 Redis before 7 has nothing else
		slots, err = s.client.ClusterSlots(ctx).Result()
		return err
	})
	slices.SortFunc(slots, func(a, b goredis.ClusterSlot) int { return cmp.Compare(a.Start, b.Start) })
	return slots, err
}

// masters are the nodes with slots, by their first slot; slots are in order.
func (s *Source) masters(slots []goredis.ClusterSlot) ([]node, error) {
	var nodes []node
	next := 0
	for _, r := range slots {
		if r.Start != next || len(r.Nodes) == 0 {
			break
		}
		next = r.End + 1
		m := r.Nodes[0]
		if slices.ContainsFunc(nodes, func(n node) bool { return n.id == m.ID }) {
			continue
		}
		host, port, err := net.SplitHostPort(m.Addr)
		if err != nil {
			return nil, fmt.Errorf("%s: the cluster gives no usable address of the master of slot %d", s.label, r.Start)
		}
		if host == "" || host == "?" {
			// The node does not know its own name: it is where it was asked.
			if host, _, err = net.SplitHostPort(s.dial.Addr); err != nil {
				host = s.dial.Addr
			}
		}
		nodes = append(nodes, node{id: m.ID, first: r.Start, addr: net.JoinHostPort(host, port)})
	}
	if next != clusterSlots {
		return nil, fmt.Errorf("%s: slot %d of the cluster has no master: repair the cluster first (redis-cli --cluster check)", s.label, next)
	}
	return nodes, nil
}

const clusterSlots = 16384

// errReshaped: keys may have gone from one master to another.
var errReshaped = restart("slots of the cluster have moved to other masters")

// layout is a digest of which master owns which slots; slots are in order.
func layout(slots []goredis.ClusterSlot) string {
	var b strings.Builder
	for _, r := range slots {
		owner := ""
		if len(r.Nodes) > 0 {
			owner = r.Nodes[0].ID
		}
		b.WriteString(strconv.Itoa(r.Start) + "-" + strconv.Itoa(r.End) + "@" + owner + "\n")
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}

// settled fails if slots have moved since the nodes were found: a key may then
// have gone from a node not yet read to one that was.
func (s *Source) settled(ctx context.Context) error {
	if s.topology == "" {
		return nil
	}
	slots, err := s.slots(ctx)
	if err != nil {
		return s.explain(err)
	}
	if layout(slots) != s.topology {
		return errReshaped
	}
	return nil
}
