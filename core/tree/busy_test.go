package tree

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func wantBusy(t testing.TB, err error) *BusyError {
	t.Helper()
	var b *BusyError
	if !errors.As(err, &b) || !errors.Is(err, ErrOperationInProgress) {
		t.Fatalf("error %v, want one that says which load is in the way", err)
	}
	return b
}

// A load in one request whose instance died says when it is given up, and that
// is soon.
func TestADeadLoadIsInTheWayForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		ctx, cancel := f.Context(t.Context())
		defer cancel()
		dying := open(t, f.Table(), f.Blobs()).writer(t, "t")
		if _, err := dying.BulkStream(ctx, &entriesOf{entries: numbered(0, 3, 1), before: func(int) { f.Kill() }}, BulkOptions{}); err == nil {
			t.Fatal("it was not killed")
		}
		h := open(t, m.Table(), m.Blobs()).writer(t, "t")
		start := time.Now()
		_, _, err := h.BeginBulkLoad(t.Context(), "op")
		b := wantBusy(t, err)
		if b.OperationID != "" || b.RetryAfter <= 0 || b.RetryAfter > loadPulse || b.Until.Sub(start) > 15*time.Second {
			t.Errorf("%+v", b)
		}
		if text := b.Error(); !strings.Contains(text, "one-shot or streamed load") || !strings.Contains(text, b.Until.UTC().Format("15:04:05")) {
			t.Error(text)
		}
		time.Sleep(time.Until(b.Until))
		begin(t, h, "op")
		_, err = h.BulkLoad(t.Context(), from(nil), BulkOptions{})
		if b := wantBusy(t, err); b.OperationID != "op" || b.RetryAfter != 0 || !strings.Contains(b.Error(), "session op is open") {
			t.Errorf("%+v", b)
		}
	})
}

func TestSessionsAreListedNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t)
		h := db.writer(t, "t")
		for i := range 5 {
			begin(t, h, fmt.Sprint("op-", 9-i))
			time.Sleep(time.Second)
			if i < 4 {
				_, err := h.AbortBulkLoad(t.Context(), fmt.Sprint("op-", 9-i))
				must(t, err)
			}
		}
		got, err := h.ListBulkLoads(t.Context(), 3)
		must(t, err)
		if len(got) != 3 || got[0].OperationID != "op-6" && got[0].OperationID != "op-5" || got[0].Updated.Before(got[1].Updated) || got[1].Updated.Before(got[2].Updated) {
			t.Errorf("%+v", got)
		}
		all, err := h.ListBulkLoads(t.Context(), MaxListedLoads)
		if err != nil || len(all) != 5 {
			t.Errorf("%+v, %v", all, err)
		}
		for _, bad := range []int{0, -1, MaxListedLoads + 1} {
			_, err := h.ListBulkLoads(t.Context(), bad)
			wantArgument(t, err, "limit")
		}
	})
}
