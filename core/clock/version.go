package clock

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// HLC is a hybrid logical timestamp: Unix milliseconds in the upper 48 bits, a
// logical counter in the lower 16. It only moves forward, whatever the wall
// clock does. After Kulkarni, Demirbas et al., "Logical Physical Clocks"
// (2014); the counter carries into the milliseconds when it overflows.
type HLC uint64

// At returns the first timestamp of a millisecond.
func At(unixMilli int64) HLC { return HLC(uint64(max(unixMilli, 0)) << 16) }

// Milli returns the Unix milliseconds of the timestamp.
func (h HLC) Milli() int64 { return int64(h >> 16) }

// Next returns a timestamp greater than last and not behind the wall clock:
// versions stay ordered when a clock jumps back.
func Next(last HLC, now Instant) HLC { return max(last+1, At(now.Milli())) }

// Version orders the writes of one key: by hybrid time, then by writer. The
// zero Version means absent and is below every other.
type Version struct {
	// Time is the hybrid time of the write.
	Time HLC
	// Writer is the instance that stamped it, to break ties between shards
	// whose clocks do not know each other.
	Writer uint32
}

// VersionBytes is the length of a version in binary form.
const VersionBytes = 12

// IsZero reports whether v means absent.
func (v Version) IsZero() bool { return v == Version{} }

// Compare orders versions; the greater one wins.
func (v Version) Compare(o Version) int {
	if c := cmp.Compare(v.Time, o.Time); c != 0 {
		return c
	}
	return cmp.Compare(v.Writer, o.Writer)
}

// Append adds the binary form, which sorts as versions do.
func (v Version) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(v.Time))
	return binary.BigEndian.AppendUint32(b, v.Writer)
}

// String returns the public form: 24 hexadecimal digits that sort as versions
// do. Callers treat it as opaque.
func (v Version) String() string {
	var b [VersionBytes]byte
	return hex.EncodeToString(v.Append(b[:0]))
}

// ParseVersion reads the public form.
func ParseVersion(s string) (Version, error) {
	if len(s) != 2*VersionBytes {
		return Version{}, fmt.Errorf("version %q has %d characters, not %d", s, len(s), 2*VersionBytes)
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return Version{}, fmt.Errorf("version %q is not hexadecimal", s)
	}
	return Version{Time: HLC(binary.BigEndian.Uint64(b)), Writer: binary.BigEndian.Uint32(b[8:])}, nil
}
