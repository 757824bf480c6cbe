package azhttp

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// SplitURL takes a shared access signature, which is the query of the address of
// a service, off that address, so that only the rest of it stands in messages.
// The signature is empty if there is none. ErrInvalid if the rest is no address
// (see CheckURL) or the query no signature; errors never quote the query.
func SplitURL(raw string) (address, sas string, err error) {
	rest, sas, _ := strings.Cut(raw, "?")
	if address, err = CheckURL(rest); err != nil {
		return "", "", err
	}
	if sas == "" {
		return address, "", nil
	}
	return address, sas, CheckSAS(sas)
}

// CheckSAS validates a shared access signature without a leading '?'. ErrInvalid
// if it has no signature in it; the error does not quote it.
func CheckSAS(sas string) error {
	fields, err := url.ParseQuery(sas)
	switch {
	case err != nil || strings.ContainsFunc(sas, notGraphic):
		return fmt.Errorf("shared access signature is no query of a URL: %w", store.ErrInvalid)
	case fields.Get("sig") == "":
		return fmt.Errorf("shared access signature lacks its field sig: %w", store.ErrInvalid)
	}
	return nil
}

// notGraphic finds what would break a URL, such as the end of a line that was
// copied with it.
func notGraphic(r rune) bool { return r <= ' ' || r == '#' || r >= 0x7f }

// expiryForms are how a signature may write when it ends.
var expiryForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02"}

// Expiry returns when a shared access signature ends. It is false for one that
// does not say: a policy stored in the account may do so in its place.
func Expiry(sas string) (time.Time, bool) {
	fields, err := url.ParseQuery(sas)
	if err != nil {
		return time.Time{}, false
	}
	for _, form := range expiryForms {
		if at, err := time.Parse(form, fields.Get("se")); err == nil {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}
