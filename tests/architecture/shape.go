package architecture

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

const (
	maxFileLines = 600
	maxFuncLines = 80
)

// FileLength finds files that have grown beyond one subject.
func FileLength(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if lines := strings.Count(f.Text, "\n"); !f.IsTest() && lines > maxFileLines {
			found = append(found, Violation{f.Path, fmt.Sprintf("%d lines, at most %d", lines, maxFileLines)})
		}
	}
	return found
}

// FuncLength finds functions that nobody reads to the end. Tests may be long.
func FuncLength(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if f.TestSupport() {
			continue
		}
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := s.Fset.Position(fn.End()).Line - s.Fset.Position(fn.Pos()).Line + 1
			if lines > maxFuncLines {
				found = append(found, s.at(fn.Pos(), "function %s of %d lines, at most %d", fn.Name.Name, lines, maxFuncLines))
			}
		}
	}
	return found
}

// PackageComments finds packages that do not say what they are.
func PackageComments(s *Sources) []Violation {
	first := map[string]*File{}
	said := map[string]bool{}
	for _, f := range s.Go() {
		name := strings.TrimSuffix(f.AST.Name.Name, "_test")
		if first[f.Dir()] == nil {
			first[f.Dir()] = f
		}
		doc := f.AST.Doc.Text()
		if strings.HasPrefix(doc, "Package "+name+" ") || name == "main" && strings.HasPrefix(doc, "Command ") {
			said[f.Dir()] = true
		}
	}
	var found []Violation
	for _, f := range s.Go() {
		if first[f.Dir()] == f && !said[f.Dir()] {
			found = append(found, Violation{f.Dir(), "no package comment"})
		}
	}
	return found
}

// ExportedComments finds exported names that are not documented. Those of a
// main package nobody can import.
func ExportedComments(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if f.IsTest() || f.AST.Name.Name == "main" {
			continue
		}
		for _, decl := range f.AST.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
					found = append(found, s.at(d.Pos(), "exported %s is not documented", d.Name.Name))
				}
			case *ast.GenDecl:
				found = append(found, s.undocumented(d)...)
			}
		}
	}
	return found
}

func (s *Sources) undocumented(d *ast.GenDecl) []Violation {
	var found []Violation
	for _, spec := range d.Specs {
		var names []*ast.Ident
		documented := d.Doc != nil
		switch sp := spec.(type) {
		case *ast.TypeSpec:
			names, documented = []*ast.Ident{sp.Name}, documented || sp.Doc != nil
		case *ast.ValueSpec:
			names, documented = sp.Names, documented || sp.Doc != nil || sp.Comment != nil
		}
		for _, name := range names {
			if name.IsExported() && !documented {
				found = append(found, s.at(name.Pos(), "exported %s is not documented", name.Name))
			}
		}
	}
	return found
}

// exportedReceiver reports whether fn is a function, or a method of an
// exported type.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return true
	}
	name := ""
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return ast.IsExported(name)
}

var sentinel = regexp.MustCompile(`^(Err[A-Z]\w*|EOF)$`)

// ErrorComparison finds sentinels compared with == or !=, which misses wrapped
// ones. A field named Code holds no wrapped error.
func ErrorComparison(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if ok && (b.Op == token.EQL || b.Op == token.NEQ) && (isSentinel(b.X) && !isCode(b.Y) || isSentinel(b.Y) && !isCode(b.X)) {
				found = append(found, s.at(b.Pos(), "compare errors with errors.Is"))
			}
			return true
		})
	}
	return found
}

func isSentinel(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return sentinel.MatchString(x.Name)
	case *ast.SelectorExpr:
		return sentinel.MatchString(x.Sel.Name)
	}
	return false
}

func isCode(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Code"
}

// DetachedContext finds core and providers making up a context instead of
// taking the caller's.
func DetachedContext(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if f.TestSupport() || f.Layer() != "core" && f.Layer() != "providers" {
			continue
		}
		for _, use := range uses(f.AST, "context") {
			if use.Sel.Name == "Background" {
				found = append(found, s.at(use.Pos(), "context.Background below the programs; take the caller's"))
			}
		}
	}
	return found
}
