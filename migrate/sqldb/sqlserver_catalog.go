package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// sqlServerColumn is a row of the description of a result.
type sqlServerColumn struct {
	name, engine string
	nullable     bool
	problem      sql.NullString
}

func (s *sqlServer) describe(ctx context.Context, conn *sql.Conn, what subject) (shape, error) {
	rows, err := collect(ctx, conn, `SELECT COALESCE(name, N''), COALESCE(system_type_name, user_type_name, N''), COALESCE(is_nullable, 1), error_message
		FROM sys.dm_exec_describe_first_result_set(@p1, NULL, 0) WHERE COALESCE(is_hidden, 0) = 0 ORDER BY column_ordinal`,
		[]any{"SELECT * FROM " + what.from}, func(c *sqlServerColumn) []any { return []any{&c.name, &c.engine, &c.nullable, &c.problem} })
	if err != nil {
		return shape{}, err
	}
	var sh shape
	for _, r := range rows {
		if r.problem.Valid {
			return shape{}, notice("SQL Server says: %s", strings.TrimRight(r.problem.String, "."))
		}
		if r.name == "" {
			return shape{}, notice("a column of the query has no name: give it one with AS")
		}
		c := s.column(r.name, r.engine)
		c.nullable = r.nullable || what.query != ""
		sh.columns = append(sh.columns, c)
	}
	if what.query != "" {
		return sh, nil
	}
	keys, err := collect(ctx, conn, `SELECT i.name, i.is_primary_key, c.name FROM sys.indexes i
		JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0
		JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id
		WHERE i.object_id = OBJECT_ID(@p1) AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0
		AND NOT EXISTS (SELECT 1 FROM sys.index_columns nk JOIN sys.columns n ON n.object_id = nk.object_id AND n.column_id = nk.column_id
			WHERE nk.object_id = i.object_id AND nk.index_id = i.index_id AND nk.key_ordinal > 0 AND n.is_nullable = 1)
		ORDER BY i.is_primary_key DESC, i.index_id, k.key_ordinal`, []any{what.from}, scanIndexColumn)
	sh.indexes = indexes(keys)
	return sh, err
}

// column chooses how a column is read: what the driver would round, or decode
// by the code page of a collation, comes as text.
func (s *sqlServer) column(name, engine string) *column {
	quoted := s.traits().quote(name)
	c := &column{
		name: name, engine: engine, read: quoted, convert: toText,
		order: quoted, token: quoted, param: "CAST(? AS " + engine + ")",
	}
	kind, _, _ := strings.Cut(engine, "(")
	switch kind {
	case "bit":
		c.convert = toBool
	case "tinyint", "smallint", "int", "bigint":
		c.convert, c.integer, c.change, c.param = toInteger, signed, changeNumber, "?"
	case "decimal", "numeric":
		c.read, c.convert, c.same = "CONVERT(varchar(50), "+quoted+")", toNumber, sameDecimal
		c.token = c.read
	case "money", "smallmoney":
		c.read, c.convert = "CONVERT(varchar(50), "+quoted+", 2)", toNumber
		c.token = c.read
	case "float":
		c.convert, c.same, c.param = toFloat, sameNumber, "?"
	case "real":
		c.convert, c.same = toShortFloat, sameNumber
	case "char", "varchar", "nchar", "nvarchar", "sysname":
		// The order is that of UTF-16 code units, which every version has; spaces
		// at the end count for nothing in it.
		c.read = "CONVERT(nvarchar(max), " + quoted + ")"
		c.order = "CONVERT(nvarchar(4000), " + quoted + ") COLLATE Latin1_General_100_BIN2"
		c.token, c.param = "CONVERT(nvarchar(4000), "+quoted+")", "CONVERT(nvarchar(4000), ?)"
		c.same, c.unindexed = samePadded, true
	case "binary", "varbinary":
		// Zeros at the end count for nothing in the order.
		c.convert, c.param, c.same, c.bytes = toBytes, "?", sameZeros, true
	case "timestamp", "rowversion":
		c.convert, c.param, c.change, c.bytes = toBytes, "?", changeVersion, true
	case "uniqueidentifier":
		c.read = "LOWER(CONVERT(char(36), " + quoted + "))"
		c.token = c.read
	case "date", "time", "smalldatetime", "datetime", "datetime2", "datetimeoffset":
		s.moment(c, kind, quoted)
	default:
		s.other(c, kind, quoted)
	}
	if strings.Contains(engine, "(max)") {
		c.order = ""
	}
	return c
}

func (*sqlServer) moment(c *column, kind, quoted string) {
	c.read = "CONVERT(varchar(40), " + quoted + ", 121)"
	c.token, c.param = c.read, "CONVERT("+c.engine+", ?, 121)"
	switch kind {
	case "date":
		c.change = changeDate
	case "datetimeoffset":
		c.convert, c.change = toInstant("2006-01-02 15:04:05.9999999 -07:00"), changeInstant
	case "smalldatetime", "datetime", "datetime2":
		c.change = changeLocal
	}
}

// other are the types that have no order, and what nobody knows.
func (*sqlServer) other(c *column, kind, quoted string) {
	c.order = ""
	switch kind {
	case "image":
		c.read, c.convert = "CONVERT(varbinary(max), "+quoted+")", toBytes
	case "text", "ntext", "xml":
		c.read = "CONVERT(nvarchar(max), " + quoted + ")"
	case "json":
		c.read, c.convert = "CONVERT(nvarchar(max), "+quoted+")", toJSON
	case "geography", "geometry":
		c.read = quoted + ".ToString()"
		c.lossy = "it is carried as well-known text; its SRID is lost"
	case "hierarchyid":
		c.read = quoted + ".ToString()"
	default:
		c.read = "CONVERT(nvarchar(max), " + quoted + ")"
		c.lossy = fmt.Sprintf("it is carried as the text that SQL Server converts it to; its type %s is lost", c.engine)
	}
}
