package architecture

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRepositoryKeepsTheRules(t *testing.T) {
	sources, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"core/store/table.go", "go.mod", ".ci/run", "tests/architecture/rules.go"} {
		if !sources.has(must) {
			t.Fatalf("%s was not read: the rules would be checked on too little", must)
		}
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, v := range rule.Check(sources) {
				t.Error(v)
			}
		})
	}
}

func (s *Sources) has(path string) bool {
	for _, f := range s.Files {
		if f.Path == path {
			return true
		}
	}
	return false
}

// plant is a repository of a few files, and where a rule must object.
type plant struct {
	name string
	// files by path.
	files map[string]string
	// want are prefixes of the violations, in order; none means no objection.
	want []string
}

func (p plant) load(t *testing.T) *Sources {
	t.Helper()
	tree := fstest.MapFS{}
	for path, text := range p.files {
		tree[path] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	sources, err := Load(tree)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func runPlants(t *testing.T, check func(*Sources) []Violation, plants []plant) {
	t.Helper()
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			got := check(p.load(t))
			if len(got) != len(p.want) {
				t.Fatalf("%d violations, want %d: %v", len(got), len(p.want), got)
			}
			for i, want := range p.want {
				if !strings.HasPrefix(got[i].String(), want) {
					t.Errorf("violation %d is %q, want it to begin with %q", i, got[i], want)
				}
			}
		})
	}
}

func oneImport(pkg, path string) string {
	return "package " + pkg + "\n\nimport _ \"" + path + "\"\n"
}

func TestImportDirection(t *testing.T) {
	const own = Module + "/"
	cases := []struct {
		name, file, pkg, imports string
		refused                  bool
	}{
		{"core on core", "core/tree/a.go", "tree", own + "core/shard", false},
		{"core on a provider", "core/tree/a.go", "tree", own + "providers/memory", true},
		{"core on functions", "core/tree/a.go", "tree", own + "functions/api", true},
		{"core tests on a provider", "core/tree/a_test.go", "tree_test", own + "providers/memory", false},
		{"core tests on what tests share", "core/tree/a_test.go", "tree_test", own + "tests/history", false},
		{"core on what tests share", "core/tree/a.go", "tree", own + "tests/history", true},
		{"core tests on functions", "core/tree/a_test.go", "tree_test", own + "functions/api", true},
		{"provider on core", "providers/bolt/a.go", "bolt", own + "core/store", false},
		{"provider on functions", "providers/bolt/a.go", "bolt", own + "functions/api", true},
		{"provider on client", "providers/bolt/a.go", "bolt", own + "client", true},
		{"functions on core", "functions/api/a.go", "api", own + "core/tree", false},
		{"functions on a provider", "functions/api/a.go", "api", own + "providers/memory", true},
		{"functions tests on a provider", "functions/api/a_test.go", "api", own + "providers/memory", false},
		{"host main on a provider", "functions/awslambda/main.go", "main", own + "providers/memory", false},
		{"functions on a command", "functions/api/a.go", "api", own + "cmd/local", true},
		{"host main on a command", "functions/awslambda/main.go", "main", own + "cmd/local", true},
		{"command on functions", "cmd/local/a.go", "main", own + "functions/api", false},
		{"command on tests", "cmd/local/a.go", "main", own + "tests/e2e", true},
		{"client tests on functions", "client/a_test.go", "client_test", own + "functions/service", false},
		{"client on functions", "client/a.go", "client", own + "functions/service", true},
		{"client on core", "client/a.go", "client", own + "core/tree", true},
		{"tests on anything", "tests/e2e/a.go", "e2e", own + "cmd/local", false},
		{"others' packages are no concern", "core/tree/a.go", "tree", "example.com/providers/x", false},
	}
	for _, c := range cases {
		p := plant{name: c.name, files: map[string]string{c.file: oneImport(c.pkg, c.imports)}}
		if c.refused {
			p.want = []string{c.file + ":3: "}
		}
		runPlants(t, ImportDirection, []plant{p})
	}
}

