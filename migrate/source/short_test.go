package source

import (
	"strings"
	"testing"
)

func TestShort(t *testing.T) {
	long := strings.Repeat("ä", 1500)
	for origin, want := range map[string]string{
		`key "a" of db 0`:            `key "a" of db 0`,
		`key "` + long + `" of db 0`: `key "` + long[:128] + `… (1500 characters)" of db 0`,
		long:                         long[:128] + "… (1500 characters)",
		"cities.csv:3":               "cities.csv:3",
		"":                           "",
		`a"`:                         `a"`,
	} {
		if got := Short(origin); got != want {
			t.Errorf("%q", got)
		}
	}
}
