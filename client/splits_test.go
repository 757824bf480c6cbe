package client_test

import (
	"testing"

	"github.com/latticekv/lattice/client"
)

func testSplits(t *testing.T, c *client.Client) {
	ctx, tree := t.Context(), c.Tree("divided")
	_, err := tree.Splits(ctx)
	wantErr(t, err, client.ErrTreeNotFound)
	_, err = tree.ReshardStatus(ctx)
	wantErr(t, err, client.ErrTreeNotFound)
	_, err = tree.Create(ctx, client.CreateOptions{ShardCount: 2})
	must(t, err)
	splits, err := tree.Splits(ctx)
	if err != nil || len(splits.InFlight)+len(splits.Recent) != 0 {
		t.Fatalf("splits of a new tree: %+v, %v", splits, err)
	}
	status, err := tree.ReshardStatus(ctx)
	if want := (client.Reshard{Complete: true, Start: 2, Current: 2, Target: 2}); err != nil || status != want {
		t.Fatalf("status %+v, %v", status, err)
	}
	for _, count := range []int{0, 1, 4097} {
		_, err = tree.Reshard(ctx, count)
		wantErr(t, err, client.ErrInvalidArgument)
	}
	// An empty tree is divided at once.
	status, err = tree.Reshard(ctx, 4)
	if want := (client.Reshard{Complete: true, Start: 2, Current: 4, Target: 4}); err != nil || status != want {
		t.Fatalf("reshard %+v, %v", status, err)
	}
	splits, err = tree.Splits(ctx)
	if err != nil || len(splits.InFlight) != 0 || len(splits.Recent) != 2 {
		t.Fatalf("splits %+v, %v", splits, err)
	}
	for _, s := range splits.Recent {
		if s.ID == "" || s.Target == nil || *s.Target < 2 || s.Source > 1 || s.Phase != "Done" || s.MovedSlots == 0 ||
			s.Cause == "" || s.Started.IsZero() || s.Ended == nil || s.MapVersion == 0 {
			t.Errorf("split %+v", s)
		}
		if _, ok := s.DurationsMs["Drain"]; !ok {
			t.Errorf("durations %v", s.DurationsMs)
		}
	}
	activity, err := c.SplitActivity(ctx)
	if err != nil || activity.AnyInFlight != (activity.InFlight > 0) || activity.ObservedAt.IsZero() {
		t.Errorf("activity %+v, %v", activity, err)
	}
}
