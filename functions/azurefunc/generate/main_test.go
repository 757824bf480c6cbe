package main

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
)

const app = "../../../infra/azurefunc"

// onDisk reads the files of the function app by the name of the function.
func onDisk(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "function.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(filepath.Dir(path))] = string(text)
	}
	return all
}

func TestFunctionAppIsWhatTheTablesSay(t *testing.T) {
	disk, want := onDisk(t, app), files(anonymous)
	for name, text := range want {
		if disk[name] != string(text) {
			t.Errorf("%s/function.json differs from what the tables say; run go generate ./functions/azurefunc\n%s", name, text)
		}
	}
	for name := range disk {
		if want[name] == nil {
			t.Errorf("%s/function.json belongs to no timer and no group of routes", name)
		}
	}
}

func TestRunWritesEveryFile(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir, "function", nil); err != nil {
		t.Fatal(err)
	}
	got := onDisk(t, dir)
	if len(got) != len(groups)+len(schedule.All()) {
		t.Errorf("wrote %q", slices.Sorted(maps.Keys(got)))
	}
	for name, text := range got {
		if _, timer := schedule.Find(name); strings.Contains(text, `"authLevel": "function"`) == timer {
			t.Errorf("%s: %s", name, text)
		}
	}
	if run(dir, "nobody", nil) == nil || run(dir, anonymous, []string{"x"}) == nil {
		t.Error("an unknown level or argument is accepted")
	}
}

// served are the methods of every path of the service, as it describes itself.
func served(t *testing.T) map[string][]string {
	t.Helper()
	m := memory.New(memory.Options{})
	svc, err := service.New(service.Config{
		Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), InternalToken: "token", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(svc.Document(), &document); err != nil || len(document.Paths) < 20 {
		t.Fatalf("%d paths: %v", len(document.Paths), err)
	}
	all := map[string][]string{}
	for path, ops := range document.Paths {
		for method := range ops {
			switch method {
			case "get":
				all[path] = append(all[path], "get", "head")
			case "put", "post", "patch", "delete":
				all[path] = append(all[path], method)
			}
		}
	}
	return all
}

// takes reports whether the host would hand a request to the function.
func (g group) takes(path, method string) bool {
	before, rest := strings.CutSuffix(g.route, "{*path}")
	path = strings.TrimPrefix(path, "/")
	return slices.Contains(g.methods, method) && (path == before || rest && strings.HasPrefix(path, before))
}

func TestEveryPublicRouteIsReachedAndNoOther(t *testing.T) {
	var internal int
	for path, methods := range served(t) {
		for _, method := range methods {
			reached := slices.ContainsFunc(groups, func(g group) bool { return g.takes(path, method) })
			public := !strings.HasPrefix(path, "/internal/")
			if reached != public {
				t.Errorf("%s %s: reached from outside: %t, public: %t", method, path, reached, public)
			}
			if !public {
				internal++
			}
		}
	}
	if internal != len(schedule.All()) {
		t.Errorf("the service describes %d internal routes", internal)
	}
}

func TestGroupsTakeNoMethodThatNoRouteHas(t *testing.T) {
	all := served(t)
	for _, g := range groups {
		for _, method := range g.methods {
			used := false
			for path, methods := range all {
				used = used || slices.Contains(methods, method) && g.takes(path, method)
			}
			if !used {
				t.Errorf("function %s takes %s, which none of its routes has", g.name, method)
			}
		}
	}
}

func TestNoGroupLeadsInside(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+$`)
	for _, g := range groups {
		first, _, _ := strings.Cut(g.route, "/")
		if _, timer := schedule.Find(first); timer || first == "" || strings.Contains(first, "{") || first == "internal" {
			t.Errorf("function %s is reached by route %q", g.name, g.route)
		}
		if _, timer := schedule.Find(g.name); timer || !name.MatchString(g.name) {
			t.Errorf("a group of routes is called %q", g.name)
		}
	}
}
