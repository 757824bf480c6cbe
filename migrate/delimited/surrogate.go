package delimited

import "strconv"

// LoneSurrogate reports whether a JSON string has an escape of half a
// surrogate pair, which decoding would replace silently.
func LoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw)-1; i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		switch u := unit(raw, i+1); {
		case u >= 0xDC00 && u < 0xE000:
			return true
		case u >= 0xD800 && u < 0xDC00:
			next := i + 5
			if next+6 > len(raw) || raw[next] != '\\' || raw[next+1] != 'u' {
				return true
			}
			if low := unit(raw, next+2); low < 0xDC00 || low >= 0xE000 {
				return true
			}
			i = next + 1
		}
	}
	return false
}

// unit reads four hex digits, -1 if there are none.
func unit(raw []byte, at int) int64 {
	if at+4 > len(raw) {
		return -1
	}
	u, err := strconv.ParseInt(string(raw[at:at+4]), 16, 32)
	if err != nil {
		return -1
	}
	return u
}
