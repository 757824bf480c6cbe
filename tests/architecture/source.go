// Package architecture holds the rules of the house as code: which package may
// import which, where time may be read, how long a function may grow. Each
// rule is a function from the parsed sources to what it objects to; the tests
// run all of them over the repository, and each over a planted violation.
package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Module is the module path; imports that begin with it are the project's own.
const Module = "github.com/latticekv/lattice"

// maxFileBytes bounds what is read of one file; larger ones are data.
const maxFileBytes = 4 << 20

// File is one text file of the repository.
type File struct {
	// Path is relative to the root, with slashes.
	Path string
	// Text is the content.
	Text string
	// AST is the parsed form of a Go file, nil for others.
	AST *ast.File
}

// Dir returns the folder of the file: the package, for a Go file.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsTest reports whether the file is compiled into tests alone.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Layer returns the first segment of the path: core, providers, functions…
func (f *File) Layer() string {
	first, _, _ := strings.Cut(f.Path, "/")
	return first
}

// TestSupport reports whether the file serves tests alone, in a _test.go file
// or not: the integration tests and the exported suites.
func (f *File) TestSupport() bool {
	return f.IsTest() || f.Layer() == "tests" || strings.HasSuffix(f.Dir(), "test")
}

// Sources are the files of the repository.
type Sources struct {
	Fset  *token.FileSet
	Files []*File
}

// Violation is one breach of a rule.
type Violation struct {
	// Where is a path, with a line if there is one.
	Where string
	// What says what is wrong.
	What string
}

// String returns the violation as one line.
func (v Violation) String() string { return v.Where + ": " + v.What }

// Go returns the Go files.
func (s *Sources) Go() []*File {
	return slices.DeleteFunc(slices.Clone(s.Files), func(f *File) bool { return f.AST == nil })
}

// at returns a violation at a position.
func (s *Sources) at(pos token.Pos, format string, args ...any) Violation {
	p := s.Fset.Position(pos)
	return Violation{Where: fmt.Sprintf("%s:%d", p.Filename, p.Line), What: fmt.Sprintf(format, args...)}
}

// Load reads every text file below root and parses the Go files; one that does
// not parse is an error. Hidden folders other than .ci, built programs,
// installed tools, stored data and testdata are no sources.
func Load(root fs.FS) (*Sources, error) {
	s := &Sources{Fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if ignoredDir(name) {
				return fs.SkipDir
			}
			return nil
		}
		if name == ".git" {
			return nil // what stands for the folder in a linked work tree
		}
		return s.add(root, name, entry)
	})
	return s, err
}

func ignoredDir(name string) bool {
	switch name {
	case ".", ".ci":
		return false
	case "bin", "dist", "coverage", "lattice-data":
		return true
	}
	base := path.Base(name)
	return strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata"
}

func (s *Sources) add(root fs.FS, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return err
	}
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	if strings.IndexByte(string(text), 0) >= 0 {
		return nil
	}
	file := &File{Path: name, Text: string(text)}
	if strings.HasSuffix(name, ".go") {
		file.AST, err = parser.ParseFile(s.Fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
	}
	s.Files = append(s.Files, file)
	return nil
}
