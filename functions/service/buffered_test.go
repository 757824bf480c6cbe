package service

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestLargeAnswersCountAndAreGivenBack: room for one large value with its JSON, and
// not for two at once.
func TestLargeAnswersCountAndAreGivenBack(t *testing.T) {
	i := onMemory(t, func(c *Config) {
		c.Options.MaxValueSizeBytes, c.Options.MaxBulkChunkBytes, c.Options.MaxBufferedBytes = 1<<20, 1<<20, 3<<20
		if err := c.Options.Validate(); err != nil {
			t.Fatal(err)
		}
	})
	const tr = "/v1/trees/t"
	large := strings.Repeat("x", 1<<20)
	for _, key := range []string{"a", "b"} {
		i.want(201, "PUT", tr+"/keys/"+key, large)
	}
	for range 3 {
		for _, key := range []string{"a", "b"} {
			i.want(200, "GET", tr+"/keys/"+key, "")
			i.want(200, "PUT", tr+"/keys/"+key+"?mode=get-or-set", "")
		}
		i.want(503, "GET", tr+"/entries", "")
		i.want(200, "GET", tr+"/entries?limit=1", "")
		i.want(413, "POST", tr+"/batch-get", `{"keys":["a","b"]}`) // more than a value may have
		i.want(200, "POST", tr+"/batch-get", `{"keys":["a"]}`)
		if lines := i.want(200, "GET", tr+"/entries", "", "Accept", "application/x-ndjson"); !strings.HasSuffix(lines, `{"end":true,"count":2}`+"\n") {
			t.Errorf("the stream ends with %q", lines[max(0, len(lines)-200):])
		}
	}
}

// TestPageOfACursorThatFindsNoRoomIsNotPassed: it is refused before the cursor
// moves.
func TestPageOfACursorThatFindsNoRoomIsNotPassed(t *testing.T) {
	i := onMemory(t, func(c *Config) {
		c.Options.MaxValueSizeBytes, c.Options.MaxBulkChunkBytes, c.Options.MaxBufferedBytes = 1<<20, 1<<20, 3<<20
	})
	const tr = "/v1/trees/t"
	for _, key := range []string{"a", "b"} {
		i.want(201, "PUT", tr+"/keys/"+key, strings.Repeat("x", 1<<20))
	}
	var open struct{ CursorID string }
	if err := json.Unmarshal([]byte(i.want(201, "POST", tr+"/cursors", `{"kind":"entries"}`)), &open); err != nil {
		t.Fatal(err)
	}
	next := tr + "/cursors/" + open.CursorID + "/next"
	i.want(503, "POST", next, `{"limit":2}`)
	for _, want := range []string{`"page":1,"entries":[{"key":"a"`, `"page":2,"entries":[{"key":"b"`} {
		if got := i.want(200, "POST", next, `{"limit":1}`); !strings.Contains(got, want) {
			t.Errorf("got %.100s, want %s", got, want)
		}
	}
}
