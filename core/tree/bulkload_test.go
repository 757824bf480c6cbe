package tree

import (
	"testing"
)

func TestOneShotLoadSortsAndGrafts(t *testing.T) {
	for name, size := range map[string]int{"records": 20, "leaves": 2000, "spilled": 20000} {
		t.Run(name, func(t *testing.T) {
			db, _ := fresh(t, smallBulk)
			h := db.writer(t, "t")
			want := noise(0, size/10, 100)
			res, err := h.BulkLoad(t.Context(), from(shuffled(want, 7)), BulkOptions{})
			must(t, err)
			if n := int64(len(want)); res.Accepted != n || res.TotalLiveKeys != n || res.OverLimit != 0 {
				t.Errorf("%+v", res)
			}
			holds(t, h, want)
			if grafted := db.hooks.count("graft"); (grafted > 0) != (size > 20) {
				t.Errorf("%d grafts", grafted)
			}
		})
	}
}

func TestStreamGoesOnTop(t *testing.T) {
	db, _ := fresh(t, smallBulk)
	h := db.writer(t, "t")
	put(t, h, "key-00000005", "zebra")
	want := noise(0, 3000, 100)
	res, err := h.BulkStream(t.Context(), from(want), BulkOptions{})
	must(t, err)
	if res.Accepted != 3000 || res.TotalLiveKeys != 3001 {
		t.Errorf("%+v", res)
	}
	holds(t, h, append(want, BulkEntry{Key: "zebra", Value: []byte("value of zebra")}))
}

func TestSessionOfSeveralChunks(t *testing.T) {
	db, _ := fresh(t, smallBulk)
	h := db.writer(t, "t")
	begin(t, h, "op")
	want := noise(0, 3000, 100)
	for i := range 3 {
		ack, err := h.AppendBulkLoad(t.Context(), "op", int64(i), from(want[i*1000:(i+1)*1000]), BulkOptions{})
		must(t, err)
		if ack.Chunk != int64(i) || ack.NextChunk != int64(i+1) || ack.Accepted != 1000 {
			t.Errorf("%+v", ack)
		}
	}
	s, err := h.CommitBulkLoad(t.Context(), "op")
	must(t, err)
	if s.Status != BulkCommitted || s.TotalLiveKeys != 3000 || s.Accepted != 3000 || s.LastKey != want[2999].Key {
		t.Errorf("%+v", s)
	}
	holds(t, h, want)
}
