package cli

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"

	"github.com/latticekv/lattice/client"
)

// maxValue bounds what is read as one value.
const maxValue = 256 << 20

// maxKeyLine bounds a line of a list of keys.
const maxKeyLine = 1 << 20

// keyFlags say how keys are written on the command line.
type keyFlags struct {
	KeyB64 bool `name:"key-b64" help:"Keys and bounds are given in base64."`
}

func (f keyFlags) key(s string) (string, error) {
	if !f.KeyB64 {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", usagef("key %q is not base64", s)
	}
	return string(b), nil
}

// keyLine reads a key as scan prints it: quoted if it begins with a quote.
func (f keyFlags) keyLine(line string) (string, error) {
	if f.KeyB64 || line[0] != '"' {
		return f.key(line)
	}
	key, err := strconv.Unquote(line)
	if err != nil {
		return "", usagef("key %s is not properly quoted", line)
	}
	return key, nil
}

// rangeFlags select keys.
type rangeFlags struct {
	Start  string `help:"First key of the range." placeholder:"KEY"`
	End    string `help:"End of the range, exclusive." placeholder:"KEY"`
	Prefix string `help:"Keys that begin with this; excludes --start and --end." placeholder:"TEXT"`
	keyFlags
}

func (f rangeFlags) get() (r client.Range, err error) {
	if f.Prefix != "" && (f.Start != "" || f.End != "") {
		return r, usagef("--prefix excludes --start and --end")
	}
	for _, b := range []struct {
		to   *string
		from string
	}{{&r.Start, f.Start}, {&r.End, f.End}, {&r.Prefix, f.Prefix}} {
		if *b.to, err = f.key(b.from); err != nil {
			return r, err
		}
	}
	return r, nil
}

// describe says a range in words.
func describe(r client.Range) string {
	switch {
	case r.Prefix != "":
		return "every key that begins with " + show(r.Prefix)
	case r.Start != "" && r.End != "":
		return fmt.Sprintf("every key from %s to before %s", show(r.Start), show(r.End))
	case r.Start != "":
		return "every key from " + show(r.Start) + " on"
	case r.End != "":
		return "every key before " + show(r.End)
	}
	return "every key"
}

// keys yields the keys given; in place of a sole "-" those of standard input,
// one a line, as scan prints them.
func (e *env) keys(args []string, f keyFlags) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if len(args) == 1 && args[0] == "-" {
			e.keyLines(f, yield)
			return
		}
		for _, a := range args {
			if !yield(f.key(a)) {
				return
			}
		}
	}
}

func (e *env) keyLines(f keyFlags, yield func(string, error) bool) {
	s := bufio.NewScanner(e.In)
	s.Buffer(make([]byte, 0, 64<<10), maxKeyLine)
	for s.Scan() {
		line := strings.TrimSuffix(s.Text(), "\r")
		if line != "" && !yield(f.keyLine(line)) {
			return
		}
	}
	if err := s.Err(); err != nil {
		yield("", fmt.Errorf("read keys: %w", err))
	}
}

// readValue reads a value from an argument, a file, or standard input.
func (e *env) readValue(arg *string, file string, b64 bool) (v []byte, err error) {
	switch {
	case arg != nil && file != "":
		return nil, usagef("a value and --file exclude each other")
	case arg == nil && file == "":
		return nil, usagef("give a value, - to read it from standard input, or --file")
	case arg != nil && *arg != "-":
		v = []byte(*arg)
	case arg != nil || file == "-":
		v, err = readAll(e.In)
	default:
		v, err = readFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read value: %w", err)
	}
	if b64 {
		return decodeB64(v)
	}
	return v, nil
}

// errTooLong: a value is beyond what this tool sends.
var errTooLong = errors.New("longer than 256 MiB")

func readAll(r io.Reader) ([]byte, error) {
	v, err := io.ReadAll(io.LimitReader(r, maxValue+1))
	if err == nil && len(v) > maxValue {
		err = errTooLong
	}
	return v, err
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readAll(f)
}

func decodeB64(v []byte) ([]byte, error) {
	out, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(v)))
	if err != nil {
		return nil, usagef("the value is not base64")
	}
	return out, nil
}
