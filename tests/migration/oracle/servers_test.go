package oracle

import (
	"database/sql"
	"errors"
	"math/big"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/tests/engines"
)

func TestOrdersReachTheServers(t *testing.T) {
	o := orders{seed: 1, count: 2000}
	if got := len(o.want(onPostgres)); got != o.count {
		t.Fatalf("%d different keys of %d rows", got, o.count)
	}
	p, m := engines.StartPostgres(t), engines.StartMariaDB(t)
	if err := errors.Join(o.fillPostgres(t.Context(), p.DSN), o.fillMariaDB(t.Context(), m.DSN)); err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*sql.DB{"postgres": p.Open(t), "mariadb": m.Open(t)} {
		// What aggregates say of the columns must agree with the rows.
		var count, notes, paid, raws, ids int64
		var amount string
		err := db.QueryRowContext(t.Context(), `SELECT count(*), count(note), count(CASE WHEN paid THEN 1 END),
			sum(length(raw)), count(DISTINCT id), sum(amount) FROM orders`).Scan(&count, &notes, &paid, &raws, &ids, &amount)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum := new(big.Rat)
		for i := range o.count {
			r := o.at(i)
			count, ids, raws = count-1, ids-1, raws-int64(len(r.raw))
			if r.note != nil {
				notes--
			}
			if r.paid != nil && *r.paid {
				paid--
			}
			if r.amount != nil {
				n, _ := new(big.Rat).SetString(*r.amount)
				sum.Add(sum, n)
			}
		}
		if count != 0 || notes != 0 || paid != 0 || raws != 0 || ids != 0 || sum.FloatString(4) != amount {
			t.Errorf("%s: off by %d rows, %d notes, %d paid, %d bytes, %d ids; amount %s, want %s",
				name, count, notes, paid, raws, ids, amount, sum.FloatString(4))
		}
	}
}

func TestItemsReachTheEmulator(t *testing.T) {
	s := items{seed: 1, count: 3000, partitions: 300}
	server := engines.StartCosmos(t)
	if err := s.fill(t.Context(), server.URL, server.Key); err != nil {
		t.Fatal(err)
	}
	container, err := server.Client(t).NewContainer(itemDatabase, itemContainer)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < s.count; i += 100 {
		item := s.at(i)
		got, err := container.ReadItem(t.Context(), azcosmos.NewPartitionKeyString(s.partition(i)), item["id"].(string), nil)
		if err != nil {
			t.Fatalf("item %d: %v", i, err)
		}
		read, err := decodeJSON(got.Value)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range item {
			if held := read.(map[string]any)[name]; string(mustJSON(held)) != string(mustJSON(value)) {
				t.Errorf("item %d: %s is %v, want %v", i, name, held, value)
			}
		}
	}
}
