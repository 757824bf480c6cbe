package sqldb

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// The conversions take what a driver gives and make the value of a field. Their
// errors never hold the value.

func toInteger(v any) (any, error) {
	switch v := v.(type) {
	case int64, uint64:
		return v, nil
	case int:
		return int64(v), nil
	case []byte:
		return parseInteger(string(v))
	case string:
		return parseInteger(v)
	}
	return nil, unexpected(v)
}

func parseInteger(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, errors.New("the database gave no whole number of 64 bits")
	}
	return n, nil
}

func toBool(v any) (any, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	}
	return nil, unexpected(v)
}

func toFloat(v any) (any, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case float32:
		return shortFloat(v), nil
	case string, []byte:
		f, err := strconv.ParseFloat(words(v), 64)
		if err != nil {
			return nil, errors.New("the database gave no number")
		}
		return f, nil
	}
	return nil, unexpected(v)
}

// toShortFloat is for numbers of 32 bits.
func toShortFloat(v any) (any, error) {
	if f, ok := v.(float64); ok {
		v = float32(f)
	}
	return toFloat(v)
}

// shortFloat gives the number with the fewest digits that is v when rounded to
// 32 bits: 0.1, not 0.10000000149.
func shortFloat(v float32) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil {
		return float64(v)
	}
	return f
}

// toNumber is for decimals. Some engines have NaN and infinities among them.
func toNumber(v any) (any, error) {
	text := words(v)
	switch text {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		return math.Inf(1), nil
	case "-Infinity":
		return math.Inf(-1), nil
	}
	digits, negative := strings.CutPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789.") != "" || strings.Count(digits, ".") > 1 || strings.HasSuffix(digits, ".") {
		return nil, errors.New("the database gave no decimal number")
	}
	// MySQL may fill up with zeros, SQL Server leaves the only one out.
	digits = strings.TrimLeft(digits, "0")
	if digits == "" || digits[0] == '.' {
		digits = "0" + digits
	}
	if negative {
		digits = "-" + digits
	}
	return source.Number(digits), nil
}

// toText passes text on even if it is not UTF-8: what becomes of that is for
// whoever encodes it.
func toText(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return nil, unexpected(v)
}

func toBytes(v any) (any, error) {
	switch v := v.(type) {
	case []byte:
		if v == nil {
			return []byte{}, nil
		}
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, unexpected(v)
}

func toJSON(v any) (any, error) {
	text := words(v)
	if !json.Valid([]byte(text)) {
		return nil, errors.New("the database gave no JSON")
	}
	return json.RawMessage(text), nil
}

// toInstant reads a moment with its zone in one of the layouts. What is out of
// the range of years that people can write, such as infinity or a date before
// Christ, stays the text that it is.
func toInstant(layouts ...string) func(any) (any, error) {
	return func(v any) (any, error) {
		text := words(v)
		for _, layout := range layouts {
			t, err := time.Parse(layout, text)
			if err == nil && t.Year() >= 1 && t.Year() <= 9999 {
				if _, offset := t.Zone(); offset == 0 {
					t = t.UTC()
				}
				return t, nil
			}
		}
		return toText(v)
	}
}

// words is text of a driver, whichever form that chose.
func words(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

func unexpected(v any) error { return fmt.Errorf("the driver gave a %T", v) }

// sameDecimal takes decimals for the same whatever their zeros at the end.
func sameDecimal(v any) any {
	text := words(v)
	if strings.Contains(text, ".") && !strings.ContainsAny(text, "eE") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}

// samePadded takes texts for the same whatever their spaces at the end.
func samePadded(v any) any { return strings.TrimRight(words(v), " ") }

// sameZeros takes bytes for the same whatever their zeros at the end.
func sameZeros(v any) any { return strings.TrimRight(words(v), "\x00") }
