package operate

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

// damaged is a store of one tree of one shard, folded, with means to spoil it.
type damaged struct {
	*world
	mem *memory.Store
}

func newDamaged(t *testing.T) *damaged {
	mem := memory.New(memory.Options{})
	w := &world{t: t, meter: metered.New(mem.Table(), mem.Blobs()), Options: options.Default()}
	w.LeafTargetBytes = 4 << 10
	p := w.start()
	p.do("PUT", "/v1/trees/t", `{"shardCount":1}`)
	p.foldSoon("t", true)
	for from := range 2 {
		p.do("POST", "/v1/trees/t/batch", `{"operations":[`+sets(500*from, 500*(from+1), setForm)+`]}`)
	}
	p.tick("checkpoint")
	p.foldSoon("t", false)
	return &damaged{w, mem}
}

// blobs returns the names of blobs with a word in them.
func (d *damaged) blobs(word string) (names []string) {
	d.t.Helper()
	page, err := d.mem.Blobs().List(d.t.Context(), "", "")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, b := range page.Blobs {
		if strings.Contains(b.Name, word) {
			names = append(names, b.Name)
		}
	}
	return names
}

// fresh asks a process that begins now, and returns status, body and log.
func (d *damaged) fresh(method, path, body string) (status int, answer, log string) {
	d.t.Helper()
	var lines bytes.Buffer
	svc, err := service.New(service.Config{
		Table: d.mem.Table(), Blobs: d.mem.Blobs(), Options: d.Options,
		InternalToken: internalToken, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(d.t.Context(), method, "http://lattice.test"+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	svc.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String(), lines.String()
}

// refuses demands that reads and writes of the tree fail loudly, and name what is
// at fault to the caller and in the log.
func (d *damaged) refuses(name string) {
	d.t.Helper()
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/trees/t/keys/" + key(1), ""},
		{"GET", "/v1/trees/t/entries?limit=5000", ""},
		{"PUT", "/v1/trees/t/keys/" + key(1), "x"},
	} {
		status, answer, log := d.fresh(c.method, c.path, c.body)
		if status != http.StatusInternalServerError || !strings.Contains(answer, name) {
			d.t.Errorf("%s %s: %d %s", c.method, c.path, status, answer)
		}
		if !strings.Contains(log, name) {
			d.t.Errorf("%s %s: the log does not name %s:\n%s", c.method, c.path, name, log)
		}
	}
}

// TestMissingBlobIsNoMissingKey: a failover may bring back a table that is newer
// than the blobs.
func TestMissingBlobIsNoMissingKey(t *testing.T) {
	d := newDamaged(t)
	if status, _, _ := d.fresh("GET", "/v1/trees/t/keys/"+key(1), ""); status != http.StatusOK {
		t.Fatalf("before the damage: %d", status)
	}
	for _, name := range d.blobs("manifest") {
		if err := d.mem.Blobs().Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	d.refuses("manifest-")
}

func TestMissingLeafFailsWhatNeedsIt(t *testing.T) {
	d := newDamaged(t)
	for _, name := range d.blobs("leaf") {
		if err := d.mem.Blobs().Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/v1/trees/t/keys/" + key(1), "/v1/trees/t/entries?limit=5000"} {
		if status, answer, log := d.fresh("GET", path, ""); status < 500 || !strings.Contains(log, "leaf-") {
			t.Errorf("%s: %d %s\n%s", path, status, answer, log)
		}
	}
}

// TestWhatANewerVersionWroteIsRefused: rows and blobs that are not what this
// version would write.
func TestWhatANewerVersionWroteIsRefused(t *testing.T) {
	t.Run("head", func(t *testing.T) {
		d := newDamaged(t)
		partition := strings.SplitN(d.blobs("manifest")[0], "/", 2)[0]
		d.rewrite(partition, "head", func(data []byte) []byte {
			return bytes.Replace(data, []byte("{"), []byte(`{"newer":1,`), 1)
		})
		d.refuses("head of " + partition)
	})
	t.Run("manifest", func(t *testing.T) {
		d := newDamaged(t)
		for _, name := range d.blobs("manifest") {
			data, etag, err := d.mem.Blobs().Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			data[4]++ // of the envelope
			if _, err := d.mem.Blobs().Put(t.Context(), name, data, store.IfMatch(etag)); err != nil {
				t.Fatal(err)
			}
		}
		d.refuses("manifest-")
	})
	t.Run("tree", func(t *testing.T) {
		d := newDamaged(t)
		d.rewrite("registry", "74", func(data []byte) []byte {
			data[4]++
			return data
		})
		d.refuses("has version")
	})
}

// rewrite changes the bytes of a row.
func (d *damaged) rewrite(partition, key string, edit func([]byte) []byte) {
	d.t.Helper()
	row, err := d.mem.Table().Get(d.t.Context(), partition, key)
	if err != nil {
		d.t.Fatal(err)
	}
	changed := edit(bytes.Clone(row.Data))
	if bytes.Equal(changed, row.Data) {
		d.t.Fatalf("row %s/%s was not changed: %.100q", partition, key, row.Data)
	}
	if _, err := d.mem.Table().Apply(d.t.Context(), partition, []store.Op{store.Replace(key, changed, row.ETag)}); err != nil {
		d.t.Fatal(err)
	}
}
