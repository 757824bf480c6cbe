// Package cosmossource reads an emulator of Cosmos DB as a migration does. The
// emulator forgives more than the service: it checks no key and never throttles.
package cosmossource

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/latticekv/lattice/migrate/cosmos"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/tests/engines"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// container makes a container with a partition key path in a database of its
// own.
func container(t *testing.T, account engines.Cosmos, path string) (*azcosmos.ContainerClient, cosmos.Options) {
	t.Helper()
	ctx := t.Context()
	client := account.Client(t)
	_, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "db"}, nil)
	must(t, err)
	db, err := client.NewDatabase("db")
	must(t, err)
	_, err = db.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{path}}}, nil)
	must(t, err)
	c, err := db.NewContainer("items")
	must(t, err)
	return c, cosmos.Options{ConnectionString: account.ConnectionString, Database: "db", Container: "items"}
}

func open(t *testing.T, o cosmos.Options) *cosmos.Source {
	t.Helper()
	s, err := cosmos.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// gather reads everything that pages yield, each record once.
func gather(t *testing.T, pages func(func(source.Page, error) bool), into map[string]source.Record) (last source.Position, count int) {
	t.Helper()
	for p, err := range pages {
		must(t, err)
		for _, r := range p.Records {
			if _, twice := into[r.Origin]; twice {
				t.Errorf("%s comes twice", r.Origin)
			}
			into[r.Origin] = r
		}
		if len(p.Faults) > 0 {
			t.Errorf("faults %+v", p.Faults)
		}
		last = p.Next
		count++
	}
	return last, count
}

func write(t *testing.T, c *azcosmos.ContainerClient, pk, item string) {
	t.Helper()
	_, err := c.UpsertItem(t.Context(), azcosmos.NewPartitionKeyString(pk), []byte(item), nil)
	must(t, err)
}

// 2,000 items over 40 partitions: each comes once, as it was written, from the
// start and from any page on; the count agrees.
func TestItemsOfManyPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an emulator")
	}
	const n, partitions = 2000, 40
	ctx := t.Context()
	account := engines.StartCosmos(t)
	c, o := container(t, account, "/tenant")
	for i := range n {
		tenant := fmt.Sprintf("t%02d", i%partitions)
		write(t, c, tenant, fmt.Sprintf(`{"id":"%d","tenant":%q,"n":%d,"text":"<é>","list":[1,{"a":null}]}`, i/partitions, tenant, i))
	}
	o.PageSize = 150
	s := open(t, o)
	info, err := s.Inspect(ctx)
	must(t, err)
	if info.KeyTemplate != "{pk}/{id}" || info.Cut == "" || strings.Contains(info.Identity, account.Key) {
		t.Errorf("info %+v", info)
	}
	all := map[string]source.Record{}
	last, pages := gather(t, s.Read(ctx, nil), all)
	if len(all) != n || last != nil || pages < n/150 {
		t.Fatalf("%d records in %d pages, the last at %s", len(all), pages, last)
	}
	for i := range n {
		tenant, id := fmt.Sprintf("t%02d", i%partitions), fmt.Sprint(i/partitions)
		r, ok := all[fmt.Sprintf("item %q of partition %q", id, tenant)]
		want := fmt.Sprintf(`{"id":%q,"tenant":%q,"n":%d,"text":"<é>","list":[1,{"a":null}]}`, id, tenant, i)
		if !ok || string(r.Payload) != want || r.Type != "application/json" || !r.Expiry.IsZero() {
			t.Fatalf("item %d is %s, want %s", i, r.Payload, want)
		}
		pk, _ := r.Get("pk")
		number, _ := r.Get("n")
		if stamp, _ := r.Get("_ts"); pk != tenant || number != int64(i) || stamp.(int64) < 1_700_000_000 {
			t.Fatalf("fields %+v", r.Fields)
		}
	}
	if got, err := s.Count(ctx); err != nil || got != n {
		t.Errorf("count %d, %v", got, err)
	}
	resume(t, o, n)

	o.Filter = `WHERE c.tenant = "t07" OR c.n < 10`
	some := map[string]source.Record{}
	gather(t, open(t, o).Read(ctx, nil), some)
	if len(some) != n/partitions+9 {
		t.Errorf("with a filter: %d records", len(some))
	}
}

