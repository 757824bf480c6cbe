// Command citydb makes a SQLite database of the populated places of the GeoNames
// gazetteer, and prints its rows with tabs between the columns: for tests, which
// the race detector would make wait for it.
//
// Usage: citydb CITIES.json DATABASE
package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	_ "modernc.org/sqlite" // the driver
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "citydb:", err)
		os.Exit(1)
	}
}

// place is one record of the gazetteer.
type place struct{ Name, Lat, Lng, Country, Admin1, Admin2 string }

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: citydb CITIES.json DATABASE")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var places []place
	if err := json.Unmarshal(text, &places); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", args[1])
	if err != nil {
		return err
	}
	if err := errors.Join(fill(db, places), db.Close()); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for i, p := range places {
		// An error of the writer stays with it, for Flush.
		_, _ = fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, p.Name, p.Lat, p.Lng, p.Country, p.Admin1, p.Admin2)
	}
	return out.Flush()
}

func fill(db *sql.DB, places []place) error {
	_, err := db.Exec(`CREATE TABLE cities (nr INTEGER PRIMARY KEY, name TEXT NOT NULL COLLATE NOCASE,
		lat REAL, lng REAL, country TEXT NOT NULL COLLATE NOCASE, admin1 TEXT, admin2 TEXT)`)
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	insert, err := tx.Prepare(`INSERT INTO cities VALUES (?, ?, ?, ?, ?, ?, nullif(?, ''))`)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	for i, p := range places {
		lat, latErr := strconv.ParseFloat(p.Lat, 64)
		lng, lngErr := strconv.ParseFloat(p.Lng, 64)
		_, err := insert.Exec(i+1, p.Name, lat, lng, p.Country, p.Admin1, p.Admin2)
		if err := errors.Join(latErr, lngErr, err); err != nil {
			return errors.Join(fmt.Errorf("place %d: %w", i+1, err), tx.Rollback())
		}
	}
	return tx.Commit()
}
