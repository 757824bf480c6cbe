package infra

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/awslabs/goformation/v7"
	"github.com/awslabs/goformation/v7/intrinsics"
	"go.yaml.in/yaml/v3"
)

const samPath = "infra/aws/template.yaml"

// aws is the template of AWS. The tree has maps, lists and strings; a function
// such as !Ref Name is a map with the function's name as its key.
type aws struct {
	tree  map[string]any
	known []string
	docs  texts
}

// younger are properties that the library does not know yet. This one is of
// AWS::Lambda::Permission, a boolean, since October 2025.
var younger = regexp.MustCompile(`(?m)^      InvokedViaFunctionUrl: true\n`)

// loadAWS parses the template twice: by a library that knows the properties of
// every type of resource, and refuses others, and as a tree for the checks. The
// library knows the types as they were when it was made, and does not look into
// Globals.
func loadAWS(all texts, known []string) (*aws, error) {
	text := []byte(all[samPath])
	if _, err := goformation.ParseYAMLWithOptions(younger.ReplaceAll(text, nil), &intrinsics.ProcessorOptions{}); err != nil {
		return nil, fmt.Errorf("%s: %w", samPath, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", samPath, err)
	}
	tree, ok := plain(doc.Content[0]).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no map", samPath)
	}
	return &aws{tree: tree, known: known, docs: all}, nil
}

// plain turns a node of YAML into maps, lists and strings.
func plain(n *yaml.Node) any {
	var v any
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(n.Content[i+1])
		}
		v = m
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			list = append(list, plain(c))
		}
		v = list
	default:
		v = n.Value
	}
	name, tagged := strings.CutPrefix(n.Tag, "!")
	if !tagged || strings.HasPrefix(name, "!") || name == "" {
		return v
	}
	return map[string]any{name: v}
}

// at follows keys down from a value; nil if there is none.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// said is the value under keys as text: that of a string, or a function as in
// "Ref Name"; empty if there is none.
func said(v any, keys ...string) string {
	switch x := at(v, keys...).(type) {
	case string:
		return x
	case map[string]any:
		for name, argument := range x {
			if len(x) == 1 {
				return name + " " + said(argument)
			}
		}
	case []any:
		var parts []string
		for _, item := range x {
			parts = append(parts, said(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return ""
}

// section returns a map of the template by its names, sorted.
func (a *aws) section(name string) (names []string, entries map[string]any) {
	entries, _ = at(a.tree, name).(map[string]any)
	for entry := range entries {
		names = append(names, entry)
	}
	slices.Sort(names)
	return names, entries
}

// resources returns those of a type, by their names.
func (a *aws) resources(typ string) map[string]any {
	found := map[string]any{}
	names, all := a.section("Resources")
	for _, name := range names {
		if said(all[name], "Type") == typ {
			found[name] = at(all[name], "Properties")
		}
	}
	return found
}

// calls visits every use of a function.
func calls(v any, visit func(name string, argument any)) {
	switch x := v.(type) {
	case map[string]any:
		for key, value := range x {
			if len(x) == 1 {
				visit(key, value)
			}
			calls(value, visit)
		}
	case []any:
		for _, item := range x {
			calls(item, visit)
		}
	}
}
