package api

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

const digestName = "sha-256"

// digestOf returns the Content-Digest of content (RFC 9530, section 2).
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return digestName + "=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// checkDigest compares content with the sha-256 of a Content-Digest header.
// Digests by other algorithms are ignored, as RFC 9530 allows.
func checkDigest(lines []string, content []byte) error {
	want, ok, err := parseDigest(lines)
	if err != nil || !ok {
		return err
	}
	if got := sha256.Sum256(content); got != want {
		return failf(CodeDigestMismatch, "the content received, %d bytes, has another sha-256 than the header Content-Digest", len(content))
	}
	return nil
}

// parseDigest finds the sha-256 in a Content-Digest header.
func parseDigest(lines []string) (sum [sha256.Size]byte, ok bool, err error) {
	members, err := parseMembers("Content-Digest", lines)
	if err != nil {
		return sum, false, err
	}
	for _, m := range members {
		raw, isBytes := cutColons(m.value)
		if !isBytes {
			return sum, false, argument("Content-Digest", "the value of %q is not a byte sequence between colons", m.key)
		}
		if m.key != digestName {
			continue
		}
		b, err := base64.StdEncoding.Strict().DecodeString(raw)
		if err != nil || len(b) != sha256.Size {
			return sum, false, argument("Content-Digest", "the sha-256 is not %d bytes in base64", sha256.Size)
		}
		// The last of several members with one key counts (RFC 8941 3.2).
		copy(sum[:], b)
		ok = true
	}
	return sum, ok, nil
}

// wantsDigest reports whether Want-Content-Digest asks for sha-256: with a
// preference of 1 to 10, 0 being a refusal (RFC 9530, section 4).
func wantsDigest(lines []string) (bool, error) {
	members, err := parseMembers("Want-Content-Digest", lines)
	if err != nil {
		return false, err
	}
	wanted := false
	for _, m := range members {
		n, err := strconv.Atoi(m.value)
		if err != nil || !isDigits(m.value) || n > 10 {
			return false, argument("Want-Content-Digest", "the preference of %q is not 0 to 10", m.key)
		}
		if m.key == digestName {
			wanted = n > 0
		}
	}
	return wanted, nil
}

// member is one member of a structured-field dictionary, its parameters left
// out.
type member struct{ key, value string }

// parseMembers reads a dictionary (RFC 8941, section 3.2) whose values hold
// neither strings nor lists, which is all that the digest headers use.
func parseMembers(field string, lines []string) ([]member, error) {
	value := strings.TrimSpace(strings.Join(lines, ","))
	if value == "" {
		return nil, nil
	}
	var members []member
	for part := range strings.SplitSeq(value, ",") {
		part, _, _ = strings.Cut(part, ";")
		key, val, ok := strings.Cut(strings.Trim(part, " \t"), "=")
		if !ok || !isMemberKey(key) || val == "" {
			return nil, argument(field, "not a dictionary such as sha-256=…")
		}
		members = append(members, member{key, val})
	}
	return members, nil
}

func isMemberKey(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		lower := c >= 'a' && c <= 'z'
		other := c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
		if !lower && c != '*' && (i == 0 || !other) {
			return false
		}
	}
	return s != ""
}

func cutColons(s string) (string, bool) {
	if len(s) < 2 || s[0] != ':' || s[len(s)-1] != ':' {
		return "", false
	}
	return s[1 : len(s)-1], true
}
