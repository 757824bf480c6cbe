package sourcetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/source/sourcetest"
)

// ids reads from a position on and returns the ids and the last position.
func ids(t *testing.T, s source.Source, from source.Position, pages int) ([]string, source.Position) {
	t.Helper()
	var got []string
	next := from
	for p, err := range s.Read(t.Context(), from) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			id, _ := r.Get("id")
			got = append(got, id.(string))
		}
		next = p.Next
		if pages--; pages == 0 {
			break
		}
	}
	return got, next
}

func filled(n int) *sourcetest.Store {
	s := &sourcetest.Store{Name: "s", PageSize: 3}
	for i := range n {
		s.Put(sourcetest.Row{ID: fmt.Sprint(i), Payload: []byte("v")})
	}
	return s
}

func TestPagesFollowEachOther(t *testing.T) {
	s := filled(9)
	all, end := ids(t, s.Source(), nil, 0)
	if len(all) != 9 || end != nil {
		t.Fatalf("%d rows, then %s", len(all), end)
	}
	first, at := ids(t, s.Source(), nil, 2)
	s.Delete("1", "4")
	rest, _ := ids(t, s.Source(), at, 0)
	if !slices.Equal(slices.Concat(first, rest), all) {
		t.Fatalf("%v and %v, want %v", first, rest, all)
	}
}

func TestChangesSinceACut(t *testing.T) {
	s := filled(5)
	src := s.Changing()
	info, err := src.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Put(sourcetest.Row{ID: "2", Payload: []byte("w")}, sourcetest.Row{ID: "9"})
	var got []string
	for p, err := range src.(source.Changing).ReadSince(t.Context(), info.Cut, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			got = append(got, r.Origin)
		}
	}
	if !slices.Contains(got, `row "2"`) || !slices.Contains(got, `row "9"`) || slices.Contains(got, `row "1"`) {
		t.Fatalf("%v", got)
	}
	if _, ok := s.Source().(source.Changing); ok {
		t.Fatal("a plain reader tells changes")
	}
}

func TestExpiredFaultyAndBroken(t *testing.T) {
	now := time.Unix(1000, 0)
	broken := errors.New("broken")
	s := &sourcetest.Store{Name: "s", Now: func() time.Time { return now }}
	s.Put(sourcetest.Row{ID: "a", Expiry: now}, sourcetest.Row{ID: "b", Fault: "bad"}, sourcetest.Row{ID: "c", Expiry: now.Add(1)})
	for p, err := range s.Source().Read(t.Context(), nil) {
		if err != nil || p.Expired != 1 || len(p.Faults) != 1 || len(p.Records) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	s.BeforePage = func(int) error { return broken }
	for _, err := range s.Source().Read(t.Context(), nil) {
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	for _, err := range s.Source().Read(t.Context(), json.RawMessage("{")) {
		if !errors.Is(err, source.ErrRestart) {
			t.Fatal(err)
		}
	}
	s.BeforePage = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.Source().Read(ctx, nil) {
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}
