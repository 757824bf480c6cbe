package options

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Kind is the type of an option's value.
type Kind string

// The kinds of options.
const (
	// KindBool is true or false.
	KindBool Kind = "bool"
	// KindCount is a whole number.
	KindCount Kind = "count"
	// KindBytes is a size: a number of bytes, or text such as 64MiB.
	KindBytes Kind = "bytes"
	// KindDuration is a time: Go style such as 1m30s, or a number of seconds.
	KindDuration Kind = "duration"
	// KindRatio is a number with a fraction.
	KindRatio Kind = "ratio"
)

// Scope says where an option can be set.
type Scope string

// The scopes of options.
const (
	// ScopeService options hold for the whole service.
	ScopeService Scope = "service"
	// ScopeTree options can be overridden for one tree.
	ScopeTree Scope = "tree"
)

// Description is what there is to know about one option.
type Description struct {
	// Name is the option's one name, as in HotShardSampleInterval.
	Name string
	Kind Kind
	// Scope tells whether a tree may override it.
	Scope Scope
	// Default, Min and Max are in text form; Min and Max are empty if the kind
	// has no bounds.
	Default, Min, Max string
	// Doc is one line for help texts.
	Doc string
	// Flag and Env are the spellings on a command line (without dashes) and in
	// the environment.
	Flag, Env string

	index    int
	min, max float64
}

var (
	described []Description
	byName    = map[string]*Description{}
	defaults  Options
)

func init() {
	t := reflect.TypeFor[Options]()
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			described = append(described, describe(f, i))
		}
	}
	for i := range described {
		d := &described[i]
		byName[d.Name] = d
		must(d.assignText(&defaults, d.Default))
	}
	must(defaults.Validate())
}

// must reports a mistake in the tags of Options; it cannot fire in a build
// whose tests ran.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("options: %v", err))
	}
}

func describe(f reflect.StructField, index int) Description {
	d := Description{
		Name: f.Name, Kind: kindOf(f.Type), Scope: ScopeService,
		Default: f.Tag.Get("def"), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"), Doc: f.Tag.Get("doc"),
		Flag: spell(f.Name, '-', unicode.ToLower), Env: "LATTICE_" + spell(f.Name, '_', unicode.ToUpper),
		index: index, min: math.Inf(-1), max: math.Inf(1),
	}
	if f.Tag.Get("scope") == string(ScopeTree) {
		d.Scope = ScopeTree
	}
	d.bound(d.Min, &d.min)
	d.bound(d.Max, &d.max)
	return d
}

func (d *Description) bound(text string, to *float64) {
	if text == "" {
		return
	}
	v, err := parseText(d.Kind, text)
	must(err)
	*to = magnitude(v)
}

func kindOf(t reflect.Type) Kind {
	if t == reflect.TypeFor[time.Duration]() {
		return KindDuration
	}
	switch t.Kind() {
	case reflect.Bool:
		return KindBool
	case reflect.Int:
		return KindCount
	case reflect.Int64:
		return KindBytes
	case reflect.Float64:
		return KindRatio
	}
	panic(fmt.Sprintf("options: no kind for a field of type %s", t))
}

// spell breaks CamelCase into words: MaxHeaderBytes becomes max-header-bytes.
func spell(name string, sep rune, letter func(rune) rune) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteRune(sep)
		}
		b.WriteRune(letter(r))
	}
	return b.String()
}

// Default returns the options as they are when nobody sets anything.
func Default() Options { return defaults }

// Names returns the names of all options in the order of their declaration.
func Names() []string {
	names := make([]string, len(described))
	for i := range described {
		names[i] = described[i].Name
	}
	return names
}

// Describe returns the descriptions of all options in the order of their
// declaration.
func Describe() []Description {
	return append([]Description(nil), described...)
}

// Lookup returns the description of the option with exactly this name.
func Lookup(name string) (Description, bool) {
	d, ok := byName[name]
	if !ok {
		return Description{}, false
	}
	return *d, true
}
