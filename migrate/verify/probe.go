package verify

import (
	"github.com/latticekv/lattice/client"
)

const (
	// maxProbes and maxProbeBytes bound the values that are read together.
	maxProbes     = 200
	maxProbeBytes = 4 << 20
	// maxClosed bounds the buckets that wait for probes.
	maxClosed = 1_000
)

// probe is a pair whose value is to be read.
type probe struct {
	pair
	bucket *bucket
	// first says that the pair was not looked at before.
	first bool
}

// probes wait to be read together.
type probes struct {
	list  []probe
	bytes int64
}

// probe asks for the value of a pair.
func (j *join) probe(b *bucket, p pair, first bool) error {
	j.probes.list = append(j.probes.list, probe{p, b, first})
	j.probes.bytes += p.Item.Size
	if len(j.probes.list) >= maxProbes || j.probes.bytes >= maxProbeBytes {
		return j.flush()
	}
	return nil
}

// close finishes a bucket: the last matches are compared too.
func (j *join) close(b *bucket) error {
	for i := range b.Tail {
		if p := b.Tail[i]; !p.Settled {
			if err := j.probe(b, p, false); err != nil {
				return err
			}
		}
	}
	b.Tail = nil
	j.closed = append(j.closed, b)
	if len(j.closed) >= maxClosed {
		return j.flush()
	}
	return nil
}

// flush reads the values that are waited for, and writes the buckets that are
// finished by then.
func (j *join) flush() error {
	if err := j.settle(); err != nil {
		return err
	}
	for _, b := range j.closed {
		if err := j.prefixes.Line(Prefix{b.Prefix, b.Tally}); err != nil {
			return err
		}
		j.s.Closed++
	}
	j.closed = j.closed[:0]
	return nil
}

func (j *join) settle() error {
	if len(j.probes.list) == 0 {
		return nil
	}
	list := j.probes.list
	j.probes = probes{}
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = list[i].Item.Key
	}
	found := make(map[string]client.Entry, len(keys))
	if err := Fetch(j.ctx, j.tree, keys, func(e client.Entry) { found[e.Key] = e }); err != nil {
		return err
	}
	for i := range list {
		p := &list[i]
		e, ok := found[p.Item.Key]
		err := error(nil)
		if ok {
			err = j.compare(p.bucket, &p.pair, &e, p.first)
		} else {
			err = j.vanished(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// vanished deals with a key that was in the tree's stream and is gone.
func (j *join) vanished(p *probe) error {
	k, v := keySum(p.Item.Key), entrySum(p.Item.Key, p.Item.Digest)
	gone := j.expired(p.Item.Expiry) || j.expired(p.ExpiresAt)
	j.both(p.bucket, func(t *Tally) {
		t.Target--
		t.TargetKeys.sub(k)
		if gone {
			t.Source--
			t.SourceKeys.sub(k)
			t.SourceEntries.sub(v)
			t.count(Expired)
		}
	})
	if gone {
		return nil
	}
	return j.differs(p.bucket, Missing, &p.pair, nil)
}
