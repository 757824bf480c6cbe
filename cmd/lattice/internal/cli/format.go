package cli

import (
	"strings"

	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
)

// format is the form of a file.
type format string

const (
	formatAuto   format = "auto"
	formatNDJSON format = "ndjson"
	formatCSV    format = "csv"
	formatTSV    format = "tsv"
)

// resolve finds the format by the name of a file, less ".gz"; NDJSON if it
// does not tell.
func (f format) resolve(name string) format {
	if f != formatAuto {
		return f
	}
	switch name = strings.ToLower(strings.TrimSuffix(name, ".gz")); {
	case strings.HasSuffix(name, ".csv"):
		return formatCSV
	case strings.HasSuffix(name, ".tsv"), strings.HasSuffix(name, ".tab"):
		return formatTSV
	}
	return formatNDJSON
}

// delimiter parses --delimiter: one ASCII character or "tab".
func delimiter(s string, f format) (byte, error) {
	switch {
	case s == "" && f == formatTSV, s == "tab", s == `\t`:
		return '\t', nil
	case s == "":
		return ',', nil
	case len(s) == 1 && s[0] < 0x80 && s != "\"" && s != "\n" && s != "\r":
		return s[0], nil
	}
	return 0, usagef("--delimiter %q is not one character, or tab", s)
}

// meterStyle is how progress is shown.
type meterStyle string

// resolve picks a bar on a terminal and lines elsewhere.
func (m meterStyle) resolve(e *env) progress.Style {
	switch {
	case m == "none":
		return progress.None
	case e.json:
		return progress.JSON
	case m == "bar", m == "auto" && e.ErrTTY:
		return progress.Bar
	}
	return progress.Lines
}
