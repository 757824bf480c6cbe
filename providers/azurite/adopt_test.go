package azurite

import (
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// installed returns the program, installing it if need be.
func installed(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Azurite")
	}
	program, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestRunningServerIsAdopted(t *testing.T) {
	o := Options{Program: installed(t), Folder: t.TempDir()}
	connection, first, err := adoptOrStart(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	if connection != first.ConnectionString() {
		t.Fatalf("started %q, told %q", first.ConnectionString(), connection)
	}
	o.BlobPort, o.TablePort = portOf(t, first.BlobURL()), portOf(t, first.TableURL())
	again, second, err := adoptOrStart(t.Context(), o)
	if err != nil || second != nil || again != connection {
		t.Fatalf("got %q, a second server: %v, %v", again, second != nil, err)
	}

	// Its blobs alone are not enough, and in the way of a server of our own.
	o.TablePort = 0
	_, third, err := adoptOrStart(t.Context(), o)
	if err == nil || third != nil || !strings.Contains(err.Error(), "EADDRINUSE") {
		t.Fatalf("half a server: got %v", err)
	}
}

func TestNothingIsStartedWithoutAFolder(t *testing.T) {
	if _, s, err := adoptOrStart(t.Context(), Options{Program: installed(t)}); err == nil || s != nil {
		t.Fatalf("got %v", err)
	}
}
