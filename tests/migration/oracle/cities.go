package oracle

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	_ "modernc.org/sqlite" // the driver
)

// city is a row of the public dataset, the populated places of the GeoNames
// gazetteer, as a database would keep it.
type city struct {
	nr                            int64
	name, country, admin1, admin2 string
	lat, lng                      float64
}

// cities reads the dataset from its file.
func cities(file string) ([]city, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var places []struct{ Name, Lat, Lng, Country, Admin1, Admin2 string }
	if err := json.Unmarshal(text, &places); err != nil {
		return nil, err
	}
	out := make([]city, len(places))
	for i, p := range places {
		lat, latErr := strconv.ParseFloat(p.Lat, 64)
		lng, lngErr := strconv.ParseFloat(p.Lng, 64)
		if err := errors.Join(latErr, lngErr); err != nil {
			return nil, fmt.Errorf("place %d: %w", i+1, err)
		}
		out[i] = city{nr: int64(i + 1), name: p.Name, country: p.Country, admin1: p.Admin1, admin2: p.Admin2, lat: lat, lng: lng}
	}
	return out, nil
}

// fillCities makes a database of them.
func fillCities(ctx context.Context, file string, rows []city) error {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	return errors.Join(insertCities(ctx, db, rows), db.Close())
}

func insertCities(ctx context.Context, db *sql.DB, rows []city) error {
	const table = `CREATE TABLE cities (nr INTEGER PRIMARY KEY, name TEXT NOT NULL COLLATE NOCASE, lat REAL, lng REAL,
		country TEXT NOT NULL COLLATE NOCASE, admin1 TEXT, admin2 TEXT)`
	if _, err := db.ExecContext(ctx, table); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO cities VALUES (?, ?, ?, ?, ?, ?, nullif(?, ''))`)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	for _, c := range rows {
		if _, err := insert.ExecContext(ctx, c.nr, c.name, c.lat, c.lng, c.country, c.admin1, c.admin2); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
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
