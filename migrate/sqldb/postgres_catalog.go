package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

func (p *postgres) describe(ctx context.Context, conn *sql.Conn, what subject) (shape, error) {
	fields, err := describedFields(ctx, conn, "SELECT * FROM "+what.from)
	if err != nil {
		return shape{}, err
	}
	types, err := postgresTypes(ctx, conn, fields)
	if err != nil {
		return shape{}, err
	}
	if len(types) != len(fields) {
		return shape{}, notice("the catalogue of PostgreSQL does not know all types of the columns: connect to the server itself, not through a proxy")
	}
	var sh shape
	for i, t := range types {
		c := &column{name: fields[i].Name, engine: t.engine, nullable: what.query != "" || !t.notNull}
		p.form(c, t)
		sh.columns = append(sh.columns, c)
	}
	if what.query != "" {
		return sh, nil
	}
	rows, err := collect(ctx, conn, `SELECT i.indexrelid::text, i.indisprimary, a.attname::text
		FROM pg_catalog.pg_index i CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS k(at)
		JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.at]
		WHERE i.indrelid = $1::text::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute n
			WHERE n.attrelid = i.indrelid AND n.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) AND NOT n.attnotnull)
		ORDER BY i.indisprimary DESC, i.indexrelid, k.at`, []any{what.from}, scanIndexColumn)
	if err != nil {
		return shape{}, err
	}
	sh.indexes = indexes(rows)
	var hidden bool
	if err := conn.QueryRowContext(ctx, `SELECT row_security_active($1::text)`, what.from).Scan(&hidden); err != nil {
		return shape{}, err
	}
	if hidden {
		sh.notes = append(sh.notes, "Row-level security hides rows of the table from this user: only those that it may see are read. A role with BYPASSRLS sees all.")
	}
	return sh, nil
}

// describedFields asks the server what a statement gives.
func describedFields(ctx context.Context, conn *sql.Conn, text string) (fields []pgconn.FieldDescription, err error) {
	err = conn.Raw(func(driver any) error {
		d, err := driver.(*stdlib.Conn).Conn().Prepare(ctx, "", text)
		if err == nil {
			fields = d.Fields
		}
		return err
	})
	return fields, err
}

// postgresType is a type of the catalogue, and of the column that has it.
type postgresType struct {
	name, kind, engine string
	// binary: the column is collated by bytes.
	binary, notNull bool
}

// postgresTypes looks up the types of columns. A collation named C or POSIX
// orders by bytes, and so does the database's if that is one of them.
func postgresTypes(ctx context.Context, conn *sql.Conn, fields []pgconn.FieldDescription) ([]postgresType, error) {
	types, modifiers, tables, numbers := make([]string, len(fields)), make([]string, len(fields)), make([]string, len(fields)), make([]string, len(fields))
	for i, f := range fields {
		types[i], modifiers[i] = fmt.Sprint(f.DataTypeOID), fmt.Sprint(f.TypeModifier)
		tables[i], numbers[i] = fmt.Sprint(f.TableOID), fmt.Sprint(f.TableAttributeNumber)
	}
	array := func(of []string) any { return "{" + strings.Join(of, ",") + "}" }
	return collect(ctx, conn, `SELECT t.typname::text, t.typtype::text, pg_catalog.format_type(t.oid, f.modifier), COALESCE(a.attnotnull, false),
		COALESCE(CASE WHEN l.collname = 'default' THEN d.datcollate ELSE l.collcollate END IN ('C', 'POSIX')
			AND COALESCE(to_jsonb(d)->>'datlocprovider', 'c') = 'c' OR l.collname IN ('C', 'POSIX'), false)
		FROM unnest($1::text::oid[], $2::text::int4[], $3::text::oid[], $4::text::int4[]) WITH ORDINALITY AS f(type, modifier, rel, att, nr)
		JOIN pg_catalog.pg_type t ON t.oid = f.type
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = f.rel AND a.attnum = f.att
		LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
		JOIN pg_catalog.pg_database d ON d.datname = current_database() ORDER BY f.nr`,
		[]any{array(types), array(modifiers), array(tables), array(numbers)},
		func(t *postgresType) []any { return []any{&t.name, &t.kind, &t.engine, &t.notNull, &t.binary} })
}

// form chooses how a column is read. All but the simplest types come as text,
// which PostgreSQL reads back exactly; positions are always text.
func (p *postgres) form(c *column, t postgresType) {
	name := p.traits().quote(c.name)
	text := name + "::text"
	c.read, c.convert = text, toText
	c.order, c.token, c.param = name, text, "?::text::"+c.engine
	switch t.name {
	case "bool":
		c.read, c.convert = name, toBool
	case "int2", "int4", "int8":
		c.read, c.convert, c.integer, c.change = name, toInteger, signed, changeNumber
	case "oid":
		c.read, c.convert = name+"::int8", toInteger
	case "float4", "float8":
		c.convert, c.same = toFloat, sameDecimal
	case "numeric":
		c.convert, c.same = toNumber, sameDecimal
	case "money":
		c.read, c.convert = name+"::numeric::text", toNumber
		c.token, c.param = c.read, "?::text::numeric::money"
	case "bytea":
		c.read, c.convert, c.bytes = name, toBytes, true
	case "json", "jsonb":
		c.convert = toJSON
	case "timestamptz":
		c.convert, c.change = toInstant("2006-01-02 15:04:05.999999-07"), changeInstant
	case "timestamp":
		c.change = changeLocal
	case "date":
		c.change = changeDate
	case "text", "varchar", "bpchar", "name", "citext", "char":
		// A column that is ordered by bytes is left alone: under another name of the
		// same collation its index would not serve.
		c.param = "?::text"
		if c.unindexed = !t.binary || t.name == "citext" || t.name == "bpchar"; c.unindexed {
			c.order, c.param = text+` COLLATE "C"`, `?::text COLLATE "C"`
		}
		if t.name == "bpchar" {
			c.lossy = "spaces at its end, which are padding, are left out"
		}
	case "inet":
		// Cast to text an address has a mask even if it is a host's.
		c.read = fmt.Sprintf("CASE WHEN masklen(%[1]s) = CASE family(%[1]s) WHEN 4 THEN 32 ELSE 128 END THEN host(%[1]s) ELSE %[1]s::text END", name)
	case "uuid", "time", "timetz", "interval", "bit", "varbit", "cidr", "macaddr", "macaddr8", "xid8", "pg_lsn":
	default:
		if t.kind != "e" {
			c.lossy = fmt.Sprintf("it is carried as the text that PostgreSQL prints for it; its type %s is lost", c.engine)
		}
	}
	switch t.name {
	case "json", "xml", "point", "line", "lseg", "box", "path", "polygon", "circle", "xid", "cid":
		// These have no order.
		c.order = ""
	}
}
