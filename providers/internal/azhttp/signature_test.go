package azhttp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
)

func TestSignatureIsTakenOffAnAddress(t *testing.T) {
	for raw, want := range map[string][2]string{
		"https://a.table.core.windows.net":                    {"https://a.table.core.windows.net", ""},
		"https://a.table.core.windows.net/?":                  {"https://a.table.core.windows.net", ""},
		"https://a.table.core.windows.net/?sv=1&sig=x%2By%3D": {"https://a.table.core.windows.net", "sv=1&sig=x%2By%3D"},
		"http://127.0.0.1:1/acc?sig=x":                        {"http://127.0.0.1:1/acc", "sig=x"},
	} {
		address, sas, err := SplitURL(raw)
		if err != nil || address != want[0] || sas != want[1] {
			t.Errorf("%s: got %q, %q, %v", raw, address, sas, err)
		}
	}
}

func TestWhatIsNoSignatureIsNotQuoted(t *testing.T) {
	const secret = "hush"
	for _, raw := range []string{
		"https://h/?" + secret, "https://h?sig=", "https://h?sv=1&sg=" + secret, "https://h?sig=" + secret + "%", "https://h?sig=" + secret + "\n",
		"https://h?sig=" + secret + "#", "https://h?sig=" + secret + ";x", "h?sig=" + secret, "https://u:" + secret + "@h?sig=x", "file:///f?sig=" + secret,
	} {
		_, _, err := SplitURL(raw)
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: got %v, want invalid argument", raw, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("error %q tells a secret", err)
		}
	}
}

func TestSignatureSaysWhenItEnds(t *testing.T) {
	for sas, want := range map[string]string{
		"se=2030-01-02T03%3A04%3A05Z&sig=x": "2030-01-02T03:04:05Z",
		"se=2030-01-02T03:04Z&sig=x":        "2030-01-02T03:04:00Z",
		"se=2030-01-02&sig=x":               "2030-01-02T00:00:00Z",
		"sig=x":                             "",
		"se=soon&sig=x":                     "",
		"se=%":                              "",
	} {
		at, ok := Expiry(sas)
		if ok != (want != "") || ok && at.Format(time.RFC3339) != want {
			t.Errorf("%s: got %s, %v, want %q", sas, at, ok, want)
		}
	}
}
