package sqldb

import (
	"regexp"
	"strings"
)

// noDay says what becomes of a moment that is no day of the calendar.
const noDay = "a moment that is no day of the years 1 to 9999, such as infinity, a year before Christ or 0000-00-00, became the text that the database has for it"

// moment reports whether a column holds moments or days.
func (c change) moment() bool {
	switch c {
	case changeInstant, changeLocal, changeDate:
		return true
	}
	return false
}

var dayForm = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]|$)`)

// writable reports whether the text of a moment begins with a day that
// programs can read.
func writable(text string) bool {
	return dayForm.MatchString(text) && !strings.HasSuffix(text, " BC") &&
		text[:4] != "0000" && text[5:7] != "00" && text[8:10] != "00"
}
