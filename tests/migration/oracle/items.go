package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
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
func (s items) fill(ctx context.Context, address, key string) error {
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		return err
	}
	client, err := azcosmos.NewClientWithKey(address, credential, nil)
	if err != nil {
		return err
	}
	container, err := makeContainer(ctx, client)
	if err != nil {
		return err
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
			answer, err := container.ExecuteTransactionalBatch(ctx, batch, nil)
			if err != nil {
				return err
			}
			if !answer.Success {
				return fmt.Errorf("items of %s were refused", partition)
			}
		}
	}
	return nil
}

func makeContainer(ctx context.Context, client *azcosmos.Client) (*azcosmos.ContainerClient, error) {
	if _, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: itemDatabase}, nil); err != nil {
		return nil, err
	}
	database, err := client.NewDatabase(itemDatabase)
	if err != nil {
		return nil, err
	}
	properties := azcosmos.ContainerProperties{ID: itemContainer, PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}}}
	if _, err := database.CreateContainer(ctx, properties, nil); err != nil {
		return nil, err
	}
	return database.NewContainer(itemContainer)
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
