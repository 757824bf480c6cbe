package shard

import (
	"context"

	"github.com/latticekv/lattice/core/trace"
)

// send brings a plan to its outcome, and tells those who follow appends.
func (s *Shard) send(ctx context.Context, p *plan) (outcome, error) {
	if s.cfg.Trace == nil && s.cfg.Appended == nil {
		return s.deliver(ctx, p)
	}
	a := trace.Append{
		Tree: s.tuning.Load().Tree, Partition: s.partition,
		Requests: len(p.serves), Records: len(p.records), Bytes: p.bytes(),
	}
	var span trace.AppendSpan
	if h := s.cfg.Trace; h != nil {
		ctx, span = h.Append(ctx, a, p.refs())
	}
	start := s.cfg.Clock.Now().Mono
	out, err := s.deliver(ctx, p)
	end := trace.Appended{Outcome: trace.Landed, Took: s.cfg.Clock.Now().Mono - start, Err: err}
	switch {
	case err != nil:
		end.Outcome = trace.FailedWith(err)
	case out == outcomeLost:
		end.Outcome = trace.LostRace
	}
	if f := s.cfg.Appended; f != nil {
		f(ctx, a, end)
	}
	if span != nil {
		span.End(end)
	}
	return out, err
}

// bytes is the size of the transaction.
func (p *plan) bytes() int {
	n := 0
	for i := range p.ops {
		n += len(p.ops[i].Data)
	}
	return n
}

// refs name the operations that the append serves, as far as they are followed;
// the first of the group leads it, and is not among them.
func (p *plan) refs() []trace.Ref {
	var refs []trace.Ref
	for i := 1; i < len(p.serves); i++ {
		if ref := p.serves[i].ref; ref != nil {
			refs = append(refs, ref)
		}
	}
	return refs
}
