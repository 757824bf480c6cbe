package sqldb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

// endTimeout bounds the ending of a snapshot.
const endTimeout = 5 * time.Second

// begin connects and starts a snapshot.
func (s *Source) begin(ctx context.Context) (*snapshot, error) {
	if s.db == nil {
		db, err := s.d.open()
		if err != nil {
			return nil, err
		}
		db.SetMaxIdleConns(0)
		s.db = db
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := s.d.begin(ctx, conn)
	if err != nil {
		return nil, errors.Join(err, closing(err, conn))
	}
	snap.conn = conn
	return snap, nil
}

// release ends the snapshot, if there is one. Nothing depends on how that goes:
// nothing was written.
func (s *Source) release() {
	if s.snap == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = s.snap.end(ctx)
	_ = s.snap.conn.Close()
	s.snap = nil
}

// inspect finds out what there is to read.
func (s *Source) inspect(ctx context.Context, snap *snapshot) (source.Info, error) {
	what, err := s.subject(ctx, snap)
	if err != nil {
		return source.Info{}, err
	}
	sh, err := s.d.describe(ctx, snap.conn, what)
	if err != nil {
		return source.Info{}, err
	}
	set, err := s.dataset(what, sh)
	if err != nil {
		return source.Info{}, err
	}
	if err := s.probe(ctx, snap, set); err != nil {
		return source.Info{}, err
	}
	s.set = set
	below, err := s.negative(ctx, snap, set)
	if err != nil {
		return source.Info{}, err
	}
	info := source.Info{
		Kind: s.d.traits().kind, Identity: s.identity(what), Version: snap.version,
		Fields: columnNames(set.columns), KeyFields: columnNames(set.keys), KeyTemplate: set.keyTemplate(below),
		Consistent: snap.torn == "" && sh.torn == "", Lossy: set.lossy(), Notes: s.notes(snap, sh),
	}
	if info.Estimate, err = s.estimate(ctx, snap, what); err != nil {
		return source.Info{}, err
	}
	if set.change != nil {
		info.Cut, err = s.cut(ctx, snap)
	}
	return info, err
}

// subject finds the table, or takes the query.
func (s *Source) subject(ctx context.Context, snap *snapshot) (subject, error) {
	if s.o.Query != "" {
		return subject{query: s.o.Query, from: "(\n" + s.o.Query + "\n) AS q"}, nil
	}
	table, err := s.find(ctx, snap)
	if err != nil {
		return subject{}, err
	}
	quote := s.d.traits().quote
	from := quote(table.name)
	if table.schema != "" {
		from = quote(table.schema) + "." + from
	}
	return subject{table: table, from: from}, nil
}

// dataset chooses the key and the order.
func (s *Source) dataset(what subject, sh shape) (*dataset, error) {
	set := &dataset{subject: what, label: what.table.name, where: s.o.Where, columns: sh.columns}
	if what.query != "" {
		set.label = "query"
	}
	if err := distinct(sh.columns); err != nil {
		return nil, err
	}
	names := s.o.KeyColumns
	if len(names) == 0 {
		if len(sh.indexes) == 0 {
			return nil, notice("%s has no primary key and no unique index without NULLs: give key columns that identify a row%s",
				what.table.name, suchAs(sh.hidden))
		}
		names = sh.indexes[0].columns
	}
	for _, name := range names {
		c, err := set.key(name, sh.hidden)
		if err != nil {
			return nil, err
		}
		if c.order == "" {
			return nil, notice("column %s cannot be a key column: rows cannot be ordered by %s; give others", c.name, c.engine)
		}
		if slices.Contains(set.keys, c) {
			return nil, notice("column %s is given twice as key column", c.name)
		}
		set.keys = append(set.keys, c)
		set.sorted = set.sorted || c.unindexed
	}
	set.sorted = set.sorted || !served(slices.Concat(sh.indexes, sh.orders), set.keys)
	set.whole = set.sorted || !s.d.traits().seekable(set.keys) || s.d.traits().clustered && !served(primary(sh.indexes), set.keys)
	if s.o.ChangeColumn == "" {
		return set, nil
	}
	c, err := set.column(s.o.ChangeColumn)
	if err != nil {
		return nil, err
	}
	if c.change == noChange {
		return nil, notice("column %s cannot tell changes: that takes a date and time, or a whole number that grows, and it is %s", c.name, c.engine)
	}
	set.change = c
	return set, nil
}

// distinct refuses names that occur twice.
func distinct(columns []*column) error {
	seen := map[string]bool{}
	for _, c := range columns {
		if seen[c.name] {
			return notice("two columns of the query are called %s: name them with AS", c.name)
		}
		seen[c.name] = true
	}
	return nil
}

// column finds a column by its name, in any case if that is unique.
func (ds *dataset) column(name string) (*column, error) {
	var found []*column
	for _, c := range ds.columns {
		if c.name == name {
			return c, nil
		}
		if strings.EqualFold(c.name, name) {
			found = append(found, c)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return nil, notice("%s has no column %s%s", ds.label, name, suggestion(name, columnNames(ds.columns)))
}

// key finds a key column. A hidden one becomes a field.
func (ds *dataset) key(name string, hidden []*column) (*column, error) {
	c, err := ds.column(name)
	if err == nil {
		return c, nil
	}
	for _, h := range hidden {
		if h.name == strings.ToLower(name) {
			ds.columns = append(slices.Clone(ds.columns), h)
			return h, nil
		}
	}
	return nil, err
}

func suchAs(hidden []*column) string {
	if len(hidden) == 0 {
		return ""
	}
	return ", such as " + list(columnNames(hidden))
}

// primary are the indexes that are primary keys.
func primary(all []index) []index {
	return slices.DeleteFunc(slices.Clone(all), func(ix index) bool { return !ix.primary })
}

// served reports whether an index gives rows in the order of the keys.
func served(indexes []index, keys []*column) bool {
	names := columnNames(keys)
	return slices.ContainsFunc(indexes, func(ix index) bool {
		return len(names) <= len(ix.columns) && slices.Equal(ix.columns[:len(names)], names)
	})
}

// probe has the engine check the statement and the right to run it.
func (s *Source) probe(ctx context.Context, snap *snapshot, set *dataset) error {
	rows, err := snap.conn.QueryContext(ctx, set.probe(s.d.traits()))
	if err != nil {
		return err
	}
	for rows.Next() {
		continue
	}
	return errors.Join(rows.Err(), rows.Close())
}

func (s *Source) estimate(ctx context.Context, snap *snapshot, what subject) (n int64, err error) {
	if !s.o.Count {
		return s.d.estimate(ctx, snap.conn, what, s.o.Where)
	}
	set := &dataset{subject: what, where: s.o.Where}
	err = snap.conn.QueryRowContext(ctx, set.count()).Scan(&n)
	return n, err
}

// identity names what is read. Conditions and queries stand in it as a digest:
// they may be long, and hold what is nobody's business.
func (s *Source) identity(what subject) string {
	id := s.d.traits().kind + " " + s.d.place()
	if what.query != "" {
		return id + " query " + digest(what.query)
	}
	if what.table.schema != "" {
		id += " " + what.table.schema + "." + what.table.name
	} else {
		id += " " + what.table.name
	}
	if s.o.Where != "" {
		id += " where " + digest(s.o.Where)
	}
	return id
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

func (ds *dataset) lossy() []string {
	var found []string
	for _, c := range ds.columns {
		if c.lossy != "" {
			found = append(found, fmt.Sprintf("Column %s (%s): %s.", c.name, c.engine, c.lossy))
		}
	}
	return found
}

func (s *Source) notes(snap *snapshot, sh shape) []string {
	var notes []string
	for _, torn := range []string{snap.torn, sh.torn} {
		if torn != "" {
			notes = append(notes, torn)
		}
	}
	if len(notes) == 0 {
		notes = append(notes, "All pages come from one snapshot, which ends with the connection: "+
			"after a restart reading goes on from its position in a new one, and a delta pass closes the gap.")
	}
	if s.set.sorted {
		notes = append(notes, fmt.Sprintf("No index gives the order of %s by bytes: the database sorts all rows once, which takes time and temporary space there.",
			list(columnNames(s.set.keys))))
	}
	return append(notes, sh.notes...)
}

func jsonWeight(v any) int {
	if raw, ok := v.(json.RawMessage); ok {
		return len(raw) + 32
	}
	return 32
}
