package infra

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

const (
	guide       = "docs/deploy.md"
	systemdUnit = "infra/systemd/lattice.service"
)

// row is a parameter's line in the guide.
func row(name, otherwise string, optional bool, about string) string {
	switch {
	case !optional:
		otherwise = "required"
	case otherwise == "":
		otherwise = "empty"
	default:
		otherwise = "`" + otherwise + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |", name, otherwise, strings.ReplaceAll(about, "|", `\|`))
}

func bicepRows(f *bicep) (rows []string) {
	for _, d := range f.all("param") {
		rows = append(rows, row(d.name, d.value.unquoted(), d.value.Node != nil, d.about["description"]))
	}
	return rows
}

func samRows(a *aws) (rows []string) {
	names, all := a.section("Parameters")
	for _, name := range names {
		p := all[name]
		rows = append(rows, row(name, said(p, "Default"), at(p, "Default") != nil, said(p, "Description")))
	}
	return rows
}

func TestGuideListsEveryParameter(t *testing.T) {
	all := read(t, append(azurePaths, samPath, packageScript, guide)...)
	azureTemplates, err := loadAzure(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	awsTemplate, err := loadAWS(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(all[guide], "## Parameters on Azure")
	azureTable, awsTable, _ := strings.Cut(tables, "## Parameters on AWS")
	for heading, pair := range map[string]struct {
		text string
		rows []string
	}{"Azure": {azureTable, bicepRows(azureTemplates.main)}, "AWS": {awsTable, samRows(awsTemplate)}} {
		var listed []string
		for line := range strings.Lines(pair.text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "| `") {
				listed = append(listed, line)
			}
		}
		slices.Sort(listed)
		slices.Sort(pair.rows)
		for _, want := range pair.rows {
			if !slices.Contains(listed, want) {
				t.Errorf("the table of %s lacks the row\n%s", heading, want)
			}
		}
		if len(listed) != len(pair.rows) {
			t.Errorf("the table of %s has %d rows for %d parameters", heading, len(listed), len(pair.rows))
		}
	}
	// What data.bicep shares with main.bicep means the same there.
	for _, d := range azureTemplates.data.all("param") {
		m := azureTemplates.main.find("param", d.name)
		if d.name == "principalId" || d.name == "name" || d.name == "location" || d.name == "tags" {
			continue
		}
		if m.about["description"] != d.about["description"] || m.value.unquoted() != d.value.unquoted() || m.about["allowed"] != d.about["allowed"] {
			t.Errorf("%s is another parameter in %s than in %s", d.name, dataBicep, mainBicep)
		}
	}
}

var (
	namedVariable = regexp.MustCompile(`\b(LATTICE|AZURE|OTEL)_[A-Z0-9_]+\b`)
	namedFile     = regexp.MustCompile(`(?m)(?:^|[^\w/.])((?:infra|docs|scripts|bin|dist)/[\w./-]+)`)
	madeTarget    = regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)")
	samOverride   = regexp.MustCompile(`\b([A-Z][A-Za-z]+)=`)
)

// readByTools are variables that cmd/local and cmd/lattice read.
var readByTools = []string{
	"LATTICE_LISTEN", "LATTICE_TLS", "LATTICE_TLS_CERT", "LATTICE_TLS_KEY", "LATTICE_LOG_FORMAT", "LATTICE_TOKEN", "LATTICE_SERVER", "LATTICE_CACERT",
}

func TestGuideNamesOnlyWhatExists(t *testing.T) {
	root := running.Root(t)
	all := read(t, guide, samPath, packageScript, "Makefile", systemdUnit, "Dockerfile")
	known, err := variables(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{guide, systemdUnit, "Dockerfile"} {
		for _, name := range namedVariable.FindAllString(all[path], -1) {
			if !slices.Contains(known, name) && !slices.Contains(readByTools, name) {
				t.Errorf("%s: nobody reads %s", path, name)
			}
		}
	}
	for _, m := range namedFile.FindAllStringSubmatch(all[guide], -1) {
		name := strings.TrimRight(m[1], ".")
		if zip, ok := strings.CutPrefix(name, "dist/"); ok {
			zip = strings.NewReplacer("-arm64", "-$processor", "-amd64", "-$processor").Replace(zip)
			if !strings.Contains(all[packageScript], "$dist/"+zip) {
				t.Errorf("%s does not make %s", packageScript, name)
			}
		} else if program, ok := strings.CutPrefix(name, "bin/"); ok {
			name = "cmd/" + program
		}
		if _, err := os.Stat(filepath.Join(root, name)); err != nil && !strings.HasPrefix(name, "dist/") {
			t.Errorf("%s names %s: %v", guide, name, err)
		}
	}
	for _, m := range madeTarget.FindAllStringSubmatch(all[guide], -1) {
		if !strings.Contains(all["Makefile"], "\n"+m[1]+":") {
			t.Errorf("there is no target %s", m[1])
		}
	}
	a, err := loadAWS(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	parameters, _ := a.section("Parameters")
	for line := range strings.Lines(all[guide]) {
		if !strings.Contains(line, "--parameter-overrides") {
			continue
		}
		for _, m := range samOverride.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(parameters, m[1]) {
				t.Errorf("the template has no parameter %s", m[1])
			}
		}
	}
}

func TestUnitConfinesTheService(t *testing.T) {
	text := read(t, systemdUnit)[systemdUnit]
	for _, want := range []string{
		"DynamicUser=yes", "StateDirectory=lattice", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet=\n",
		"Environment=LATTICE_DATA_DIR=/var/lib/lattice", "ExecStart=/usr/local/bin/lattice-local\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", systemdUnit, want)
		}
	}
}
