package oracle

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// orders are rows of a table whose key is a name, under a collation that ignores
// case, and a number. Each row is made of the seed and its number alone.
type orders struct {
	seed  uint64
	count int
}

// order is one of them; nil is NULL.
type order struct {
	tenant string
	id     int64
	note   *string
	// amount has four digits behind the point.
	amount *string
	ratio  *float64
	count  *int64
	at     *time.Time
	day    *string
	paid   *bool
	raw    []byte
	doc    *string
}

// tenants sort in one way under a collation and in another one by bytes; some
// are the same but for case.
var tenants = []string{"acme", "Acme", "ACME", "Zebra", "zeta", "_x", "Émile", "emil", "ß", "ss", "Ω", "a b", "日本"}

// notes are what people write, and what programs do to it.
var notes = []string{"", " ", "NULL", "null", `\N`, "tab\tand\nline", `"quoted" 'and' \slashed`, "héllo 🚀", "0", "<b>&amp;</b>"}

// at makes the row of a number.
func (o orders) at(i int) order {
	rng := rand.New(rand.NewPCG(o.seed, uint64(i)))
	r := order{tenant: tenants[rng.IntN(len(tenants))], id: int64(i)}
	if i%1000 == 999 {
		r.id = math.MaxInt64 - int64(i)
	}
	maybe := func() bool { return rng.IntN(8) > 0 }
	if maybe() {
		r.note = new(notes[rng.IntN(len(notes))])
		if rng.IntN(4) == 0 {
			r.note = new(strings.Repeat("long ", rng.IntN(100)))
		}
	}
	if maybe() {
		r.amount = new(fmt.Sprintf("%d.%04d", rng.Int64N(2e15)-1e15, rng.IntN(10_000)))
	}
	if maybe() {
		r.ratio = new([]float64{0, 0.1, -1.5, 1e300, 5e-324, math.Pi, float64(rng.Int64())}[rng.IntN(7)])
	}
	if maybe() {
		r.count = new([]int64{0, -1, math.MaxInt64, math.MinInt64, 1<<53 + 1, rng.Int64()}[rng.IntN(6)])
	}
	if maybe() {
		r.at = new(time.Unix(rng.Int64N(4e9)-1e9, rng.Int64N(1e6)*1000).UTC())
	}
	if maybe() {
		r.day = new([]string{"1000-01-01", "9999-12-31", "1900-02-28", "2024-02-29", "2000-01-01"}[rng.IntN(5)])
	}
	if maybe() {
		r.paid = new(rng.IntN(2) == 0)
	}
	if maybe() {
		r.raw = make([]byte, rng.IntN(40))
		for j := range r.raw {
			r.raw[j] = byte(rng.Uint32())
		}
	}
	if maybe() {
		r.doc = new(fmt.Sprintf(`{"n":%d,"list":[1,2.50,null,true],"s":"ü"}`, rng.IntN(1000)))
	}
	return r
}

// engine is a server that holds the rows.
type engine string

const (
	onPostgres engine = "postgres"
	onMariaDB  engine = "mariadb"
)

// want is what a tree must hold.
func (o orders) want(e engine) content {
	out := make(content, o.count)
	for i := range o.count {
		r := o.at(i)
		key := fmt.Sprintf("order/%s/%019d", r.tenant, r.id)
		out[key] = entry{object: func() any { r := o.at(i); return r.object(e) }}
	}
	return out
}

// object is the row as JSON: numbers exact, binary columns in base64, moments in
// UTC. To MariaDB a boolean is a number, and a moment has no zone.
func (r *order) object(e engine) any {
	out := map[string]any{
		"tenant": r.tenant, "id": json.Number(strconv.FormatInt(r.id, 10)),
		"note": orNull(r.note, asIs[string]), "amount": orNull(r.amount, func(s string) any { return json.Number(s) }),
		"ratio":    orNull(r.ratio, func(f float64) any { return json.Number(string(mustJSON(f))) }),
		"quantity": orNull(r.count, func(n int64) any { return json.Number(strconv.FormatInt(n, 10)) }),
		"at":       orNull(r.at, func(t time.Time) any { return t.Format(time.RFC3339Nano) }),
		"day":      orNull(r.day, asIs[string]), "paid": orNull(r.paid, asIs[bool]), "raw": nil, "doc": nil,
	}
	if r.raw != nil {
		out["raw"] = base64.StdEncoding.EncodeToString(r.raw)
	}
	if r.doc != nil {
		out["doc"], _ = decodeJSON([]byte(*r.doc))
	}
	if e == onMariaDB {
		out["at"] = orNull(r.at, func(t time.Time) any { return t.Format("2006-01-02 15:04:05.000000") })
		out["paid"] = orNull(r.paid, func(paid bool) any {
			if paid {
				return json.Number("1")
			}
			return json.Number("0")
		})
	}
	return out
}

