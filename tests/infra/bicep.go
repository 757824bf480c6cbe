package infra

import (
	"fmt"
	"strings"

	sitter "github.com/tree-sitter/go-tree-sitter"

	grammar "github.com/tree-sitter-grammars/tree-sitter-bicep/bindings/go"
)

// node is a node of a syntax tree with its source.
type node struct {
	*sitter.Node
	src []byte
}

func (n node) text() string { return n.Utf8Text(n.src) }

// line is where the node begins, for messages.
func (n node) line() uint { return n.StartPosition().Row + 1 }

// children returns the named children, without comments.
func (n node) children() (all []node) {
	if n.Node == nil {
		return nil
	}
	for i := range n.NamedChildCount() {
		if c := n.NamedChild(i); c.Kind() != "comment" {
			all = append(all, node{c, n.src})
		}
	}
	return all
}

// walk visits the node and all below it.
func (n node) walk(visit func(node)) {
	visit(n)
	for i := range n.ChildCount() {
		node{n.Child(i), n.src}.walk(visit)
	}
}

// unquoted is the text of a string without interpolation.
func (n node) unquoted() string {
	if n.Node == nil {
		return ""
	}
	text := strings.Trim(n.text(), "'")
	return strings.NewReplacer(`\'`, `'`, `\\`, `\`).Replace(text)
}

// property is a key of an object with its value.
type property struct {
	key   string
	value node
}

// properties returns those of an object; of a conditional or repeated object,
// those of its body.
func (n node) properties() (all []property) {
	if n.Node == nil {
		return nil
	}
	if c := n.children(); n.Kind() == "if_statement" || n.Kind() == "for_statement" {
		return c[len(c)-1].properties()
	}
	for _, c := range n.children() {
		if parts := c.children(); c.Kind() == "object_property" && len(parts) == 2 {
			all = append(all, property{strings.Trim(parts[0].text(), "'"), parts[1]})
		}
	}
	return all
}

// at follows keys down from an object; the zero node if there is none.
func (n node) at(keys ...string) node {
	for _, key := range keys {
		next := node{}
		for _, p := range n.properties() {
			if p.key == key {
				next = p.value
			}
		}
		n = next
	}
	return n
}

// said is the text of the value under keys, empty if there is none.
func (n node) said(keys ...string) string {
	if n = n.at(keys...); n.Node == nil {
		return ""
	}
	return n.text()
}

// declaration is a parameter, variable, output, resource or module.
type declaration struct {
	kind, name string
	// about are the decorators by name, with their argument's text.
	about map[string]string
	// typ is the type of a parameter or output, the type with version of a
	// resource, the file of a module.
	typ      string
	existing bool
	// value is the default, the expression or the body; the zero node if there
	// is none.
	value node
	line  uint
}

// bicep is one template file.
type bicep struct {
	path         string
	root         node
	declarations []declaration
}

func parseBicep(path, text string) (*bicep, error) {
	parser := sitter.NewParser()
	defer parser.Close()
	if err := parser.SetLanguage(sitter.NewLanguage(grammar.Language())); err != nil {
		return nil, err
	}
	src := []byte(text)
	tree := parser.Parse(src, nil)
	b := &bicep{path: path, root: node{tree.RootNode(), src}}
	if b.root.HasError() {
		return nil, fmt.Errorf("%s does not parse: %s", path, b.firstError())
	}
	b.collect(b.root)
	return b, nil
}

func (b *bicep) firstError() (where string) {
	b.root.walk(func(n node) {
		if where == "" && (n.IsError() || n.IsMissing()) {
			where = fmt.Sprintf("line %d, near %.40q", n.line(), n.text())
		}
	})
	return where
}

var kinds = map[string]string{
	"parameter_declaration": "param", "variable_declaration": "var", "output_declaration": "output",
	"resource_declaration": "resource", "module_declaration": "module",
}

// collect finds the declarations below a node, nested resources among them.
func (b *bicep) collect(parent node) {
	about := map[string]string{}
	for _, n := range parent.children() {
		switch {
		case n.Kind() == "decorators":
			about = decorators(n)
			continue
		case kinds[n.Kind()] != "":
			b.declarations = append(b.declarations, declare(n, about))
			fallthrough
		default:
			b.collect(n)
		}
		about = map[string]string{}
	}
}

func decorators(n node) map[string]string {
	about := map[string]string{}
	n.walk(func(c node) {
		if c.Kind() != "call_expression" || c.Parent().Kind() != "decorator" {
			return
		}
		argument := ""
		if given := (node{c.ChildByFieldName("arguments"), c.src}).children(); len(given) > 0 {
			argument = given[0].unquoted()
		}
		about[node{c.ChildByFieldName("function"), c.src}.text()] = argument
	})
	return about
}

func declare(n node, about map[string]string) declaration {
	parts := n.children()
	d := declaration{kind: kinds[n.Kind()], name: parts[0].text(), about: about, line: n.line()}
	rest := parts[1:]
	if d.kind != "var" && len(rest) > 0 {
		d.typ, rest = rest[0].unquoted(), rest[1:]
	}
	if len(rest) > 0 {
		d.value = rest[len(rest)-1]
	}
	head, _, _ := strings.Cut(n.text(), "{")
	d.existing = strings.Contains(head, " existing ")
	return d
}

// all returns the declarations of a kind.
func (b *bicep) all(kind string) (found []declaration) {
	for _, d := range b.declarations {
		if d.kind == kind {
			found = append(found, d)
		}
	}
	return found
}

// find returns a declaration, the zero one if there is none.
func (b *bicep) find(kind, name string) declaration {
	for _, d := range b.all(kind) {
		if d.name == name {
			return d
		}
	}
	return declaration{}
}

// resources returns those of a type, without version, that this file makes.
func (b *bicep) resources(typ string) (found []declaration) {
	for _, d := range b.all("resource") {
		if name, _, _ := strings.Cut(d.typ, "@"); name == typ && !d.existing {
			found = append(found, d)
		}
	}
	return found
}
