package azuretable_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/azuretable"
	azuriteserver "github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/tests/azurite"
)

func TestOpeningATableTwiceFindsTheSame(t *testing.T) {
	e := azurite.Shared(t)
	o := azuretable.Options{ConnectionString: e.ConnectionString(), TableName: e.TableName(t)}
	for i := range 2 {
		table, err := azuretable.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.Apply(t.Context(), "part", []store.Op{store.Insert("key", nil)})
		if (i == 0) != (err == nil) {
			t.Fatalf("opening %d: insert gave %v", i, err)
		}
	}
}

// everything is all that a signature can permit.
const everything = "rwdlacu"

// signature gives some permissions.
func signature(t *testing.T, permissions string) string {
	t.Helper()
	key, err := aztables.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	values := aztables.AccountSASSignatureValues{
		Protocol: aztables.SASProtocolHTTPSandHTTP, StartTime: time.Now().Add(-time.Hour), ExpiryTime: time.Now().Add(time.Hour),
		Permissions: permissions, ResourceTypes: "sco", Services: "t",
	}
	sas, err := values.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return sas.Encode()
}

func TestSharedAccessSignatureIsEnough(t *testing.T) {
	e := azurite.Shared(t)
	table, err := azuretable.New(t.Context(), azuretable.Options{ServiceURL: e.TableURL(), SAS: signature(t, everything), TableName: e.TableName(t)})
	if err != nil {
		t.Fatal(err)
	}
	etags, err := table.Apply(t.Context(), "part", []store.Op{store.Insert("a", []byte("1")), store.Insert("b", []byte("2"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Apply(t.Context(), "part", []store.Op{store.Replace("a", []byte("3"), etags[0])}); err != nil {
		t.Fatal(err)
	}
	page, err := table.Range(t.Context(), "part", store.RangeQuery{})
	if err != nil || len(page.Rows) != 2 || string(page.Rows[0].Data) != "3" {
		t.Fatalf("got %+v, %v", page, err)
	}
}

func TestWrongKeyIsRefusedAndNotTold(t *testing.T) {
	e := azurite.Shared(t)
	const wrong = "d3Jvbmctd3Jvbmctd3Jvbmc="
	_, err := azuretable.New(t.Context(), azuretable.Options{
		ConnectionString: "AccountName=devstoreaccount1;AccountKey=" + wrong + ";TableEndpoint=" + e.TableURL(),
		TableName:        e.TableName(t),
	})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "403") {
		t.Fatalf("got %v, want a refusal", err)
	}
	if strings.Contains(err.Error(), wrong) {
		t.Fatalf("error %q tells the key", err)
	}
}

// TestConditionalReplaceOfAMissingRowDoesNotCreateIt guards against the upsert
// into which services turn a replace without a condition.
func TestConditionalReplaceOfAMissingRowDoesNotCreateIt(t *testing.T) {
	table := open(t, azurite.Shared(t))
	etags, err := table.Apply(t.Context(), "part", []store.Op{store.Insert("key", nil)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Apply(t.Context(), "part", []store.Op{store.Delete("key", etags[0])}); err != nil {
		t.Fatal(err)
	}
	for _, ops := range [][]store.Op{
		{store.Replace("key", nil, etags[0])},
		{store.Insert("other", nil), store.Replace("key", nil, etags[0])},
	} {
		if _, err := table.Apply(t.Context(), "part", ops); !errors.Is(err, store.ErrPrecondition) {
			t.Fatalf("got %v, want precondition failed", err)
		}
	}
	if page, err := table.Range(t.Context(), "part", store.RangeQuery{}); err != nil || len(page.Rows) != 0 {
		t.Fatalf("%d rows, %v", len(page.Rows), err)
	}
}

// TestLargeRowsFillSeveralPages reads more than one answer may hold.
func TestLargeRowsFillSeveralPages(t *testing.T) {
	table := open(t, azurite.Shared(t))
	const count = 16
	for i := range count {
		data := bytes.Repeat([]byte{byte(i)}, store.MaxRowBytes)
		if _, err := table.Apply(t.Context(), "part", []store.Op{store.Insert(fmt.Sprintf("%02d", i), data)}); err != nil {
			t.Fatal(err)
		}
	}
	q, seen, pages := store.RangeQuery{}, 0, 0
	for more := true; more; pages++ {
		page, err := table.Range(t.Context(), "part", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			if row.Key != fmt.Sprintf("%02d", seen) || !bytes.Equal(row.Data, bytes.Repeat([]byte{byte(seen)}, store.MaxRowBytes)) {
				t.Fatalf("row %d is %q of %d bytes", seen, row.Key, len(row.Data))
			}
			seen++
			q.From = store.NextKey(row.Key)
		}
		more = page.More
	}
	if seen != count || pages < 2 {
		t.Fatalf("%d rows in %d pages", seen, pages)
	}
}

// TestRacingAppendsHaveOneWinner is the commit of a log: of many appends after
// one head exactly one takes effect, each time.
func TestRacingAppendsHaveOneWinner(t *testing.T) {
	table := open(t, azurite.Shared(t))
	etags, err := table.Apply(t.Context(), "part", []store.Op{store.Insert("~head", nil)})
	if err != nil {
		t.Fatal(err)
	}
	head := etags[0]
	for round := range 20 {
		won := make(chan store.ETag, 8)
		var wait sync.WaitGroup
		for racer := range cap(won) {
			wait.Go(func() {
				etags, err := table.Apply(t.Context(), "part", []store.Op{
					store.Insert(fmt.Sprintf("%04d", round), []byte{byte(racer)}), store.Replace("~head", []byte{byte(racer)}, head),
				})
				switch {
				case err == nil:
					won <- etags[1]
				case !store.LostRace(err):
					t.Errorf("racer %d: %v", racer, err)
				}
			})
		}
		wait.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d has %d winners", round, len(won))
		}
		head = <-won
	}
}

func TestDeadServiceIsUnavailable(t *testing.T) {
	e := azurite.Start(t)
	table := open(t, e)
	e.Kill()
	for name, call := range map[string]func() error{
		"Get":   func() error { _, err := table.Get(t.Context(), "part", "key"); return err },
		"Range": func() error { _, err := table.Range(t.Context(), "part", store.RangeQuery{}); return err },
	} {
		if err := call(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want unavailable", name, err)
		}
	}
	// The reads have found the pooled connection dead, so this dials, in vain.
	if _, err := table.Apply(t.Context(), "part", []store.Op{store.Insert("key", nil)}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Apply: got %v, want unavailable", err)
	}
}
