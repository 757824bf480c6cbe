package auth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// maxKeys bounds the keys of a service: each request is compared with all.
	maxKeys = 1000
	// maxKeysBytes bounds a keys file.
	maxKeysBytes = 1 << 20
	// maxLineBytes bounds one line of it.
	maxLineBytes = 16 << 10
	// noTrees stands for the trees of an internal key.
	noTrees = "-"
)

// line returns the key as parseLine reads it.
func (k *Key) line() string {
	trees := k.Trees.String()
	if trees == "" {
		trees = noTrees
	}
	fields := []string{k.Name, k.Role.String(), trees, k.hash.String()}
	if k.Limits.Rate != 0 {
		fields = append(fields, "rate="+strconv.FormatFloat(k.Limits.Rate, 'f', -1, 64))
	}
	if k.Limits.Burst != 0 {
		fields = append(fields, "burst="+strconv.Itoa(k.Limits.Burst))
	}
	if k.Limits.Concurrent != 0 {
		fields = append(fields, "concurrent="+strconv.Itoa(k.Limits.Concurrent))
	}
	if !k.Expires.IsZero() {
		fields = append(fields, "expires="+k.Expires.UTC().Format(time.RFC3339))
	}
	return strings.Join(fields, " ")
}

// parseKeys reads the text of a keys file: one key a line,
//
//	NAME ROLE TREES sha256:SALT:DIGEST [rate=N] [burst=N] [concurrent=N] [expires=TIME]
//
// empty lines and such that begin with #. Errors name the line and never quote
// it: somebody may have put the key where its name belongs.
func parseKeys(text string) ([]Key, error) {
	if len(text) > maxKeysBytes {
		return nil, fmt.Errorf("more than %d bytes", maxKeysBytes)
	}
	var keys []Key
	lines := map[string]int{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if first, ok := lines[k.Name]; ok {
			return nil, fmt.Errorf("line %d: has the name of line %d", number, first)
		}
		lines[k.Name] = number
		if keys = append(keys, k); len(keys) > maxKeys {
			return nil, fmt.Errorf("line %d: more than %d keys", number, maxKeys)
		}
	}
	return keys, nil
}

func parseLine(line string) (k Key, err error) {
	if len(line) > maxLineBytes {
		return k, fmt.Errorf("more than %d bytes", maxLineBytes)
	}
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return k, errors.New("has not the form NAME ROLE TREES HASH")
	}
	k.Name = fields[0]
	if k.Role, err = ParseRole(fields[1]); err != nil {
		return k, err
	}
	if fields[2] != noTrees {
		if k.Trees, err = ParsePatterns(fields[2]); err != nil {
			return k, err
		}
	}
	if k.hash, err = parseKeyHash(fields[3]); err != nil {
		return k, err
	}
	if err := k.parseSettings(fields[4:]); err != nil {
		return k, err
	}
	return k, k.check()
}

func (k *Key) parseSettings(fields []string) (err error) {
	seen := map[string]bool{}
	for i, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "rate":
			k.Limits.Rate, err = strconv.ParseFloat(value, 64)
		case "burst":
			k.Limits.Burst, err = strconv.Atoi(value)
		case "concurrent":
			k.Limits.Concurrent, err = strconv.Atoi(value)
		case "expires":
			k.Expires, err = time.Parse(time.RFC3339, value)
		default:
			return fmt.Errorf("field %d is none of rate=, burst=, concurrent=, expires=", i+5)
		}
		if err != nil {
			return fmt.Errorf("%s has a value that cannot be read", name)
		}
		if seen[name] {
			return fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
	}
	return nil
}
