package infra

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/providers/backend"
)

// readByOthers are variables that libraries in the programs read: azidentity
// those of identities, telemetry those of OpenTelemetry, which puts their names
// together.
var readByOthers = []string{
	"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_TOKEN_CREDENTIALS",
	"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS",
}

// notInTemplates are variables of the storage and of credentials that neither
// template sets, each with the reason.
var notInTemplates = map[string]string{
	"LATTICE_DATA_DIR":             "a folder of this machine",
	"LATTICE_AUTH_KEYS_FILE":       "functions have no files of their own",
	"LATTICE_AUTH_JWT_ALGORITHMS":  "the default suits",
	"LATTICE_AUTH_JWT_LEEWAY":      "the default suits",
	"LATTICE_AUTH_JWT_MAX_AGE":     "the default suits",
	"LATTICE_AUTH_JWT_ROLE_CLAIM":  "the default suits",
	"LATTICE_AUTH_JWT_ROLE_PREFIX": "the default suits",
	"LATTICE_AUTH_JWT_TREES_CLAIM": "the default suits",
	"LATTICE_AUTH_JWT_RATE":        "no limit unless wanted",
	"LATTICE_AUTH_JWT_BURST":       "no limit unless wanted",
	"LATTICE_AUTH_JWT_CONCURRENT":  "no limit unless wanted",
	"LATTICE_AUTH_PUBLIC_METRICS":  "metrics name trees",
}

// tagged returns the variables that the fields of a configuration are set from.
func tagged(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("env"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// configured returns the variables of storage and credentials.
func configured() []string {
	return append(tagged(reflect.TypeFor[backend.Config]()), tagged(reflect.TypeFor[auth.Config]())...)
}

var variable = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

// variables returns every environment variable that the programs of the cloud
// hosts read: options, storage, credentials, and constants under functions/.
func variables(root string) ([]string, error) {
	names := append(configured(), readByOthers...)
	for _, d := range options.Describe() {
		names = append(names, d.Env)
	}
	err := filepath.WalkDir(filepath.Join(root, "functions"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && variable.MatchString(text) {
				names = append(names, text)
			}
			return true
		})
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), err
}
