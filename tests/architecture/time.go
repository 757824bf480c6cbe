package architecture

import (
	"go/ast"
	"slices"
	"strings"
)

// clockCalls are the functions of package time that read or wait on the
// machine's clock.
var clockCalls = []string{"Now", "Sleep", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// chance are the packages of random numbers that a simulation must be able to
// repeat. Secrets come from crypto/rand and are no concern of it.
var chance = []string{"math/rand", "math/rand/v2"}

// CoreClock finds code in core that asks the machine for time or chance
// without going through core/clock. Suites that serve tests alone may.
func CoreClock(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if f.Layer() != "core" || f.Dir() == "core/clock" || f.TestSupport() {
			continue
		}
		for _, spec := range f.AST.Imports {
			if name := importPath(spec.Path.Value); slices.Contains(chance, name) {
				found = append(found, s.at(spec.Pos(), "core draws from %q instead of a clock.Source", name))
			}
		}
		for _, use := range uses(f.AST, "time") {
			if slices.Contains(clockCalls, use.Sel.Name) {
				found = append(found, s.at(use.Pos(), "core calls time.%s instead of a clock.Source", use.Sel.Name))
			}
		}
	}
	return found
}

// SleepingTests finds tests that wait for real time to pass. In a synctest
// bubble time is virtual and sleeping is free.
func SleepingTests(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if !f.TestSupport() || importName(f.AST, "testing/synctest") != "" {
			continue
		}
		for _, use := range uses(f.AST, "time") {
			if use.Sel.Name == "Sleep" {
				found = append(found, s.at(use.Pos(), "test sleeps; wait for the event, or use virtual time"))
			}
		}
	}
	return found
}

// SkippedTests finds tests that excuse themselves, other than slow ones under
// -short.
func SkippedTests(s *Sources) []Violation {
	var found []Violation
	for _, f := range s.Go() {
		if !f.TestSupport() {
			continue
		}
		walk(f.AST, func(stack []ast.Node) {
			sel, ok := stack[len(stack)-1].(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return
			}
			if called(stack) && !underShort(stack) {
				found = append(found, s.at(sel.Pos(), "test is skipped other than under -short"))
			}
		})
	}
	return found
}

// called reports whether the node on top of the stack is what a call calls.
func called(stack []ast.Node) bool {
	if len(stack) < 2 {
		return false
	}
	call, ok := stack[len(stack)-2].(*ast.CallExpr)
	return ok && call.Fun == stack[len(stack)-1]
}

// underShort reports whether an if on testing.Short() alone surrounds the node.
func underShort(stack []ast.Node) bool {
	return slices.ContainsFunc(stack, func(n ast.Node) bool {
		branch, ok := n.(*ast.IfStmt)
		if !ok {
			return false
		}
		call, ok := branch.Cond.(*ast.CallExpr)
		if !ok {
			return false
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Short"
	})
}

// uses returns the selections from an imported package, whatever name the file
// gives it.
func uses(file *ast.File, pkg string) []*ast.SelectorExpr {
	local := importName(file, pkg)
	if local == "" {
		return nil
	}
	var found []*ast.SelectorExpr
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == local {
				found = append(found, sel)
			}
		}
		return true
	})
	return found
}

// importName returns the name under which a file imports a package, or "".
func importName(file *ast.File, pkg string) string {
	for _, spec := range file.Imports {
		if importPath(spec.Path.Value) != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return pkg[strings.LastIndexByte(pkg, '/')+1:]
	}
	return ""
}

// walk calls fn with every node, as the last of the path that leads to it.
func walk(root ast.Node, fn func(stack []ast.Node)) {
	var stack []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		fn(stack)
		return true
	})
}
