package shard

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/providers/memory"
)

// A mirror gives up where a lease bars the way; a write of somebody else that is
// in one group with it waits, as it would have alone, whichever of them is first.
func TestAMirrorInAGroupFailsAlone(t *testing.T) {
	for first := range 2 {
		synctest.Test(t, func(t *testing.T) {
			src := clock.NewSystem()
			mem := memory.New(memory.Options{Clock: src})
			open := func(leases bool) *Shard {
				cfg := DefaultConfig()
				cfg.Table, cfg.Blobs, cfg.Clock, cfg.Instance, cfg.Leases = mem.Table(), mem.Blobs(), src, src.Uint64()|1, leases
				p, err := NewPool(cfg)
				if err != nil {
					t.Fatal(err)
				}
				return p.Shard("s-test-0")
			}
			owner, other := open(true), open(false)
			if err := owner.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := owner.Write(t.Context(), []Write{{Op: OpPut, Key: "k", Value: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			request := func(w Write) *pending {
				return &pending{writes: []Write{w}, results: make([]WriteResult, 1), records: 1}
			}
			mirror := request(Write{Op: OpPrepare, Tx: record.ID{1}, Key: "m", Migration: "x", hasty: true})
			plain := request(Write{Op: OpPut, Key: "k", Value: []byte("2")})
			group := []*pending{mirror, plain}
			group[0], group[1] = group[first], group[1-first]
			other.commit(t.Context(), group)
			if first == 0 && !errors.Is(mirror.err, errLeaseHeld) { // later, the lease has run out
				t.Errorf("the mirror has %v", mirror.err)
			}
			if plain.err != nil || plain.results[0].Status != StatusApplied {
				t.Errorf("the write has %+v, %v", plain.results[0], plain.err)
			}
		})
	}
}
