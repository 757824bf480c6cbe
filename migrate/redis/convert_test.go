package redis

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"testing"

	"pgregory.net/rapid"
)

// Percent is injective, leaves text alone but for the percent sign, and can be
// undone as in a URL.
func TestPercentCanBeUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "key"))
		text, ok := Percent.text(key)
		back, err := url.PathUnescape(text)
		if !ok || err != nil || back != key {
			t.Fatalf("%q became %q and %q", key, text, back)
		}
	})
}

// The JSON of any collection is valid and holds every byte.
func TestTextCanBeUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		member := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "member")
		var back any
		if err := json.Unmarshal(appendText(nil, member), &back); err != nil {
			t.Fatal(err)
		}
		if text, isText := back.(string); isText && text == member {
			return
		}
		var coded struct{ Base64 []byte }
		if err := json.Unmarshal(appendText(nil, member), &coded); err != nil || !bytes.Equal(coded.Base64, []byte(member)) {
			t.Fatalf("%q became %v", member, back)
		}
	})
}

func TestScoresAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		score := rapid.Float64().Draw(t, "score")
		if math.IsInf(score, 0) {
			return
		}
		given, _ := json.Marshal(score)
		out, err := scoresJSON([]pair{{"m", string(given)}})
		var back []struct{ Score float64 }
		if err == nil {
			err = json.Unmarshal(out, &back)
		}
		if err != nil || back[0].Score != score {
			t.Fatalf("%v became %s: %v", score, out, err)
		}
	})
	if _, err := scoresJSON([]pair{{"m", "nan"}}); err == nil {
		t.Error("a score that is no number was accepted")
	}
}

func TestSuccessorOfStreamID(t *testing.T) {
	for id, want := range map[string]string{
		"0-0": "0-1", "5-18446744073709551614": "5-18446744073709551615", "5-18446744073709551615": "6-0",
		"18446744073709551615-18446744073709551615": "", "": "", "x-1": "",
	} {
		if got := successor(id); got != want {
			t.Errorf("after %q comes %q, want %q", id, got, want)
		}
	}
}

// A reply of another form is an error, not a value that lacks something.
func TestRepliesOfAnotherFormAreRefused(t *testing.T) {
	for _, c := range []struct {
		kind  string
		reply any
	}{
		{kindHash, []any{"odd"}}, {kindHash, []any{"f", int64(1)}}, {kindHash, "x"}, {kindList, []any{nil}},
		{kindStream, []any{"x"}}, {kindStream, []any{[]any{"1-1", []any{"odd"}}}}, {kindStream, []any{[]any{"1-1", nil}}},
	} {
		if err := (&collection{kind: c.kind}).add(c.reply); err == nil {
			t.Errorf("%s of %v was accepted", c.kind, c.reply)
		}
	}
}