func orNull[T any](p *T, form func(T) any) any {
	if p == nil {
		return nil
	}
	return form(*p)
}

func asIs[T any](v T) any { return v }

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// fillPostgres makes the table and its rows, in an order of its own.
func (o orders) fillPostgres(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{
		`CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`CREATE TABLE orders (tenant text COLLATE anycase NOT NULL, id bigint NOT NULL, note text, amount numeric(20,4),
			ratio double precision, quantity bigint, at timestamptz, day date, paid boolean, raw bytea, doc json,
			PRIMARY KEY (tenant, id))`,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	for i := range o.count {
		r := o.at(i)
		r.line(&text, func(raw []byte) string { return `\\x` + hex.EncodeToString(raw) })
	}
	const load = `COPY orders (tenant, id, note, amount, ratio, quantity, at, day, paid, raw, doc) FROM STDIN`
	if _, err := conn.PgConn().CopyFrom(ctx, &text, load); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ANALYZE orders")
	return err
}

// fillMariaDB does the same.
func (o orders) fillMariaDB(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	const table = `CREATE TABLE orders (tenant VARCHAR(40) COLLATE utf8mb4_unicode_ci NOT NULL, id BIGINT NOT NULL, note TEXT,
		amount DECIMAL(20,4), ratio DOUBLE, quantity BIGINT, at DATETIME(6), day DATE, paid BOOLEAN, raw BLOB, doc JSON,
		PRIMARY KEY (tenant, id))`
	if _, err := db.ExecContext(ctx, table); err != nil {
		return err
	}
	const name = "orders"
	mysql.RegisterReaderHandler(name, func() io.Reader {
		var text bytes.Buffer
		for i := range o.count {
			r := o.at(i)
			r.line(&text, hex.EncodeToString)
		}
		return &text
	})
	defer mysql.DeregisterReaderHandler(name)
	const load = `LOAD DATA LOCAL INFILE 'Reader::orders' INTO TABLE orders CHARACTER SET utf8mb4
		(tenant, id, note, amount, ratio, quantity, at, day, @paid, @raw, doc)
		SET raw = UNHEX(@raw), paid = IF(@paid IS NULL, NULL, @paid = 't')`
	_, err = db.ExecContext(ctx, load)
	return err
}

// writeFile writes the rows as NDJSON.
func (o orders) writeFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(f)
	for i := range o.count {
		r := o.at(i)
		if err := lines.Encode(r.object(onPostgres)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// line writes the row in the text form that both servers load: columns between
// tabs, \N for NULL, backslashes before what is special.
func (r *order) line(w *bytes.Buffer, binary func([]byte) string) {
	const null = `\N`
	text := func(s *string) string {
		if s == nil {
			return null
		}
		return strings.NewReplacer("\\", `\\`, "\t", `\t`, "\n", `\n`).Replace(*s)
	}
	fields := []string{text(&r.tenant), strconv.FormatInt(r.id, 10), text(r.note), text(r.amount), null, null, null, text(r.day), null, null, text(r.doc)}
	if r.ratio != nil {
		fields[4] = strconv.FormatFloat(*r.ratio, 'g', -1, 64)
	}
	if r.count != nil {
		fields[5] = strconv.FormatInt(*r.count, 10)
	}
	if r.at != nil {
		fields[6] = r.at.Format("2006-01-02 15:04:05.000000")
	}
	if r.paid != nil {
		fields[8] = strconv.FormatBool(*r.paid)[:1]
	}
	if r.raw != nil {
		fields[9] = binary(r.raw)
	}
	w.WriteString(strings.Join(fields, "\t"))
	w.WriteByte('\n')
}