// resume stops after each page in turn and goes on with a source of its own.
func resume(t *testing.T, o cosmos.Options, n int) {
	t.Helper()
	ctx := t.Context()
	for stop := 1; stop <= 3; stop++ {
		got := map[string]source.Record{}
		var at source.Position
		pages := 0
		for p, err := range open(t, o).Read(ctx, nil) {
			must(t, err)
			for _, r := range p.Records {
				got[r.Origin] = r
			}
			if at = p.Next; pages+1 == stop {
				break
			}
			pages++
		}
		gather(t, open(t, o).Read(ctx, at), got)
		if len(got) != n {
			t.Errorf("stopped after page %d: %d records", stop, len(got))
		}
	}
	p := struct {
		Token     string `json:"token"`
		Container string `json:"container"`
	}{"x", "another"}
	at, _ := json.Marshal(p)
	for _, err := range open(t, o).Read(ctx, at) {
		if !errors.Is(err, source.ErrRestart) {
			t.Errorf("the position of another container: %v", err)
		}
	}
}

// What changed since a cut is what a later pass yields.
func TestChangesSinceACut(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an emulator")
	}
	ctx := t.Context()
	c, o := container(t, engines.StartCosmos(t), "/pk")
	write(t, c, "a", `{"id":"1","pk":"a"}`)
	s := open(t, o)
	info, err := s.Inspect(ctx)
	must(t, err)
	all := map[string]source.Record{}
	gather(t, s.Read(ctx, nil), all)
	first := all[`item "1" of partition "a"`]
	stamp, _ := first.Get("_ts")
	// The cut lies before what was written while the container was described.
	since := map[string]source.Record{}
	gather(t, s.ReadSince(ctx, info.Cut, nil), since)
	if len(since) != 1 {
		t.Errorf("since the cut: %d records", len(since))
	}
	none := map[string]source.Record{}
	gather(t, s.ReadSince(ctx, fmt.Sprint(stamp.(int64)+3600), nil), none)
	if len(none) != 0 {
		t.Errorf("since an hour later: %d records", len(none))
	}
	for _, err := range s.ReadSince(ctx, "yesterday", nil) {
		if err == nil {
			t.Error("a cut that is no number was accepted")
		}
	}
}

func TestPartitionKeysThatAreMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an emulator")
	}
	c, o := container(t, engines.StartCosmos(t), "/address/city")
	write(t, c, "Rome", `{"id":"1","address":{"city":"Rome"}}`)
	write(t, c, "", `{"id":"2","address":{"city":null}}`)
	write(t, c, "", `{"id":"3"}`)
	all := map[string]source.Record{}
	gather(t, open(t, o).Read(t.Context(), nil), all)
	for origin, want := range map[string]any{
		`item "1" of partition "Rome"`: "Rome", `item "2" of partition null`: nil, `item "3" of partition none`: nil,
	} {
		r, ok := all[origin]
		pk, hasKey := r.Get("pk")
		city, hasPath := r.Get("address.city")
		if !ok || !hasKey || !hasPath || pk != want || city != want {
			t.Errorf("%s: %+v", origin, r)
		}
	}
}

func TestRefusalsAreExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an emulator")
	}
	ctx := t.Context()
	account := engines.StartCosmos(t)
	_, o := container(t, account, "/pk")
	for want, change := range map[string]func(*cosmos.Options){
		`no database "db" with a container "nothing"`: func(o *cosmos.Options) { o.Container = "nothing" },
		"check --query":     func(o *cosmos.Options) { o.Filter = "c.a ORDER" },
		"cannot be reached": func(o *cosmos.Options) { o.ConnectionString, o.Endpoint, o.Key = "", nowhere(t), account.Key },
	} {
		o := o
		o.RetryFor = time.Nanosecond
		change(&o)
		s := open(t, o)
		_, err := s.Inspect(ctx)
		if err == nil {
			for _, e := range s.Read(ctx, nil) {
				err = e
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), account.Key) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// nowhere is an endpoint where nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return "http://" + l.Addr().String()
}
