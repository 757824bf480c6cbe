package migration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// city is a row of the public dataset, as a database would keep it.
type city struct {
	nr                            int64
	name, country, admin1, admin2 string
	lat, lng                      float64
}

// cityTemplate is the key that the tests have made of a row.
const cityTemplate = "city/{country}/{nr:06d}"

// cities makes a database of the populated places of the GeoNames gazetteer, and
// returns its file and its rows.
func cities(t *testing.T) (file string, rows []city) {
	t.Helper()
	source, err := exec.CommandContext(t.Context(), filepath.Join(running.Root(t), "scripts", "install-dataset.sh")).Output()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "cities.db")
	program := running.Build(t, "tests/migration/citydb")
	text, err := exec.CommandContext(t.Context(), program, strings.TrimSpace(string(source)), file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		rows = append(rows, newCity(t, strings.Split(strings.TrimSuffix(line, "\n"), "\t")))
	}
	if len(rows) < 100_000 {
		t.Fatalf("only %d cities", len(rows))
	}
	return file, rows
}

func newCity(t *testing.T, fields []string) city {
	t.Helper()
	if len(fields) != 7 {
		t.Fatalf("a city of %d columns", len(fields))
	}
	c := city{name: fields[1], country: fields[4], admin1: fields[5], admin2: fields[6]}
	var errs [3]error
	c.nr, errs[0] = strconv.ParseInt(fields[0], 10, 64)
	c.lat, errs[1] = strconv.ParseFloat(fields[2], 64)
	c.lng, errs[2] = strconv.ParseFloat(fields[3], 64)
	if errs != [3]error{} {
		t.Fatal(errs)
	}
	return c
}

// wantCities is what a tree must hold.
func wantCities(rows []city) content {
	out := make(content, len(rows))
	for _, c := range rows {
		out[fmt.Sprintf("city/%s/%06d", c.country, c.nr)] = entry{object: func() any { return c.object() }}
	}
	return out
}

func (c *city) object() any {
	out := map[string]any{
		"nr": json.Number(strconv.FormatInt(c.nr, 10)), "name": c.name, "country": c.country,
		"lat": json.Number(string(mustJSON(c.lat))), "lng": json.Number(string(mustJSON(c.lng))),
		"admin1": c.admin1, "admin2": nil,
	}
	if c.admin2 != "" {
		out["admin2"] = c.admin2
	}
	return out
}
