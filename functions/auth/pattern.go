package auth

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxPatterns bounds the patterns of one credential.
const maxPatterns = 64

// Patterns are globs over tree names: a star stands for any run of characters,
// everything else for itself. Case matters, as it does in tree names. The zero
// value matches no tree.
type Patterns []string

// everyTree is the pattern of a credential without limits.
const everyTree = "*"

// patternForm is a tree name in which stars may stand. A matcher of slashes,
// classes or escapes would find nothing that a tree may be called.
var patternForm = regexp.MustCompile(`^[A-Za-z0-9*][A-Za-z0-9._*-]{0,127}$`)

// ParsePatterns reads patterns separated by commas.
func ParsePatterns(text string) (Patterns, error) { return newPatterns(strings.Split(text, ",")) }

func newPatterns(list []string) (Patterns, error) {
	if len(list) > maxPatterns {
		return nil, fmt.Errorf("%d tree patterns, at most %d are allowed", len(list), maxPatterns)
	}
	for _, p := range list {
		if !patternForm.MatchString(p) {
			return nil, errors.New("a tree pattern has 1 to 128 of A-Z a-z 0-9 . _ - and *")
		}
	}
	return Patterns(slices.Clone(list)), nil
}

// Match reports whether a tree of this name may be seen.
func (p Patterns) Match(tree string) bool {
	for _, pattern := range p {
		// The form of patterns leaves no error to be had.
		if ok, err := path.Match(pattern, tree); ok && err == nil {
			return true
		}
	}
	return false
}

// All reports whether every tree matches, those to come included.
func (p Patterns) All() bool { return slices.Contains(p, everyTree) }

// String returns the patterns as ParsePatterns reads them.
func (p Patterns) String() string { return strings.Join(p, ",") }
