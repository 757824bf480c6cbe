package oracle

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func TestComparisonNoticesEverything(t *testing.T) {
	now := time.Now()
	text := func(s string) func() []byte { return func() []byte { return []byte(s) } }
	want := content{
		"a": {bytes: text("1")}, "b": {object: func() any { return map[string]any{"n": json.Number("1.50")} }},
		"c": {bytes: text(""), expiry: now.Add(time.Hour)}, "d": {bytes: text("4"), expiry: now.Add(-time.Hour)},
	}
	a, b := held{Key: "a", Value: []byte("1")}, held{Key: "b", Value: []byte(`{"n": 1.50}`)}
	c := held{Key: "c", Value: []byte{}, ExpiresAt: now.Add(time.Hour)}
	d := held{Key: "d", Value: []byte("4"), ExpiresAt: now.Add(-time.Hour)}
	end := func(n int) held { return held{End: true, Count: n} }
	cases := []struct {
		name  string
		lines []held
		ok    bool
	}{
		{"equal", []held{a, b, c, end(3)}, true},
		{"expired one still there", []held{a, b, c, d, end(4)}, true},
		{"missing", []held{a, c, end(2)}, false},
		{"twice", []held{a, a, b, c, end(4)}, false},
		{"too many", []held{a, b, c, {Key: "e"}, end(4)}, false},
		{"order", []held{b, a, c, end(3)}, false},
		{"value", []held{{Key: "a", Value: []byte("2")}, b, c, end(3)}, false},
		{"number", []held{a, {Key: "b", Value: []byte(`{"n":1.5}`)}, c, end(3)}, false},
		{"two values", []held{a, {Key: "b", Value: []byte(`{"n":1.50}{}`)}, c, end(3)}, false},
		{"expiry lost", []held{a, b, {Key: "c", Value: []byte{}}, end(3)}, false},
		{"expiry in other units", []held{a, b, {Key: "c", Value: []byte{}, ExpiresAt: now.Add(3600 * time.Millisecond)}, end(3)}, false},
		{"expiry invented", []held{{Key: "a", Value: []byte("1"), ExpiresAt: now.Add(time.Hour)}, b, c, end(3)}, false},
		{"broken off", []held{a, b, c}, false},
		{"count", []held{a, b, c, end(4)}, false},
		{"after the end", []held{a, b, c, end(3), end(3)}, false},
	}
	for _, k := range cases {
		q := comparison{want: want, seen: map[string]struct{}{}}
		var err error
		for i := range k.lines {
			err = errors.Join(err, q.add(&k.lines[i]))
		}
		if err = errors.Join(err, q.finish(now)); (err == nil) != k.ok {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}
