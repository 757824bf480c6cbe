package tree

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/store"
)

func sampleSession() *session {
	chunk := func(i int64) *chunkRow {
		return &chunkRow{
			Chunk: i, Version: strings.Repeat("0", 23) + "1", Digest: strings.Repeat("ab", bulk.DigestLength/2), Accepted: 7, OverLimit: 1,
			First: &limitRow{What: "key", Key: "k", Size: 5, Limit: 4}, FirstKey: "a", LastKey: "é",
		}
	}
	return &session{
		Operation: "op-1", Status: BulkOpen, NextChunk: 4, Accepted: 30, OverLimit: 2, LastKey: "é",
		Last: chunk(3), Pending: chunk(4), Started: 5, Updated: 6, Began: "x",
	}
}

func TestSessionRowsSurviveEncoding(t *testing.T) {
	want := sampleSession()
	data, err := want.encode()
	must(t, err)
	got, err := decodeSession("id", "op-1", data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v %v", got, err)
	}
	longest := sampleSession()
	longest.Operation = strings.Repeat("o", 128)
	longest.LastKey = strings.Repeat("\x01", hardKeyBytes)
	for _, c := range []*chunkRow{longest.Last, longest.Pending} {
		c.FirstKey, c.LastKey = longest.LastKey, longest.LastKey
	}
	data, err = longest.encode()
	must(t, err)
	if _, err := decodeSession("id", longest.Operation, data); err != nil {
		t.Errorf("the longest keys: %v", err)
	}
}

func TestDamagedSessionRowsAreRefused(t *testing.T) {
	for name, change := range map[string]func(s *session){
		"another operation": func(s *session) { s.Operation = "op-2" },
		"status":            func(s *session) { s.Status = "ajar" },
		"negative chunk":    func(s *session) { s.NextChunk = -1 },
		"negative count":    func(s *session) { s.Accepted = -1 },
		"too many over":     func(s *session) { s.OverLimit = 31 },
		"no last chunk":     func(s *session) { s.Last = nil },
		"wrong last chunk":  func(s *session) { s.Last.Chunk = 2 },
		"wrong pending":     func(s *session) { s.Pending.Chunk = 5 },
		"version":           func(s *session) { s.Pending.Version = "1" },
		"no version":        func(s *session) { s.Pending.Version = strings.Repeat("0", 24) },
		"digest":            func(s *session) { s.Last.Digest = "ab" },
		"chunk count":       func(s *session) { s.Last.Accepted = -1 },
		"chunk over":        func(s *session) { s.Last.OverLimit = 8 },
		"long key":          func(s *session) { s.LastKey = strings.Repeat("k", hardKeyBytes+1) },
		"long chunk key":    func(s *session) { s.Last.FirstKey = strings.Repeat("k", hardKeyBytes+1) },
	} {
		s := sampleSession()
		change(s)
		data, err := s.encode()
		must(t, err)
		if _, err := decodeSession("id", "op-1", data); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "bulk-id") {
			t.Errorf("%s: %v", name, err)
		}
	}
	body, err := json.Marshal(sampleSession())
	must(t, err)
	for name, text := range map[string]string{
		"unknown field": strings.Replace(string(body), "{", `{"colour":"red",`, 1),
		"two values":    string(body) + "{}", "nothing": "", "no object": "[]",
	} {
		if _, err := decodeSession("id", "op-1", sessionFormat.Seal([]byte(text))); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"unknown field": `{"x":1}`, "both": `{"session":"op","load":"x"}`, "no operation": `{"session":"a/b"}`,
	} {
		if _, err := decodeCurrent("id", currentFormat.Seal([]byte(text))); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("current, %s: %v", name, err)
		}
	}
}

func TestDamagedRowsStopEverything(t *testing.T) {
	db, m := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	p := bulkPartition(h.entry.cur.Load().ID)
	r, err := m.Table().Get(t.Context(), p, sessionKey("op"))
	must(t, err)
	r.Data[len(r.Data)-1] ^= 1
	_, err = m.Table().Apply(t.Context(), p, []store.Op{store.Replace(r.Key, r.Data, r.ETag)})
	must(t, err)
	_, _, err = h.BeginBulkLoad(t.Context(), "op")
	wantErr(t, err, store.ErrCorrupt)
	_, _, err = h.BeginBulkLoad(t.Context(), "other")
	wantErr(t, err, store.ErrCorrupt)
	_, err = h.AppendBulkLoad(t.Context(), "op", 0, from(nil), BulkOptions{})
	wantErr(t, err, store.ErrCorrupt)
	_, err = db.bulkPending(t.Context(), h.entry.cur.Load().ID)
	wantErr(t, err, store.ErrCorrupt)
	if rep, err := db.Collect(t.Context(), 0); err != nil || rep.Failed != 1 {
		t.Errorf("%+v %v", rep, err)
	}
}

func FuzzSessionRow(f *testing.F) {
	body, err := json.Marshal(sampleSession())
	must(f, err)
	f.Add(body)
	f.Add([]byte(`{"operation":"op-1","status":"open","nextChunk":0,"accepted":0,"started":1,"updated":1,"began":"x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > sessionFormat.MaxSize {
			return
		}
		s, err := decodeSession("id", "op-1", sessionFormat.Seal(body))
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		data, err := s.encode()
		must(t, err)
		again, err := decodeSession("id", "op-1", data)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
		_ = s.state()
		if s.Last != nil {
			_ = s.Last.ack()
		}
	})
}
