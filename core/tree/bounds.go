package tree

// Prefix returns the range of the keys that begin with p: all keys for the
// empty prefix.
func Prefix(p string) Bounds {
	return Bounds{From: p, To: prefixEnd(p)}
}

// prefixEnd is the smallest string above all that begin with p, empty if there
// is none: trailing 0xFF bytes cannot be counted up.
func prefixEnd(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xFF {
			return p[:i] + string([]byte{p[i] + 1})
		}
	}
	return ""
}

// empty reports whether no key can lie in the range.
func (b Bounds) empty() bool { return b.To != "" && b.From >= b.To }

// after narrows the range to what follows a key that was seen.
func (b Bounds) after(key string, reverse bool) Bounds {
	if reverse {
		return Bounds{From: b.From, To: key}
	}
	// No string lies between a key and the key with a zero byte added.
	return Bounds{From: key + "\x00", To: b.To}
}
