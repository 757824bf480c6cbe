package migration

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	_ "modernc.org/sqlite" // the driver that makes the database

	"github.com/latticekv/lattice/tests/dataset"
)

// city is a row of the public dataset, as a database would keep it.
type city struct {
	nr                            int64
	name, country, admin1, admin2 string
	lat, lng                      float64
}

// cityTemplate is the key that the tests have made of a row.
const cityTemplate = "city/{country}/{nr:06d}"

// cities reads the populated places of the GeoNames gazetteer.
func cities(t *testing.T) []city {
	t.Helper()
	rows := dataset.Cities(t)
	out := make([]city, len(rows))
	for i, row := range rows {
		var text struct{ Nr, Name, Lat, Lng, Country, Admin1, Admin2 string }
		if err := json.Unmarshal([]byte(row.Value), &text); err != nil {
			t.Fatal(err)
		}
		c := city{name: text.Name, country: text.Country, admin1: text.Admin1, admin2: text.Admin2}
		var errs [3]error
		c.nr, errs[0] = strconv.ParseInt(text.Nr, 10, 64)
		c.lat, errs[1] = strconv.ParseFloat(text.Lat, 64)
		c.lng, errs[2] = strconv.ParseFloat(text.Lng, 64)
		if errs != [3]error{} {
			t.Fatalf("row %d: %v", i+1, errs)
		}
		out[i] = c
	}
	return out
}

// fillSQLite puts the cities into a database and returns its file.
func fillSQLite(t *testing.T, rows []city) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cities.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const table = `CREATE TABLE cities (nr INTEGER PRIMARY KEY, name TEXT NOT NULL COLLATE NOCASE, lat REAL, lng REAL,
		country TEXT NOT NULL COLLATE NOCASE, admin1 TEXT, admin2 TEXT)`
	if _, err := db.ExecContext(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	insert, err := tx.PrepareContext(t.Context(), `INSERT INTO cities VALUES (?, ?, ?, ?, ?, ?, nullif(?, ''))`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rows {
		if _, err := insert.ExecContext(t.Context(), c.nr, c.name, c.lat, c.lng, c.country, c.admin1, c.admin2); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return file
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
