package cli

import (
	"fmt"

	filesource "github.com/latticekv/lattice/migrate/file"
)

// migrateFileCmd migrates a file.
type migrateFileCmd struct {
	migrateFlags
	File string `arg:"" help:"The file, compressed with gzip or not."`

	Format    format  `enum:"auto,ndjson,csv,tsv" default:"auto" help:"Form of the file: auto, ndjson, csv or tsv; auto goes by its name." group:"Source"`
	Delimiter string  `help:"Character between fields, or tab." placeholder:"CHAR" group:"Source"`
	NoHeader  bool    `help:"The first row is data; columns are 1, 2, 3…" group:"Source"`
	NoQuotes  bool    `help:"Quotes are ordinary characters and every line is a row." group:"Source"`
	Numbers   bool    `help:"Fields that have the form of a number become numbers in the JSON value." group:"Source"`
	Null      *string `help:"Text of a field that stands for NULL." placeholder:"TEXT" group:"Source"`
}

// Help implements kong.HelpProvider.
func (migrateFileCmd) Help() string {
	return `The fields of NDJSON are the members of the object on each line, those of CSV and TSV the columns. Without
--key-template the key is the field "key", or the first one. Unlike "lattice import", a migration fills an
empty tree, sorts, loads each row exactly once, and rejects a key that comes twice.

Examples:

    lattice migrate file cities cities.csv --key-template 'city/{country}/{id:8}' --dry-run
    lattice migrate file cities cities.csv --key-template 'city/{country}/{id:8}' --numbers
    lattice migrate file pages pages.ndjson.gz --key-template '{site}/{path:raw}' --value column:body`
}

// Run carries the command out.
func (c *migrateFileCmd) Run(e *env) error {
	f := c.Format.resolve(c.File)
	o := filesource.Options{Path: c.File, Format: filesource.Format(f), NoHeader: c.NoHeader, NoQuotes: c.NoQuotes, Numbers: c.Numbers}
	if f == formatNDJSON && (c.Delimiter != "" || c.NoHeader || c.NoQuotes || c.Numbers || c.Null != nil) {
		return usagef("column flags are for CSV and TSV; give --format")
	}
	if c.Null != nil {
		o.Null, o.HasNull = *c.Null, true
	}
	if f != formatNDJSON {
		comma, err := delimiter(c.Delimiter, f)
		if err != nil {
			return err
		}
		o.Comma = comma
	}
	src, err := filesource.New(o)
	if err != nil {
		return usagef("%v", err)
	}
	c.shape = map[string]string{
		"format": string(f), "delimiter": string(rune(o.Comma)), "no-header": fmt.Sprint(o.NoHeader), "no-quotes": fmt.Sprint(o.NoQuotes),
		"numbers": fmt.Sprint(o.Numbers), "null": fmt.Sprintf("%t %s", o.HasNull, o.Null),
	}
	return c.run(e, src)
}
