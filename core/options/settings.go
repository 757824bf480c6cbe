package options

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Origin says who decided the value of an option.
type Origin string

// The origins of values.
const (
	// OriginDefault is the built-in default.
	OriginDefault Origin = "default"
	// OriginService is a flag, the environment or code of the service.
	OriginService Origin = "service"
	// OriginTree is a setting of the tree.
	OriginTree Origin = "tree"
)

// Fault is one thing that is wrong with one option.
type Fault struct {
	// Name is the option, as far as it exists.
	Name string
	// Reason says what is wrong.
	Reason string
}

// Error implements error.
func (f *Fault) Error() string { return f.Name + ": " + f.Reason }

// Faults lists every Fault inside err, in order.
func Faults(err error) []*Fault {
	var fault *Fault
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Fault
		for _, e := range joined.Unwrap() {
			all = append(all, Faults(e)...)
		}
		return all
	}
	if errors.As(err, &fault) {
		return []*Fault{fault}
	}
	return nil
}

// Value is one option with its value and origin.
type Value struct {
	Name string
	// Value is in the form used in JSON: a bool, a number, or a duration as
	// text.
	Value  any
	Origin Origin
}

// Validate checks every bound and relation, and returns all faults joined,
// each a *Fault; nil if there is none.
func (o *Options) Validate() error {
	var faults []error
	for i := range described {
		d := &described[i]
		if reason := d.outOfBounds(d.field(o).Interface()); reason != "" {
			faults = append(faults, &Fault{d.Name, reason})
		}
	}
	for _, r := range relations {
		if reason := r.check(o); reason != "" {
			faults = append(faults, &Fault{r.name, reason})
		}
	}
	return errors.Join(faults...)
}

func (d *Description) outOfBounds(v any) string {
	if m := magnitude(v); d.Kind != KindBool && !(m >= d.min && m <= d.max) {
		return fmt.Sprintf("%v is not between %s and %s", v, d.Min, d.Max)
	}
	return ""
}

func (d *Description) field(o *Options) reflect.Value {
	return reflect.ValueOf(o).Elem().Field(d.index)
}

func (d *Description) assignText(o *Options, text string) error {
	v, err := parseText(d.Kind, text)
	if err != nil {
		return &Fault{d.Name, err.Error()}
	}
	d.field(o).Set(reflect.ValueOf(v))
	return nil
}

// mark notes an origin on a fresh copy of the map: Options are copied freely.
func (o *Options) mark(name string, origin Origin) {
	marks := maps.Clone(o.origins)
	if marks == nil {
		marks = map[string]Origin{}
	}
	marks[name] = origin
	o.origins = marks
}

// Set gives an option of the service a value in text form, as flags and
// environment variables do. The error is a *Fault. Bounds are left to Validate.
func (o *Options) Set(name, text string) error {
	d, ok := byName[name]
	if !ok {
		return &Fault{name, "no such option"}
	}
	if err := d.assignText(o, text); err != nil {
		return err
	}
	o.mark(name, OriginService)
	return nil
}

// SetFromEnv sets every option whose environment variable lookup knows, and
// returns all faults joined.
func (o *Options) SetFromEnv(lookup func(key string) (string, bool)) error {
	var faults []error
	for _, d := range described {
		if text, ok := lookup(d.Env); ok {
			faults = append(faults, o.Set(d.Name, text))
		}
	}
	return errors.Join(faults...)
}

// AddFlags defines a flag for every option; parsing them sets the options.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	for i := range described {
		fs.Var(&flagValue{o: o, d: &described[i]}, described[i].Flag, described[i].Doc)
	}
}

// flagValue adapts one option to package flag.
type flagValue struct {
	o *Options
	d *Description
}

// String implements flag.Value; the zero flagValue must not panic.
func (f *flagValue) String() string {
	if f.d == nil {
		return ""
	}
	return f.d.text(f.o)
}

// Set implements flag.Value.
func (f *flagValue) Set(text string) error {
	if err := f.o.Set(f.d.Name, text); err != nil {
		return errors.New(Faults(err)[0].Reason)
	}
	return nil
}

// IsBoolFlag lets a bool be set by naming its flag alone.
func (f *flagValue) IsBoolFlag() bool { return f.d.Kind == KindBool }

// text renders the value so that Set reads it back.
func (d *Description) text(o *Options) string {
	switch v := d.field(o).Interface().(type) {
	case int64:
		return formatBytes(v)
	default:
		return fmt.Sprint(v)
	}
}

func formatBytes(n int64) string {
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// jsonValue renders the value for JSON: durations as text, the rest as is.
func (d *Description) jsonValue(o *Options) any {
	v := d.field(o).Interface()
	if t, ok := v.(time.Duration); ok {
		return t.String()
	}
	return v
}

// Values returns all options as they apply, in the order of declaration.
func (o *Options) Values() []Value {
	values := make([]Value, len(described))
	for i := range described {
		d := &described[i]
		values[i] = Value{Name: d.Name, Value: d.jsonValue(o), Origin: o.Origin(d.Name)}
	}
	return values
}

// Origin returns who decided an option's value. A field that code changed
// counts as set by the service.
func (o *Options) Origin(name string) Origin {
	if origin, ok := o.origins[name]; ok {
		return origin
	}
	if d, ok := byName[name]; ok && d.field(o).Interface() != d.field(&defaults).Interface() {
		return OriginService
	}
	return OriginDefault
}

// ForTree lays a tree's own settings over those of the service and validates
// the result. The error joins every *Fault: unknown names, options that a tree
// cannot set, bad values, broken bounds and relations.
func (o Options) ForTree(overrides map[string]json.RawMessage) (Options, error) {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		faults = append(faults, o.override(name, overrides[name]))
	}
	if err := errors.Join(faults...); err != nil {
		return Options{}, err
	}
	if err := o.Validate(); err != nil {
		return Options{}, err
	}
	return o, nil
}

func (o *Options) override(name string, raw json.RawMessage) error {
	d, err := treeOption(name)
	if err != nil {
		return err
	}
	v, err := parseJSON(d.Kind, raw)
	if err != nil {
		return &Fault{name, err.Error()}
	}
	d.field(o).Set(reflect.ValueOf(v))
	o.mark(name, OriginTree)
	return nil
}

func treeOption(name string) (*Description, error) {
	d, ok := byName[name]
	if !ok {
		return nil, &Fault{name, "no such option"}
	}
	if d.Scope != ScopeTree {
		return nil, &Fault{name, "cannot be set for one tree"}
	}
	return d, nil
}

// Patch merges a change into a tree's own settings and returns them in
// canonical form: null removes a setting, anything else sets it. The result is
// validated over the options of the service; settings is not changed.
func (o Options) Patch(settings, patch map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	merged := maps.Clone(settings)
	if merged == nil {
		merged = map[string]json.RawMessage{}
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		if _, err := treeOption(name); err != nil {
			faults = append(faults, err)
		}
		merged[name] = patch[name]
		if isNull(patch[name]) {
			delete(merged, name)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	resolved, err := o.ForTree(merged)
	if err != nil {
		return nil, err
	}
	for name := range merged {
		raw, err := json.Marshal(byName[name].jsonValue(&resolved))
		if err != nil {
			return nil, fmt.Errorf("encode option %s: %w", name, err)
		}
		merged[name] = raw
	}
	return merged, nil
}

func isNull(raw json.RawMessage) bool {
	var v any
	return json.Unmarshal(raw, &v) == nil && v == nil
}