func TestCoreImports(t *testing.T) {
	refused := []string{"net", "net/http", "net/http/httptest", "github.com/Azure/azure-sdk-for-go/sdk/azcore",
		"github.com/aws/aws-lambda-go/lambda", "go.etcd.io/bbolt", "github.com/gorilla/mux"}
	for _, path := range refused {
		runPlants(t, CoreImports, []plant{
			{path + " in core", map[string]string{"core/x/a.go": oneImport("x", path)}, []string{"core/x/a.go:3: "}},
			{path + " elsewhere", map[string]string{"providers/x/a.go": oneImport("x", path)}, nil},
		})
	}
	runPlants(t, CoreImports, []plant{
		{"the standard library", map[string]string{"core/x/a.go": oneImport("x", "network/tables")}, nil},
	})
}

func TestPackageNames(t *testing.T) {
	for _, name := range []string{"util", "common", "helpers", "types", "models", "services"} {
		file := "core/" + name + "/a.go"
		runPlants(t, PackageNames, []plant{{name, map[string]string{file: "package " + name + "\n"}, []string{file + ":1: "}}})
	}
	runPlants(t, PackageNames, []plant{
		{"vague folder of a main package", map[string]string{"cmd/util/a.go": "package main\n"}, []string{"cmd/util/a.go:1: "}},
		{"folder and package differ", map[string]string{"core/leaf/a.go": "package page\n"}, []string{"core/leaf/a.go:1: "}},
		{"told once", map[string]string{"util/a.go": "package util\n", "util/b.go": "package util\n"}, []string{"util/a.go:1: "}},
		{"a noun of the domain", map[string]string{"core/leaf/a.go": "package leaf\n", "core/leaf/a_test.go": "package leaf_test\n"}, nil},
	})
}

func TestCoreClock(t *testing.T) {
	const body = "package x\n\nimport \"time\"\n\nvar _ = time.Now\n"
	runPlants(t, CoreClock, []plant{
		{"time.Now in core", map[string]string{"core/x/a.go": body}, []string{"core/x/a.go:5: core calls time.Now"}},
		{"under another name", map[string]string{"core/x/a.go": "package x\n\nimport clk \"time\"\n\nvar _ = clk.Sleep\n"}, []string{"core/x/a.go:5: core calls time.Sleep"}},
		{"a timer", map[string]string{"core/x/a.go": strings.Replace(body, "Now", "NewTimer", 1)}, []string{"core/x/a.go:5: "}},
		{"random numbers", map[string]string{"core/x/a.go": oneImport("x", "math/rand/v2")}, []string{"core/x/a.go:3: "}},
		{"durations are harmless", map[string]string{"core/x/a.go": strings.Replace(body, "time.Now", "time.Second", 1)}, nil},
		{"the clock itself", map[string]string{"core/clock/a.go": strings.Replace(body, "package x", "package clock", 1)}, nil},
		{"a test of core", map[string]string{"core/x/a_test.go": body}, nil},
		{"a suite for tests", map[string]string{"core/store/storetest/a.go": body}, nil},
		{"outside core", map[string]string{"cmd/x/a.go": body}, nil},
	})
}

func TestSleepingTests(t *testing.T) {
	const body = "package x\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	virtual := strings.Replace(body, "import \"time\"", "import (\n\"time\"\n\"testing/synctest\"\n)", 1)
	runPlants(t, SleepingTests, []plant{
		{"in a test", map[string]string{"cmd/x/a_test.go": body}, []string{"cmd/x/a_test.go:5: "}},
		{"in an integration test's part", map[string]string{"tests/x/a.go": body}, []string{"tests/x/a.go:5: "}},
		{"in virtual time", map[string]string{"cmd/x/a_test.go": virtual}, nil},
		{"in production code", map[string]string{"cmd/x/a.go": body}, nil},
	})
}

