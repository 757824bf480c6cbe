package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// model is a partition as the contract describes it.
type model struct {
	rows map[string]store.Row
	// old are ETags that no row has any more; never empty.
	old []store.ETag
}

// fails returns the error that the contract demands of one operation.
func (m *model) fails(op store.Op) error {
	row, ok := m.rows[op.Key]
	switch {
	case op.Kind == store.OpInsert && ok:
		return store.ErrExists
	case op.Kind == store.OpInsert:
		return nil
	case op.IfMatch == "" && !ok:
		return store.ErrNotFound
	case op.IfMatch != "" && (!ok || row.ETag != op.IfMatch):
		return store.ErrPrecondition
	}
	return nil
}

func (m *model) commit(ops []store.Op, etags []store.ETag) {
	for i, op := range ops {
		if row, ok := m.rows[op.Key]; ok {
			m.old = append(m.old, row.ETag)
		}
		delete(m.rows, op.Key)
		if op.Kind != store.OpDelete {
			m.rows[op.Key] = store.Row{Key: op.Key, ETag: etags[i], Data: op.Data}
		}
	}
}

// randomOps draws a transaction over few keys, so that conditions hold about
// as often as they fail.
func (m *model) randomOps(rng *rand.Rand) []store.Op {
	ops := make([]store.Op, 0, 4)
	for _, k := range rng.Perm(12)[:1+rng.IntN(4)] {
		key := fmt.Sprintf("k%02d", k)
		data := pattern(rng.IntN(50), byte(rng.IntN(256)))
		etag := m.rows[key].ETag
		if etag == "" || rng.IntN(8) == 0 {
			etag = m.old[rng.IntN(len(m.old))]
		}
		switch _, present := m.rows[key]; {
		case rng.IntN(8) == 0:
			ops = append(ops, store.Delete(key, ""))
		case present && rng.IntN(3) == 0:
			ops = append(ops, store.Delete(key, etag))
		case present && rng.IntN(8) > 0:
			ops = append(ops, store.Replace(key, data, etag))
		default:
			ops = append(ops, store.Insert(key, data))
		}
	}
	return ops
}

// matchesModel walks randomly and compares every answer. It begins with a row
// that came and went, so that there is an old ETag.
func matchesModel(t *testing.T, f fixture) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{rows: map[string]store.Row{}, old: []store.ETag{f.apply(t, store.Insert("gone", nil))[0]}}
	f.apply(t, store.Delete("gone", ""))
	for step := range f.ModelSteps {
		ops := m.randomOps(rng)
		etags, err := f.table.Apply(t.Context(), f.part, ops)
		m.judge(t, step, ops, err)
		if err == nil {
			m.commit(ops, etags)
		}
		from, to := fmt.Sprintf("k%02d", rng.IntN(13)), fmt.Sprintf("k%02d", rng.IntN(13))
		m.compare(t, step, f.all(t, store.RangeQuery{From: from, To: to, Limit: 1 + rng.IntN(5)}), from, to)
	}
}

// judge compares the outcome of a transaction with the model's.
func (m *model) judge(t *testing.T, step int, ops []store.Op, err error) {
	t.Helper()
	var failure *store.OpError
	if errors.As(err, &failure) {
		if failure.Index < 0 || failure.Index >= len(ops) {
			t.Fatalf("step %d: operation %d of %d failed", step, failure.Index, len(ops))
		}
		if want := m.fails(ops[failure.Index]); want == nil || !errors.Is(err, want) {
			t.Fatalf("step %d: got %v, the model says %v", step, err, want)
		}
		return
	}
	if err != nil {
		t.Fatalf("step %d: %v", step, err)
	}
	for i, op := range ops {
		if want := m.fails(op); want != nil {
			t.Fatalf("step %d: applied, but operation %d on %q should fail: %v", step, i, op.Key, want)
		}
	}
}

// compare demands that rows are the model's rows of the range.
func (m *model) compare(t *testing.T, step int, rows []store.Row, from, to string) {
	t.Helper()
	var want []string
	for _, key := range slices.Sorted(maps.Keys(m.rows)) {
		if key >= from && key < to {
			want = append(want, key)
		}
	}
	if got := keysOf(rows); !slices.Equal(got, want) {
		t.Fatalf("step %d: range from %q to %q has %q, want %q", step, from, to, got, want)
	}
	for _, row := range rows {
		if w := m.rows[row.Key]; row.ETag != w.ETag || !slices.Equal(row.Data, w.Data) {
			t.Fatalf("step %d: row %q is %q %s, want %q %s", step, row.Key, row.ETag, brief(row.Data), w.ETag, brief(w.Data))
		}
	}
}
