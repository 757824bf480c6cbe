package rows

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOperations(t *testing.T) {
	ops, err := Operations(strings.NewReader(`{"op":"set","key":"a","text":"é"}

{"op":"set","key":"b","value":"AP8=","ttl":"90s","ifAbsent":true}`+"\r\n"+`{"op":"set","key":"c","json":{"x":1},"ttl":2,"ifVersion":"v"}
{"op":"delete","key":"d","ifVersion":"w"}`), 10, 1000)
	if err != nil || len(ops) != 4 {
		t.Fatalf("%+v, %v", ops, err)
	}
	a, b, c, d := ops[0], ops[1], ops[2], ops[3]
	if a.Line != 1 || a.Key != "a" || string(a.Value) != "é" || !a.Text || a.Delete {
		t.Errorf("%+v", a)
	}
	if b.Line != 3 || string(b.Value) != "\x00\xff" || b.Text || b.TTL != 90*time.Second || !b.IfAbsent {
		t.Errorf("%+v", b)
	}
	if string(c.JSON) != `{"x":1}` || c.TTL != 2*time.Second || c.IfVersion != "v" {
		t.Errorf("%+v", c)
	}
	if d.Line != 5 || !d.Delete || d.IfVersion != "w" || d.Value != nil {
		t.Errorf("%+v", d)
	}
}

func TestOperationsThatCannotBeUsed(t *testing.T) {
	good := `{"op":"set","key":"a","text":"1"}` + "\n"
	for line, reason := range map[string]string{
		`{"key":"a","text":"1"}`:                                            `"op" is missing`,
		`{"op":"put","key":"a","text":"1"}`:                                 `must be "set" or "delete"`,
		`{"op":"set","text":"1"}`:                                           `"key" is missing`,
		`{"op":"set","key":"","text":"1"}`:                                  "empty",
		`{"op":"set","key":"\ud800","text":"1"}`:                            "surrogate",
		`{"op":"set","key":"a"}`:                                            "exactly one",
		`{"op":"set","key":"a","text":"1","json":1}`:                        "exactly one",
		`{"op":"set","key":"a","value":"?"}`:                                "base64",
		`{"op":"set","key":"a","text":"1","ttl":"0"}`:                       "positive",
		`{"op":"set","key":"a","text":"1","ttl":"soon"}`:                    "ttl",
		`{"op":"set","key":"a","text":"1","ifVersion":1}`:                   "ifVersion",
		`{"op":"set","key":"a","text":"1","ifAbsent":true,"ifVersion":"v"}`: "exclude each other",
		`{"op":"set","key":"a","text":"1","ifAbsent":"yes"}`:                "ifAbsent",
		`{"op":"set","key":"a","text":"1","version":"v"}`:                   "unknown field",
		`{"op":"delete","key":"a","text":"1"}`:                              "delete",
		`{"op":"delete","key":"a","ifAbsent":false}`:                        "delete",
		`{"op":"delete","key":"a"} {}`:                                      "more than one",
		`{"op":"delete","key":"a"`:                                          "too early",
		"{\"op\":\"delete\",\"key\":\"\xff\"}":                              "UTF-8",
		`[]`:                                                                "object is expected",
	} {
		_, err := Operations(strings.NewReader(good+line), 10, 1000)
		var f *Fault
		if !errors.As(err, &f) || f.Line != 2 || !strings.Contains(f.Reason, reason) {
			t.Errorf("%s: %v, want %q", line, err, reason)
		}
	}
}

func TestOperationsAreBounded(t *testing.T) {
	line := `{"op":"delete","key":"a"}` + "\n"
	for n, want := range map[int]string{3: "", 4: "more than 3 operations"} {
		_, err := Operations(strings.NewReader(strings.Repeat(line, n)), 3, 1000)
		if (err == nil) != (want == "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("%d lines: %v", n, err)
		}
	}
	for bytes, ok := range map[int]bool{3 * len(line): true, 3*len(line) - 2: false, len(line) - 2: false} {
		_, err := Operations(strings.NewReader(strings.Repeat(line, 3)), 3, bytes)
		if (err == nil) != ok {
			t.Errorf("%d bytes allowed: %v", bytes, err)
		}
	}
	broken := errors.New("the disk is gone")
	if _, err := Operations(failing{broken}, 3, 1000); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// failing is a reader that cannot.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, fmt.Errorf("read: %w", f.err) }
