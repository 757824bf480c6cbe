package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

func (m *mySQL) describe(ctx context.Context, conn *sql.Conn, what subject) (shape, error) {
	var sh shape
	// The types are those of a prepared statement, as the pages have them.
	types, err := columnTypes(ctx, conn, "SELECT * FROM "+what.from+" LIMIT 0")
	if err != nil {
		return sh, err
	}
	for _, t := range types {
		sh.columns = append(sh.columns, m.column(t, what.query == ""))
	}
	if what.query != "" {
		sh.notes = append(sh.notes, "The snapshot covers tables of InnoDB; rows of others are read as they are at the moment.")
		return sh, nil
	}
	var engine sql.NullString
	err = conn.QueryRowContext(ctx, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		what.table.schema, what.table.name).Scan(&engine)
	if err != nil {
		return sh, err
	}
	if engine.Valid && !strings.EqualFold(engine.String, "InnoDB") {
		sh.torn = fmt.Sprintf("Tables of the engine %s have no snapshots: rows that change while they are read may be carried in either state. "+
			"Keep the table from being written, or make a delta pass.", engine.String)
	}
	rows, err := collect(ctx, conn, `SELECT s.INDEX_NAME, s.INDEX_NAME = 'PRIMARY', s.COLUMN_NAME FROM information_schema.STATISTICS s
		WHERE s.TABLE_SCHEMA = ? AND s.TABLE_NAME = ? AND s.NON_UNIQUE = 0
		AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS n WHERE n.TABLE_SCHEMA = s.TABLE_SCHEMA AND n.TABLE_NAME = s.TABLE_NAME
			AND n.INDEX_NAME = s.INDEX_NAME AND (n.NULLABLE = 'YES' OR n.COLUMN_NAME IS NULL OR n.SUB_PART IS NOT NULL))
		ORDER BY s.INDEX_NAME, s.SEQ_IN_INDEX`, []any{what.table.schema, what.table.name}, scanIndexColumn)
	if err != nil {
		return sh, err
	}
	sh.indexes = indexes(rows)
	if !m.maria {
		return sh, nil
	}
	return sh, m.documents(ctx, conn, what, sh.columns)
}

// documents finds the JSON of MariaDB, which is text with a check.
func (*mySQL) documents(ctx context.Context, conn *sql.Conn, what subject, columns []*column) error {
	checks, err := collect(ctx, conn, "SELECT LOWER(CHECK_CLAUSE) FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = ? AND TABLE_NAME = ?",
		[]any{what.table.schema, what.table.name}, func(s *string) []any { return []any{s} })
	for _, c := range columns {
		if strings.HasSuffix(c.engine, "text") && slices.Contains(checks, "json_valid(`"+strings.ToLower(c.name)+"`)") {
			c.convert = toJSON
		}
	}
	return err
}

// columnTypes are the types of a prepared statement's result.
func columnTypes(ctx context.Context, conn *sql.Conn, text string) (types []*sql.ColumnType, err error) {
	prepared, err := conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closing(err, prepared)) }()
	rows, err := prepared.QueryContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closing(err, rows)) }()
	return rows.ColumnTypes()
}

// column chooses how a column is read. Values come as they are; text keys are
// ordered by their bytes in UTF-8, because the binary collations of text still
// ignore spaces at the end.
func (m *mySQL) column(t *sql.ColumnType, table bool) *column {
	nullable, known := t.Nullable()
	digits, scale, ok := t.DecimalSize()
	if !ok || digits > 65 || digits <= 0 {
		digits, scale = 65, 30
	}
	c := m.form(t.Name(), t.DatabaseTypeName(), digits, scale)
	c.nullable = !table || !known || nullable
	return c
}

// form is that of a type; digits and scale are those of a decimal.
func (m *mySQL) form(label, engine string, digits, scale int64) *column {
	name := m.traits().quote(label)
	c := &column{name: label, engine: strings.ToLower(engine), read: name, convert: toText, order: name, token: name, param: "?"}
	switch kind := strings.TrimPrefix(engine, "UNSIGNED "); kind {
	case "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR":
		// The driver gives great numbers without a sign as text.
		c.convert, c.typed, c.integer, c.change = toInteger, toInteger, signed, changeNumber
		if kind != engine {
			c.integer = unsigned
		}
	case "DECIMAL":
		c.convert, c.same, c.token = toNumber, sameDecimal, "CAST("+name+" AS CHAR)"
		// A bare parameter would be compared as a floating-point number.
		c.param = fmt.Sprintf("CAST(? AS DECIMAL(%d, %d))", digits, scale)
	case "FLOAT":
		// The token keeps all 32 bits as a number of 64; see plainToken.
		c.convert, c.same = toShortFloat, sameNumber
	case "DOUBLE":
		c.convert, c.same = toFloat, sameNumber
	case "BIT":
		c.read, c.convert, c.typed, c.unindexed = name+" + 0", toInteger, toInteger, true
		c.order, c.token = c.read, c.read
	case "BINARY", "VARBINARY", "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB":
		c.convert, c.bytes = toBytes, true
	case "GEOMETRY", "VECTOR":
		c.convert, c.order = toBytes, ""
		c.lossy = "it is carried as the bytes in which MySQL keeps it (for a geometry its SRID and WKB)"
	case "TIMESTAMP":
		c.convert, c.change, c.token = toInstant("2006-01-02 15:04:05.999999"), changeInstant, "CAST("+name+" AS CHAR)"
	case "DATETIME":
		c.change, c.token = changeLocal, "CAST("+name+" AS CHAR)"
	case "DATE":
		c.change, c.token = changeDate, "CAST("+name+" AS CHAR)"
	case "TIME":
		c.token = "CAST(" + name + " AS CHAR)"
	default:
		m.text(c, name)
	}
	return c
}

// text is how text, enumerations, sets and JSON are read and ordered.
func (*mySQL) text(c *column, name string) {
	if c.engine == "json" {
		c.convert = toJSON
	}
	c.order = "CAST(CONVERT(" + name + " USING utf8mb4) AS BINARY)"
	c.token, c.param, c.unindexed = c.order, "CAST(? AS BINARY)", true
}
