// Package dataset takes a real dataset, the populated places of the GeoNames
// gazetteer, through the real programs: imported by the command-line tool into
// running services, read back in every way there is and compared with the
// source, through stops, crashes and several services at once.
package dataset

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"github.com/latticekv/lattice/tests/running"
)

// leastRows is what makes the dataset worth its name.
const leastRows = 100_000

// Row is one place: what its key must be, and its value, a JSON object.
type Row struct {
	Key, Value string
	// fields are those of the source, after its number in the file.
	fields []string
	// line is how a line of JSON about it usually begins, up to its version.
	line string
}

// columns name the fields of a Row, in order.
var columns = []string{"nr", "name", "lat", "lng", "country", "admin1", "admin2"}

// place is one record of the source.
type place struct{ Name, Lat, Lng, Country, Admin1, Admin2 string }

var loaded struct {
	sync.Once
	rows []Row
	err  error
}

// Cities returns the dataset in the order of its file, which is not that of
// the keys. It is installed if need be; the test fails if that does.
func Cities(t testing.TB) []Row {
	t.Helper()
	loaded.Do(func() {
		loaded.rows, loaded.err = load(filepath.Join(running.Root(t), "scripts", "install-dataset.sh"))
	})
	if loaded.err != nil {
		t.Fatalf("load the dataset: %v", loaded.err)
	}
	return loaded.rows
}

func load(installer string) ([]Row, error) {
	var told bytes.Buffer
	cmd := exec.Command("/bin/sh", installer)
	cmd.Stderr = &told
	path, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, told.String())
	}
	data, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		return nil, err
	}
	var places []place
	if err := json.Unmarshal(data, &places); err != nil {
		return nil, err
	}
	if len(places) < leastRows {
		return nil, fmt.Errorf("%d rows, at least %d expected", len(places), leastRows)
	}
	rows := make([]Row, len(places))
	for i, p := range places {
		if rows[i], err = newRow(i+1, p); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// newRow makes a row. The number at the end of the key tells places of one
// name apart.
func newRow(nr int, p place) (Row, error) {
	r := Row{
		Key:    fmt.Sprintf("%s/%s/%06d", p.Country, p.Name, nr),
		fields: []string{fmt.Sprint(nr), p.Name, p.Lat, p.Lng, p.Country, p.Admin1, p.Admin2},
	}
	var value strings.Builder
	for i, column := range columns {
		field, err := plainJSON(r.fields[i])
		if err != nil {
			return r, err
		}
		value.WriteString(`,"` + column + `":` + field)
	}
	r.Value = "{" + value.String()[1:] + "}"
	key, err := plainJSON(r.Key)
	r.line = `{"key":` + key + `,"text":"` + quotes.Replace(r.Value) + `","version":"`
	return r, err
}

// quotes escapes JSON once more: it has no control characters.
var quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// plainJSON is a string as JSON, without the escapes that are for web pages.
func plainJSON(s string) (string, error) {
	if !strings.ContainsFunc(s, special) {
		return `"` + s + `"`, nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// special reports whether a character may need an escape.
func special(c rune) bool {
	return c < ' ' || c == '"' || c == '\\' || c == '\u2028' || c == '\u2029' || c == utf8.RuneError
}

// Sorted returns a copy in bytewise order of the keys.
func Sorted(rows []Row) []Row {
	sorted := slices.Clone(rows)
	slices.SortFunc(sorted, func(a, b Row) int { return strings.Compare(a.Key, b.Key) })
	return sorted
}

// WriteNDJSON writes rows with their keys, compressed.
func WriteNDJSON(w io.Writer, rows []Row) error {
	z := gzip.NewWriter(w)
	for _, r := range rows {
		key, err := plainJSON(r.Key)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(z, "{\"key\":%s,\"json\":%s}\n", key, r.Value); err != nil {
			return err
		}
	}
	return z.Close()
}

// KeyTemplate makes the keys of what WriteCSV writes.
const KeyTemplate = "{country}/{name}/{nr:6}"

// WriteCSV writes the fields of rows alone: the keys are for the reader to
// make.
func WriteCSV(w io.Writer, rows []Row) error {
	c := csv.NewWriter(w)
	if err := c.Write(columns); err != nil {
		return err
	}
	for _, r := range rows {
		if err := c.Write(r.fields); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
