package oracle

import (
	"context"
	"fmt"
	"time"
)

// The kinds of datasets.
const (
	// Redis are keys of every type, some expiring, some binary.
	Redis = "redis"
	// Postgres and MySQL are rows of a table "orders" with a composite key, under
	// a collation that ignores case, with NULLs.
	Postgres = "postgres"
	MySQL    = "mysql"
	// SQLite are the rows of a table "cities", a public dataset.
	SQLite = "sqlite"
	// File is NDJSON of the rows that Postgres has.
	File = "file"
	// Cosmos are items of a container "items" of a database "shop", over many
	// partitions.
	Cosmos = "cosmos"
)

// The key templates that Verify expects, except of Redis.
const (
	OrderTemplate = "order/{tenant}/{id:019d}"
	CityTemplate  = "city/{country}/{nr:06d}"
	ItemTemplate  = "item/{pk}/{id}"
)

// Dataset names a dataset and where it is.
type Dataset struct {
	Kind string
	// Seed and Count make it; SQLite has as many rows as there are.
	Seed  uint64
	Count int
	// Base is the moment from which expiries of Redis count.
	Base time.Time
	// Address is a URL, DSN or file; Key that of a Cosmos account.
	Address, Key string
	// Cities is the file of the public dataset.
	Cities string
}

// partitions are those of a Cosmos dataset.
const partitions = 700

// Fill puts the dataset into its source, which is empty.
func (d *Dataset) Fill(ctx context.Context) error {
	switch d.Kind {
	case Redis:
		return d.keys().fill(ctx, d.Address)
	case Postgres:
		return d.orders().fillPostgres(ctx, d.Address)
	case MySQL:
		return d.orders().fillMariaDB(ctx, d.Address)
	case File:
		return d.orders().writeFile(d.Address)
	case SQLite:
		rows, err := cities(d.Cities)
		if err != nil {
			return err
		}
		return fillCities(ctx, d.Address, rows)
	case Cosmos:
		return d.items().fill(ctx, d.Address, d.Key)
	}
	return d.unknown()
}

// Verify compares a tree of a service with the dataset.
func (d *Dataset) Verify(ctx context.Context, service, tree string) error {
	want, err := d.want()
	if err != nil {
		return err
	}
	return verify(ctx, service, tree, want)
}

func (d *Dataset) want() (content, error) {
	switch d.Kind {
	case Redis:
		return d.keys().want(), nil
	case Postgres, File:
		return d.orders().want(onPostgres), nil
	case MySQL:
		return d.orders().want(onMariaDB), nil
	case SQLite:
		rows, err := cities(d.Cities)
		return wantCities(rows), err
	case Cosmos:
		return d.items().want(), nil
	}
	return nil, d.unknown()
}

func (d *Dataset) unknown() error { return fmt.Errorf("no kind of dataset is %q", d.Kind) }

func (d *Dataset) keys() redisKeys { return redisKeys{d.Seed, d.Count, d.Base} }
func (d *Dataset) orders() orders  { return orders{d.Seed, d.Count} }
func (d *Dataset) items() items    { return items{d.Seed, d.Count, partitions} }
