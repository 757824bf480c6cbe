package migration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/tests/engines"
)

// items are documents over many partitions. Each is made of the seed and its
// number alone.
type items struct {
	seed              uint64
	count, partitions int
}

const (
	itemDatabase  = "shop"
	itemContainer = "items"
	// itemTemplate is the key that the tests have made of an item.
	itemTemplate = "item/{pk}/{id}"
)

// partition is that of a number; some have many items, and some one.
func (s items) partition(i int) string {
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)))
	n := min(rng.IntN(s.partitions), rng.IntN(s.partitions))
	return fmt.Sprintf([]string{"p-%d", "Ä %d", "q'\"%d"}[n%3], n)
}

// at makes the item of a number.
func (s items) at(i int) map[string]any {
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)+1<<40))
	item := map[string]any{
		"id": fmt.Sprintf("%05d ö", i), "pk": s.partition(i),
		"n": json.Number(fmt.Sprint(rng.Int64N(1 << 53))), "empty": "", "nothing": nil, "flag": i%2 == 0,
		"text": notes[rng.IntN(len(notes))],
		"list": []any{json.Number(fmt.Sprint(rng.IntN(100))), "a", map[string]any{"deep": true}},
	}
	if i%3 == 0 {
		item["ratio"] = json.Number("0.1")
	}
	return item
}

// fill makes the container and its items.
func (s items) fill(t *testing.T, server engines.Cosmos) {
	t.Helper()
	client := server.Client(t)
	if _, err := client.CreateDatabase(t.Context(), azcosmos.DatabaseProperties{ID: itemDatabase}, nil); err != nil {
		t.Fatal(err)
	}
	database, err := client.NewDatabase(itemDatabase)
	if err != nil {
		t.Fatal(err)
	}
	properties := azcosmos.ContainerProperties{ID: itemContainer, PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}}}
	if _, err := database.CreateContainer(t.Context(), properties, nil); err != nil {
		t.Fatal(err)
	}
	container, err := database.NewContainer(itemContainer)
	if err != nil {
		t.Fatal(err)
	}
	byPartition := map[string][]int{}
	for i := range s.count {
		byPartition[s.partition(i)] = append(byPartition[s.partition(i)], i)
	}
	const most = 100 // operations in a batch
	for partition, numbers := range byPartition {
		for portion := range slices.Chunk(numbers, most) {
			batch := container.NewTransactionalBatch(azcosmos.NewPartitionKeyString(partition))
			for _, i := range portion {
				batch.CreateItem(mustJSON(s.at(i)), nil)
			}
			answer, err := container.ExecuteTransactionalBatch(t.Context(), batch, nil)
			if err != nil || !answer.Success {
				t.Fatalf("create items of %s: %v", partition, err)
			}
		}
	}
}

// want is what a tree must hold.
func (s items) want() content {
	out := make(content, s.count)
	for i := range s.count {
		item := s.at(i)
		out[fmt.Sprintf("item/%s/%s", item["pk"], item["id"])] = entry{object: func() any { return s.at(i) }}
	}
	return out
}

func TestItemsReachTheEmulator(t *testing.T) {
	s := items{seed: 1, count: 3000, partitions: 300}
	server := engines.StartCosmos(t)
	s.fill(t, server)
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
