package redissource

import (
	"context"
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/redis"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/tests/engines"
)

// dataset is what an enumeration gave, with repetitions merged by Origin.
type dataset struct {
	records map[string]source.Record
	faults  map[string]source.Fault
	expired int64
	repeats int
	pages   int
	last    source.Position
}

func (d *dataset) add(p source.Page) {
	d.pages++
	d.expired += p.Expired
	d.last = p.Next
	for _, r := range p.Records {
		if _, twice := d.records[r.Origin]; twice {
			d.repeats++
		}
		d.records[r.Origin] = r
	}
	for _, f := range p.Faults {
		d.faults[f.Origin] = f
	}
}

func newDataset() *dataset {
	return &dataset{records: map[string]source.Record{}, faults: map[string]source.Fault{}}
}

func open(t *testing.T, o redis.Options) *redis.Source {
	t.Helper()
	s, err := redis.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// readAll enumerates everything; each page is also given to see, if any.
func readAll(t *testing.T, s source.Source, see func(source.Page)) *dataset {
	t.Helper()
	d := newDataset()
	for p, err := range s.Read(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		d.add(p)
		if see != nil {
			see(p)
		}
	}
	if d.last != nil {
		t.Fatalf("the last page has a position: %s", d.last)
	}
	return d
}

// get returns the record of a text key.
func (d *dataset) get(t *testing.T, key string) source.Record {
	t.Helper()
	r, ok := d.records[fmt.Sprintf("key %q of db 0", key)]
	if !ok {
		t.Fatalf("key %q was not read", key)
	}
	return r
}

func start(t *testing.T, config ...string) (engines.Redis, *goredis.Client, context.Context) {
	t.Helper()
	r := engines.StartRedis(t, config...)
	return r, r.Client(t), t.Context()
}

// must fails the test if a command failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
