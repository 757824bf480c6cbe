package cli

import "github.com/latticekv/lattice/cmd/lattice/internal/rows"

// inputFlags say how the rows of a file are to be read.
type inputFlags struct {
	Format      format `enum:"auto,ndjson,csv,tsv" default:"auto" help:"Form of the file: auto, ndjson, csv or tsv; auto goes by its name."`
	KeyColumn   string `help:"Column of the key." placeholder:"COLUMN" group:"CSV and TSV"`
	ValueColumn string `help:"Column of the value." placeholder:"COLUMN" group:"CSV and TSV"`
	KeyTemplate string `help:"Key made of columns: \"user/{id}\", or \"{nr:8}\" with zeros in front. Columns are put in as they are: unlike migrate, one that holds a character of the template is no fault." placeholder:"TEMPLATE" group:"CSV and TSV"`
	Delimiter   string `help:"Character between fields, or tab." placeholder:"CHAR" group:"CSV and TSV"`
	NoHeader    bool   `help:"The first row is data; columns are 1, 2, 3…" group:"CSV and TSV"`
	NoQuotes    bool   `help:"Quotes are ordinary characters and every line is a row." group:"CSV and TSV"`
	B64         bool   `name:"b64" help:"The value column is in base64." group:"CSV and TSV"`
}

// source reads the input as its format asks.
func (c *inputFlags) source(in *input, file string) (rows.Source, error) {
	f := c.Format.resolve(file)
	if f == formatNDJSON {
		if c.KeyColumn+c.ValueColumn+c.KeyTemplate+c.Delimiter != "" || c.NoHeader || c.NoQuotes || c.B64 {
			return nil, usagef("column flags are for CSV and TSV; give --format")
		}
		return &lazySource{open: func() (rows.Source, error) {
			err := in.unpack()
			return rows.NDJSON(in, rows.DefaultMaxRecord), err
		}}, nil
	}
	comma, err := delimiter(c.Delimiter, f)
	if err != nil {
		return nil, err
	}
	o := rows.CSVOptions{
		Comma: comma, NoHeader: c.NoHeader, NoQuotes: c.NoQuotes, Key: c.KeyColumn, KeyTemplate: c.KeyTemplate,
		Value: c.ValueColumn, Base64: c.B64, MaxRecord: rows.DefaultMaxRecord,
	}
	return &lazySource{open: func() (rows.Source, error) {
		if err := in.unpack(); err != nil {
			return nil, err
		}
		return rows.CSV(in, o)
	}}, nil
}
