package dataset

import (
	"fmt"
	"strings"
	"testing"
)

// What would be missed here would be missed everywhere.
func TestComparisonSeesEveryDifference(t *testing.T) {
	rows := []Row{{Key: "a", Value: "1", line: `{"key":"a","text":"1","version":"`}, {Key: "b", Value: "2"}, {Key: "c", Value: "3", line: "{}"}}
	entry := func(key, value string) string {
		return fmt.Sprintf(`{"key":%q,"text":%q,"version":"v"}`+"\n", key, value)
	}
	a, b, c, end := entry("a", "1"), entry("b", "2"), entry("c", "3"), `{"end":true,"count":3}`+"\n"
	cases := map[string]struct {
		text    string
		reverse bool
		count   int
		ok      bool
	}{
		"in order":               {a + b + c + end, false, 3, true},
		"without an end":         {a + b + c, false, -1, true},
		"reversed":               {c + b + a + end, true, 3, true},
		"reversed by mistake":    {c + b + a, false, 0, false},
		"one less":               {a + b, false, 0, false},
		"one less, and an end":   {a + b + end, false, 0, false},
		"one in the middle gone": {a + c + end, false, 0, false},
		"one twice":              {a + b + b + c, false, 0, false},
		"one more":               {a + b + c + entry("d", "4"), false, 0, false},
		"two exchanged":          {b + a + c, false, 0, false},
		"another value":          {a + entry("b", "3") + c, false, 0, false},
		"no version":             {a + b + `{"key":"c","text":"3"}` + "\n", false, 0, false},
		"after the end":          {a + b + end + c, false, 0, false},
		"an error line":          {a + b + `{"error":{"code":"unavailable"}}` + "\n", false, 0, false},
		"no version, shortly":    {`{"key":"a","text":"1","version":""}` + "\n" + b + c, false, 0, false},
		"no JSON":                {a + b + `{"key":"c"`, false, 0, false},
		"nothing":                {"", false, 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			count, err := compare(strings.NewReader(c.text), rows, c.reverse)
			if (err == nil) != c.ok || c.ok && count != c.count {
				t.Errorf("%d, %v", count, err)
			}
		})
	}
}
