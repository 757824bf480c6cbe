package options

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units of sizes in text form, in lower case; longer suffixes stand first.
var units = []struct {
	suffix string
	factor int64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"b", 1},
}

// ParseDuration reads a Go-style duration (1m30s) or a number of seconds (90,
// 0.5). Negative and unrepresentable ones are refused.
func ParseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return fromSeconds(seconds)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 30s or a number of seconds", text)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", text)
	}
	return d, nil
}

func fromSeconds(seconds float64) (time.Duration, error) {
	nanos := seconds * float64(time.Second)
	if math.IsNaN(nanos) || nanos < 0 || nanos >= math.MaxInt64 {
		return 0, fmt.Errorf("%v seconds are out of range", seconds)
	}
	return time.Duration(math.Round(nanos)), nil
}

// ParseBytes reads a size: a number of bytes, or a number with a unit of B, KB,
// MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).
func ParseBytes(text string) (int64, error) {
	number, factor := strings.ToLower(strings.TrimSpace(text)), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a size such as 4096 or 64MiB", text)
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is out of range", text)
	}
	return n * factor, nil
}

// parseText reads a value in the form of flags and environment variables.
func parseText(kind Kind, text string) (any, error) {
	switch kind {
	case KindBool:
		return parseBool(text)
	case KindCount:
		return parseCount(text)
	case KindBytes:
		return ParseBytes(text)
	case KindDuration:
		return ParseDuration(text)
	}
	return parseRatio(text)
}

func parseBool(text string) (any, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("%q is neither true nor false", text)
	}
	return v, nil
}

func parseCount(text string) (any, error) {
	v, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", text)
	}
	return v, nil
}

func parseRatio(text string) (any, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("%q is not a number", text)
	}
	return v, nil
}

// parseJSON reads a value as it stands in a JSON document: a boolean for a
// bool, a number for everything else, text where text form is richer.
func parseJSON(kind Kind, raw json.RawMessage) (any, error) {
	if !json.Valid(raw) {
		return nil, fmt.Errorf("is not a JSON value")
	}
	text := strings.TrimSpace(string(raw))
	quoted := strings.HasPrefix(text, `"`)
	if quoted {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("is not a JSON value")
		}
	} else if strings.ContainsAny(text[:1], "{[n") {
		return nil, fmt.Errorf("must be %s", wanted(kind))
	}
	if isBool := text == "true" || text == "false"; !quoted && isBool != (kind == KindBool) {
		return nil, fmt.Errorf("must be %s", wanted(kind))
	}
	if quoted && kind != KindBytes && kind != KindDuration {
		return nil, fmt.Errorf("must be %s, not a string", wanted(kind))
	}
	if !quoted && (kind == KindCount || kind == KindBytes) {
		return parseWhole(kind, text)
	}
	return parseText(kind, text)
}

// parseWhole reads a JSON number that must be whole; 1e3 and 4.0 are.
func parseWhole(kind Kind, text string) (any, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return nil, fmt.Errorf("must be %s", wanted(kind))
	}
	if kind == KindCount {
		return int(f), nil
	}
	return int64(f), nil
}

func wanted(kind Kind) string {
	switch kind {
	case KindBool:
		return "true or false"
	case KindCount:
		return "a whole number"
	case KindBytes:
		return "a number of bytes or a size such as 64MiB"
	case KindDuration:
		return "a duration such as 30s or a number of seconds"
	}
	return "a number"
}

// magnitude makes values comparable with their bounds.
func magnitude(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case time.Duration:
		return float64(v)
	case float64:
		return v
	}
	return 0
}
