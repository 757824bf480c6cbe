package split_test

import (
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
)

func TestNothingIsLeftOfATreeThatIsForgotten(t *testing.T) {
	n, m := mapped(t, 4)
	if err := n.c.SaveMonitor(t.Context(), treeID, &split.MonitorState{At: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.c.Begin(t.Context(), n, 1, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.c.BeginReshard(t.Context(), treeID, 4, 8); err != nil {
		t.Fatal(err)
	}
	for i := range 2*store.MaxTransactionOps + 1 {
		op := store.Insert(fmt.Sprintf("done-%04d", i), []byte("old"))
		if _, err := m.Table().Apply(t.Context(), "t-"+treeID, []store.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := n.c.Forget(t.Context(), treeID); err != nil {
			t.Fatal(err)
		}
	}
	page, err := m.Table().Range(t.Context(), "t-"+treeID, store.RangeQuery{})
	if err != nil || len(page.Rows) != 0 {
		t.Errorf("%d rows are left, %v", len(page.Rows), err)
	}
	if s := survey(t, n.c); s.Monitor != nil || s.Reshard != nil || len(s.Active) != 0 {
		t.Errorf("left: %+v", s)
	}
}
