package azuretable

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/store"
)

// stored turns what is sent of a row into what the service sends back.
func stored(partition string, op store.Op, etag string) string {
	sent := string(appendEntity(nil, partition, op))
	quoted, err := json.Marshal(etag)
	if err != nil {
		panic(err)
	}
	return `{"odata.metadata":"http://h/$metadata#t/@Element","odata.etag":` + string(quoted) + "," +
		`"Timestamp":"2030-01-01T00:00:00Z",` + sent[1:]
}

const someTag = `W/"datetime'2030-01-01T00%3A00%3A00.0000000Z'"`

func keys() *rapid.Generator[string] { return rapid.StringMatching(`[0-9A-Za-z~._-]{1,40}`) }

// payload draws sizes around the bounds of properties as well as small ones.
func payload(t *rapid.T) []byte {
	size := rapid.OneOf(
		rapid.IntRange(0, 300), rapid.IntRange(0, 300), rapid.IntRange(0, 300),
		rapid.IntRange(chunkBytes-2, chunkBytes+2),
	).Draw(t, "size")
	seed := rapid.Byte().Draw(t, "seed")
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i)*seed + byte(i>>8)
	}
	return data
}

func TestRowSurvivesItsEntity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partition, key, data := keys().Draw(t, "partition"), keys().Draw(t, "key"), payload(t)
		row, err := decodeEntity([]byte(stored(partition, store.Insert(key, data), someTag)), partition, key)
		if err != nil {
			t.Fatal(err)
		}
		if row.Key != key || row.ETag != someTag || !bytes.Equal(row.Data, data) {
			t.Fatalf("got row %q %q of %d bytes", row.Key, row.ETag, len(row.Data))
		}
	})
}

func TestLargestRowSurvivesItsEntity(t *testing.T) {
	for _, size := range []int{3*chunkBytes - 1, 3 * chunkBytes, 3*chunkBytes + 1, store.MaxRowBytes} {
		data := bytes.Repeat([]byte{0, 0xff, '"', '\\'}, size/4+1)[:size]
		row, err := decodeEntity([]byte(stored("part", store.Insert("key", data), someTag)), "part", "key")
		if err != nil || !bytes.Equal(row.Data, data) {
			t.Fatalf("%d bytes became %d: %v", size, len(row.Data), err)
		}
	}
}

func TestEntityIsJSONWithinTheLimitsOfTheService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := store.Insert(keys().Draw(t, "key"), payload(t))
		sent := appendEntity(nil, "part", op)
		if bound := entitySize("part", op); len(sent) > bound {
			t.Fatalf("entity of %d bytes, bound %d", len(sent), bound)
		}
		var fields map[string]any
		if err := json.Unmarshal(sent, &fields); err != nil {
			t.Fatal(err)
		}
		var whole []byte
		for i := 0; ; i++ {
			text, ok := fields[fmt.Sprintf("P%d", i)].(string)
			if !ok {
				break
			}
			chunk, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(chunk) > 64_000 || len(chunk) == 0 {
				t.Fatalf("property %d of %d bytes: %v", i, len(chunk), err)
			}
			if fields[fmt.Sprintf("P%d@odata.type", i)] != "Edm.Binary" {
				t.Fatalf("property %d is not binary", i)
			}
			whole = append(whole, chunk...)
		}
		if !bytes.Equal(whole, op.Data) || fields["Len"] != float64(len(op.Data)) {
			t.Fatal("the properties do not add up to the payload")
		}
	})
}

func TestDamagedEntityIsCorrupt(t *testing.T) {
	data := bytes.Repeat([]byte("lattice"), 20_000) // three properties
	whole := stored("part", store.Insert("key", data), someTag)
	chunk := func(i int) string {
		part := data[i*chunkBytes : min(len(data), (i+1)*chunkBytes)]
		return fmt.Sprintf(`,"P%d@odata.type":"Edm.Binary","P%d":"%s"`, i, i, base64.StdEncoding.EncodeToString(part))
	}
	for name, damage := range map[string]func(string) string{
		"FirstPropertyMissing":  func(s string) string { return strings.Replace(s, chunk(0), "", 1) },
		"MiddlePropertyMissing": func(s string) string { return strings.Replace(s, chunk(1), "", 1) },
		"LastPropertyMissing":   func(s string) string { return strings.Replace(s, chunk(2), "", 1) },
		"PropertyNull":          func(s string) string { return strings.Replace(s, chunk(1), `,"P1":null`, 1) },
		"PropertyOfAnotherKind": func(s string) string { return strings.Replace(s, chunk(1), `,"P1":["x"]`, 1) },
		"PropertyTooMany":       func(s string) string { return strings.Replace(s, chunk(2), chunk(2)+`,"P3":"AAAA"`, 1) },
		"PropertiesSwapped": func(s string) string {
			return strings.NewReplacer(`"P1":`, `"P2":`, `"P2":`, `"P1":`).Replace(s)
		},
		"PropertyNotBase64": func(s string) string { return strings.Replace(s, `"P2":"`, `"P2":"*`, 1) },
		"CharacterChanged":  func(s string) string { return strings.Replace(s, `"P1":"Y`, `"P1":"*`, 1) },
		"LineBreakInside":   func(s string) string { return strings.Replace(s, `"P2":"dG`, `"P2":"\r\n`, 1) },
		"LengthMissing":     func(s string) string { return strings.Replace(s, `"Len":140000`, `"Other":1`, 1) },
		"LengthText":        func(s string) string { return strings.Replace(s, `"Len":140000`, `"Len":"140000"`, 1) },
		"LengthShort":       func(s string) string { return strings.Replace(s, `"Len":140000`, `"Len":139999`, 1) },
		"LengthLong":        func(s string) string { return strings.Replace(s, `"Len":140000`, `"Len":140003`, 1) },
		"LengthNegative":    func(s string) string { return strings.Replace(s, `"Len":140000`, `"Len":-1`, 1) },
		"LengthHuge":        func(s string) string { return strings.Replace(s, `"Len":140000`, `"Len":2147483647`, 1) },
		"LengthFraction":    func(s string) string { return strings.Replace(s, `"Len":140000`, `"Len":1.4e5`, 1) },
		"NoETag":            func(s string) string { return strings.Replace(s, `odata.etag`, `odata.tag`, 1) },
		"NoKey":             func(s string) string { return strings.Replace(s, `"RowKey"`, `"Key"`, 1) },
		"OtherKey":          func(s string) string { return strings.Replace(s, `"RowKey":"key"`, `"RowKey":"kez"`, 1) },
		"OtherPartition":    func(s string) string { return strings.Replace(s, `"part"`, `"parz"`, 1) },
		"NotAnObject":       func(string) string { return `[]` },
		"NotJSON":           func(string) string { return `<Error/>` },
	} {
		t.Run(name, func(t *testing.T) {
			damaged := damage(whole)
			if damaged == whole {
				t.Fatal("the test damages nothing")
			}
			row, err := decodeEntity([]byte(damaged), "part", "key")
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("got row of %d bytes and %v, want corrupt", len(row.Data), err)
			}
		})
	}
}

func TestEntityThatEndsEarlyIsAskedForAgain(t *testing.T) {
	whole := stored("part", store.Insert("key", []byte("value")), someTag)
	for n := range len(whole) {
		if _, err := decodeEntity([]byte(whole[:n]), "part", "key"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("the first %d bytes: %v, want unavailable", n, err)
		}
	}
}
