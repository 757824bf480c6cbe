package backend

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/bolt"
	"github.com/latticekv/lattice/tests/azurite"
)

// probe writes and reads a row and a blob.
func probe(t *testing.T, b *Backend) {
	t.Helper()
	if _, err := b.Table.Apply(t.Context(), "p", []store.Op{store.Insert("row", []byte("r"))}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Blobs.Put(t.Context(), "a/blob", []byte("b"), store.Create); err != nil {
		t.Fatal(err)
	}
	expect(t, b)
}

func expect(t *testing.T, b *Backend) {
	t.Helper()
	row, err := b.Table.Get(t.Context(), "p", "row")
	if err != nil || string(row.Data) != "r" {
		t.Fatalf("row %q, %v", row.Data, err)
	}
	data, _, err := b.Blobs.Get(t.Context(), "a/blob")
	if err != nil || string(data) != "b" {
		t.Fatalf("blob %q, %v", data, err)
	}
}

func mustOpen(t *testing.T, c Config) *Backend {
	t.Helper()
	b, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMemoryServes(t *testing.T) {
	b := mustOpen(t, Config{Store: Memory, DataDir: t.TempDir()})
	probe(t, b)
	if err := b.Close(); err != nil || !b.Exclusive {
		t.Fatalf("exclusive %v, close %v", b.Exclusive, err)
	}
}

func TestBoltKeepsWhatItHolds(t *testing.T) {
	c := Config{Store: Bolt, DataDir: filepath.Join(t.TempDir(), "new", "folder")}
	first := mustOpen(t, c)
	probe(t, first)
	if !first.Exclusive || !strings.Contains(first.Description, c.DataDir) {
		t.Errorf("exclusive %v, described as %q", first.Exclusive, first.Description)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, c)
	expect(t, again)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBoltFolderInUseIsExplained(t *testing.T) {
	c := Config{Store: Bolt, DataDir: t.TempDir()}
	first := mustOpen(t, c)
	_, err := Open(t.Context(), c)
	if !errors.Is(err, bolt.ErrInUse) || !strings.Contains(err.Error(), "--data-dir") || !strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("got %v, want advice", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, c)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFolderThatCannotBeMadeIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(file, "data")
	if _, err := Open(t.Context(), Config{Store: Bolt, DataDir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v, want an error that names the folder", err)
	}
}

func TestAzuriteOfTheConnectionStringServes(t *testing.T) {
	server := azurite.Start(t)
	c := Config{Store: Azurite, DataDir: t.TempDir(), TableName: "elsewhere", ContainerName: "else-where", ConnectionString: server.ConnectionString()}
	first, second := mustOpen(t, c), mustOpen(t, c)
	probe(t, first)
	expect(t, second)
	if first.Exclusive || !strings.Contains(first.Description, "elsewhere") {
		t.Errorf("exclusive %v, described as %q", first.Exclusive, first.Description)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestBadConnectionStringsAreRefusedWithoutTheirKey(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString([]byte("a key that nobody may see"))
	cases := map[string]string{
		"no account":       "AccountKey=" + secret,
		"no pair":          "AccountName=a;" + secret,
		"key is no base64": "AccountName=a;AccountKey=*" + secret + "*",
		"bad address":      "AccountName=a;AccountKey=" + secret + ";TableEndpoint=::;BlobEndpoint=http://127.0.0.1:1/a",
		"nobody there":     "AccountName=a;AccountKey=" + secret + ";TableEndpoint=http://127.0.0.1:1/a;BlobEndpoint=http://127.0.0.1:1/a",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			b, err := Open(ctx, Config{Store: Azure, DataDir: t.TempDir(), TableName: "lattice", ContainerName: "lattice", ConnectionString: text})
			if err == nil {
				t.Fatalf("opened %s", b.Description)
			}
			if strings.Contains(err.Error(), secret) {
				t.Fatalf("the error tells the key: %v", err)
			}
		})
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	const account = "UseDevelopmentStorage=true"
	for _, c := range []Config{
		{Store: Azure, DataDir: "d", ConnectionString: account, TableName: "no-dashes", ContainerName: "lattice"},
		{Store: "redis", DataDir: "d"},
	} {
		if _, err := Open(t.Context(), c); err == nil {
			t.Errorf("%+v was opened", c)
		}
	}
}