func TestSkippedTests(t *testing.T) {
	in := func(body string) map[string]string {
		return map[string]string{"core/x/a_test.go": "package x\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {\n" + body + "\n}\n"}
	}
	line6 := []string{"core/x/a_test.go:6: "}
	runPlants(t, SkippedTests, []plant{
		{"skip", in(`t.Skip("flaky")`), line6},
		{"skip now", in(`t.SkipNow()`), line6},
		{"skip when a part is missing", in(`if noEmulator() { t.Skipf("no %s", "emulator") }`), line6},
		{"skip when short and more", in(`if testing.Short() || noEmulator() { t.Skip() }`), line6},
		{"skip under -short", in(`if testing.Short() { t.Skip("slow") }`), nil},
		{"a field of that name", in(`_ = options.Skip`), nil},
	})
}

func TestFileLength(t *testing.T) {
	long := "package x\n" + strings.Repeat("// line\n", 600)
	runPlants(t, FileLength, []plant{
		{"601 lines", map[string]string{"core/x/a.go": long}, []string{"core/x/a.go: 601 lines"}},
		{"600 lines", map[string]string{"core/x/a.go": strings.TrimSuffix(long, "// line\n")}, nil},
		{"a test", map[string]string{"core/x/a_test.go": long}, nil},
	})
}

func TestFuncLength(t *testing.T) {
	function := func(lines int) string {
		return "package x\n\nfunc f() {\n" + strings.Repeat("\t_ = 0\n", lines-2) + "}\n"
	}
	runPlants(t, FuncLength, []plant{
		{"81 lines", map[string]string{"core/x/a.go": function(81)}, []string{"core/x/a.go:3: function f of 81 lines"}},
		{"80 lines", map[string]string{"core/x/a.go": function(80)}, nil},
		{"a test", map[string]string{"core/x/a_test.go": function(200)}, nil},
	})
}

func TestPackageComments(t *testing.T) {
	runPlants(t, PackageComments, []plant{
		{"none", map[string]string{"core/x/a.go": "package x\n"}, []string{"core/x: "}},
		{"about something else", map[string]string{"core/x/a.go": "// Here is x.\npackage x\n"}, []string{"core/x: "}},
		{"detached", map[string]string{"core/x/a.go": "// Package x is x.\n\npackage x\n"}, []string{"core/x: "}},
		{"in one of two files", map[string]string{"core/x/a.go": "package x\n", "core/x/b.go": "// Package x is x.\npackage x\n"}, nil},
		{"a command", map[string]string{"cmd/x/a.go": "// Command x runs.\npackage main\n"}, nil},
		{"a package of tests alone", map[string]string{"tests/x/a_test.go": "// Package x tests.\npackage x\n"}, nil},
	})
}

func TestExportedComments(t *testing.T) {
	in := func(body string) map[string]string {
		return map[string]string{"core/x/a.go": "package x\n\n" + body + "\n"}
	}
	line3 := []string{"core/x/a.go:3: "}
	runPlants(t, ExportedComments, []plant{
		{"function", in("func F() {}"), line3},
		{"type", in("type T int"), line3},
		{"method", in("func (t *T) M() {}"), line3},
		{"method of a generic type", in("func (t *T[K]) M() {}"), line3},
		{"variable", in("var V = 1"), line3},
		{"documented function", in("// F does.\nfunc F() {}"), nil},
		{"documented group", in("// The values.\nconst (\nA = 1\nB = 2\n)"), nil},
		{"comment beside", in("var V = 1 // V is one."), nil},
		{"method of a hidden type", in("func (t *t) Error() string { return \"\" }"), nil},
		{"hidden function", in("func f() {}"), nil},
	})
}

