package source

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// shortRunes is how many characters of a quoted name people get to see.
const shortRunes = 64

// Short is the origin of a record for people: of a long name in quotes, or of a
// long origin without any, the beginning and the length.
func Short(origin string) string {
	from, to := strings.IndexByte(origin, '"'), strings.LastIndexByte(origin, '"')
	if from < 0 || from == to {
		from, to = -1, len(origin)
	}
	name := origin[from+1 : to]
	n := utf8.RuneCountInString(name)
	if n <= shortRunes || from < 0 && n <= 2*shortRunes {
		return origin
	}
	return origin[:from+1] + string([]rune(name)[:shortRunes]) + fmt.Sprintf("… (%d characters)", n) + origin[to:]
}
