package architecture

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// reach says which layers the code of a layer may import, besides its own.
// Imports point one way: cmd → functions → core ← providers. A layer that is
// not listed, such as tests, may import all, and only tests import it.
var reach = map[string][]string{
	"core":      {},
	"providers": {"core"},
	"functions": {"core"},
	"client":    {},
	"migrate":   {"client"},
	"cmd":       {"functions", "core", "providers", "client", "migrate"},
}

// mainReach is what a main package may import on top: wiring is its work.
var mainReach = []string{"providers", "functions", "core"}

// testReach is what the test files of any layer may import on top: stores to
// run on, and what tests have in common.
var testReach = []string{"core", "providers", "tests"}

// peerReach is what the test files of a layer may import besides: a client is
// tested against the service.
var peerReach = map[string][]string{"client": {"functions"}}

// foreign are the imports that core must not know: transports, clouds, hosts,
// embedded stores, command lines.
var foreign = []string{
	"net", "net/http",
	"github.com/Azure", "github.com/aws", "go.etcd.io/bbolt",
	"github.com/gorilla", "github.com/prometheus", "github.com/getkin", "github.com/alecthomas", "go.opentelemetry.io",
}

// ImportDirection finds imports of the project's own packages that point the
// wrong way.
func ImportDirection(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		allowed, known := reach[f.Layer()]
		if !known {
			continue
		}
		if f.AST.Name.Name == "main" {
			allowed = slices.Concat(allowed, mainReach)
		}
		if f.IsTest() {
			allowed = slices.Concat(allowed, testReach, peerReach[f.Layer()])
		}
		for _, spec := range f.AST.Imports {
			layer, own := ownLayer(importPath(spec.Path.Value))
			if own && layer != f.Layer() && !slices.Contains(allowed, layer) {
				found = append(found, s.at(spec.Pos(), "%s must not import %s", f.Layer(), spec.Path.Value))
			}
		}
	}
	return found
}

// CoreImports finds imports of transports, cloud SDKs and hosts in core.
func CoreImports(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if f.Layer() != "core" || f.IsTest() {
			continue
		}
		for _, spec := range f.AST.Imports {
			name := importPath(spec.Path.Value)
			for _, banned := range foreign {
				if name == banned || strings.HasPrefix(name, banned+"/") {
					found = append(found, s.at(spec.Pos(), "core must not import %q", name))
					break
				}
			}
		}
	}
	return found
}

// vague are package names that say nothing of what is inside.
var vague = []string{"util", "utils", "common", "helper", "helpers", "type", "types", "model", "models",
	"services", "misc", "shared", "base"}

// PackageNames finds packages named after nothing, and folders named other
// than their package.
func PackageNames(s *Sources) []Violation {
	var found []Violation
	seen := map[string]bool{}
	for _, f := range s.Go() {
		name := strings.TrimSuffix(f.AST.Name.Name, "_test")
		if seen[f.Dir()+" "+name] {
			continue
		}
		seen[f.Dir()+" "+name] = true
		switch folder := path.Base(f.Dir()); {
		case slices.Contains(vague, name), slices.Contains(vague, folder):
			found = append(found, s.at(f.AST.Name.Pos(), "package name %q says nothing of what is inside", name))
		case name != "main" && folder != "." && name != folder:
			found = append(found, s.at(f.AST.Name.Pos(), "package %q in a folder named %q", name, folder))
		}
	}
	return found
}

func importPath(quoted string) string {
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return quoted
	}
	return name
}

// ownLayer returns the layer of an import of the project's own.
func ownLayer(name string) (layer string, own bool) {
	rest, own := strings.CutPrefix(name, Module+"/")
	layer, _, _ = strings.Cut(rest, "/")
	return layer, own
}