func TestErrorComparison(t *testing.T) {
	in := func(expr string) map[string]string {
		return map[string]string{"core/x/a.go": "package x\n\nvar _ = " + expr + "\n"}
	}
	line3 := []string{"core/x/a.go:3: "}
	runPlants(t, ErrorComparison, []plant{
		{"equal to a sentinel", in("err == ErrLost"), line3},
		{"unequal to another package's", in("store.ErrExists != err"), line3},
		{"end of file", in("err == io.EOF"), line3},
		{"nil", in("err == nil"), nil},
		{"a code that is an error", in("e.Code == client.ErrExists"), nil},
		{"errors.Is", in("errors.Is(err, ErrLost)"), nil},
		{"a count of errors", in("Errors == 3"), nil},
	})
}

func TestDetachedContext(t *testing.T) {
	const body = "package x\n\nimport \"context\"\n\nvar _ = context.Background()\n"
	runPlants(t, DetachedContext, []plant{
		{"in core", map[string]string{"core/x/a.go": body}, []string{"core/x/a.go:5: "}},
		{"in a provider", map[string]string{"providers/x/a.go": body}, []string{"providers/x/a.go:5: "}},
		{"in a test", map[string]string{"core/x/a_test.go": body}, nil},
		{"in a command", map[string]string{"cmd/x/a.go": body}, nil},
	})
}

func TestUnfinished(t *testing.T) {
	mark := "TO" + "DO"
	runPlants(t, Unfinished, []plant{
		{"in code", map[string]string{"core/x/a.go": "package x\n\n// " + mark + ": later\n"}, []string{"core/x/a.go:3: "}},
		{"in a script", map[string]string{"scripts/a.sh": "# FIX" + "ME\n"}, []string{"scripts/a.sh:1: "}},
		{"part of a longer word", map[string]string{"scripts/a.sh": "mktemp -d x." + strings.Repeat("X", 6) + "\n"}, nil},
	})
}

func TestMachinePaths(t *testing.T) {
	runPlants(t, MachinePaths, []plant{
		{"a home folder", map[string]string{"README.md": "see " + "/ho" + "me/me/src\n"}, []string{"README.md:1: "}},
		{"a checkout", map[string]string{"core/x/a.go": "package x\n\nconst c = \"/wo" + "rk/main\"\n"}, []string{"core/x/a.go:3: "}},
		{"a relative folder", map[string]string{"README.md": "in ./lattice-data and docs/home/page.html\n"}, nil},
	})
}

func TestLockFiles(t *testing.T) {
	const address = "{\n\"resolved\": \"https://example.com/a.tgz\"\n}\n"
	runPlants(t, LockFiles, []plant{
		{"an address", map[string]string{"tests/a/package-lock.json": address}, []string{"tests/a/package-lock.json:2: "}},
		{"a hash alone", map[string]string{"package-lock.json": "{\n\"integrity\": \"sha512-x\"\n}\n"}, nil},
		{"another file", map[string]string{"a.json": address}, nil},
	})
}

func TestLoadRefusesWhatDoesNotParse(t *testing.T) {
	_, err := Load(fstest.MapFS{"core/x/a.go": {Data: []byte("package x\nfunc {")}})
	if err == nil || !strings.Contains(err.Error(), "core/x/a.go") {
		t.Fatalf("got %v, want an error that names the file", err)
	}
}

func TestLoadLeavesOutWhatIsNoSource(t *testing.T) {
	sources, err := Load(fstest.MapFS{
		"node_modules/x/a.go":    {Data: []byte("not Go")},
		".tools/x.go":            {Data: []byte("not Go")},
		"core/x/testdata/bad.go": {Data: []byte("not Go")},
		"core/x/page.bin":        {Data: []byte{1, 0, 2}},
		".ci/run":                {Data: []byte("#!/bin/bash\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(sources.Files) != 1 || sources.Files[0].Path != ".ci/run" {
		t.Fatalf("read %d files, want .ci/run alone", len(sources.Files))
	}
}
