package oracle

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// redisKeys are keys of every type; each is made of the seed and its number
// alone.
type redisKeys struct {
	seed  uint64
	count int
	// base is the moment that expiries count from.
	base time.Time
}

// redisKey is one of them.
type redisKey struct {
	key    string
	expiry time.Time
	// One of these is the value. Hashes, and the entries of a stream, are field
	// and value by turns.
	text    string
	hash    []string
	list    []string
	set     []string
	sorted  []redis.Z
	entries [][]string
}

// at makes the key of a number.
func (r redisKeys) at(i int) redisKey {
	rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
	k := redisKey{key: fmt.Sprintf("%s:{%d}:%06d", []string{"user", "Cart", "é"}[i%3], rng.IntN(100), i)}
	if i%20 == 7 {
		// No text, and a percent sign that a name for it must not be taken for.
		k.key = fmt.Sprintf("\xff%%\x00%d\xc3", i)
	}
	switch n := i % 50; {
	case n == 11:
		k.expiry = r.base.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
	case n > 40:
		k.expiry = r.base.Add(time.Hour + time.Duration(rng.IntN(1_000_000))*time.Second)
	}
	switch kind := rng.IntN(10); kind {
	case 0:
		k.hash = pairs(rng, 1+rng.IntN(6), i%40 == 0)
	case 1:
		k.list = words(rng, 1+rng.IntN(8))
	case 2:
		k.set = words(rng, 1+rng.IntN(8))
	case 3:
		k.sorted = scores(rng, 1+rng.IntN(6))
	case 4:
		for range 1 + rng.IntN(3) {
			k.entries = append(k.entries, pairs(rng, 1+rng.IntN(3), false))
		}
	default:
		k.text = r.blob(rng, i)
	}
	return k
}

// blob is a string of any bytes: now and then empty, long, or longer than what
// the service keeps in its log.
func (r redisKeys) blob(rng *rand.Rand, i int) string {
	size := rng.IntN(120)
	switch {
	case i%4001 == 5:
		size = 300 << 10
	case i%501 == 5:
		size = 10 << 10
	}
	b := make([]byte, size)
	for j := range b {
		b[j] = byte(rng.Uint32())
	}
	return string(b)
}

// words are different strings, some of them no text.
func words(rng *rand.Rand, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%d \"<ü>\" %d", i, rng.IntN(1000))
		if rng.IntN(10) == 0 {
			out[i] += "\xff"
		}
	}
	return out
}

// pairs are different names, each followed by a value.
func pairs(rng *rand.Rand, n int, binaryName bool) []string {
	var out []string
	for i, value := range words(rng, n) {
		name := fmt.Sprintf("f%d", i)
		if binaryName && i == 0 {
			name += "\xfe"
		}
		out = append(out, name, value)
	}
	return out
}

// scores are members in the order of their scores.
func scores(rng *rand.Rand, n int) []redis.Z {
	out := make([]redis.Z, n)
	score := float64(-rng.IntN(5))
	for i, member := range words(rng, n) {
		out[i] = redis.Z{Member: member, Score: score}
		score += 0.25 * float64(1+rng.IntN(8))
	}
	if rng.IntN(10) == 0 {
		out[0].Score = math.Inf(-1)
	}
	return out
}

// fill puts the keys into a server.
func (r redisKeys) fill(ctx context.Context, address string) error {
	options, err := redis.ParseURL(address)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	const portion = 2000
	for from := 0; from < r.count; from += portion {
		pipe := client.Pipeline()
		for i := from; i < min(from+portion, r.count); i++ {
			k := r.at(i)
			k.write(ctx, pipe)
			if !k.expiry.IsZero() {
				pipe.PExpireAt(ctx, k.key, k.expiry)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (k *redisKey) write(ctx context.Context, pipe redis.Pipeliner) {
	switch {
	case k.hash != nil:
		pipe.HSet(ctx, k.key, k.hash)
	case k.list != nil:
		pipe.RPush(ctx, k.key, anys(k.list)...)
	case k.set != nil:
		pipe.SAdd(ctx, k.key, anys(k.set)...)
	case k.sorted != nil:
		pipe.ZAdd(ctx, k.key, k.sorted...)
	case k.entries != nil:
		for i, values := range k.entries {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: k.key, ID: streamID(i), Values: values})
		}
	default:
		pipe.Set(ctx, k.key, k.text, 0)
	}
}

func streamID(i int) string { return fmt.Sprintf("%d-%d", 1_700_000_000_000+i, i) }

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// want is what a tree must hold, with binary keys in percent form.
func (r redisKeys) want() content {
	out := make(content, r.count)
	for i := range r.count {
		k := r.at(i)
		// The clock of Redis has milliseconds.
		e := entry{expiry: k.expiry.Truncate(time.Millisecond)}
		if k.plain() {
			e.bytes = func() []byte { return []byte(r.at(i).text) }
		} else {
			e.object = func() any { k := r.at(i); return k.object() }
		}
		out[percentForm(k.key)] = e
	}
	return out
}

// percentForm writes what is no text, and the percent sign, as %XX.
func percentForm(key string) string {
	var b strings.Builder
	for _, r := range []byte(key) {
		if r == '%' || r >= 0x80 && !utf8.ValidString(key) {
			fmt.Fprintf(&b, "%%%02X", r)
		} else {
			b.WriteByte(r)
		}
	}
	return b.String()
}

func (k *redisKey) plain() bool {
	return k.hash == nil && k.list == nil && k.set == nil && k.sorted == nil && k.entries == nil
}

// object is the documented JSON form of a collection.
func (k *redisKey) object() any {
	switch {
	case k.hash != nil:
		return fieldsForm(sortedPairs(k.hash))
	case k.list != nil:
		return texts(k.list)
	case k.set != nil:
		return texts(slices.Sorted(slices.Values(k.set)))
	case k.sorted != nil:
		var out []any
		for _, z := range k.sorted {
			score := any(json.Number(fmt.Sprint(z.Score)))
			if math.IsInf(z.Score, -1) {
				score = "-inf"
			}
			out = append(out, map[string]any{"member": textForm(z.Member.(string)), "score": score})
		}
		return out
	}
	var out []any
	for i, values := range k.entries {
		out = append(out, map[string]any{"id": streamID(i), "fields": fieldsForm(values)})
	}
	return out
}

func sortedPairs(flat []string) []string {
	var names [][2]string
	for i := 0; i < len(flat); i += 2 {
		names = append(names, [2]string{flat[i], flat[i+1]})
	}
	slices.SortFunc(names, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	var out []string
	for _, n := range names {
		out = append(out, n[0], n[1])
	}
	return out
}

// fieldsForm is an object, or a list of pairs if a name is no text.
func fieldsForm(flat []string) any {
	object, list := map[string]any{}, []any{}
	text := true
	for i := 0; i < len(flat); i += 2 {
		object[flat[i]] = textForm(flat[i+1])
		list = append(list, []any{textForm(flat[i]), textForm(flat[i+1])})
		text = text && utf8.ValidString(flat[i])
	}
	if text {
		return object
	}
	return list
}

func texts(list []string) any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = textForm(s)
	}
	return out
}

func textForm(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString([]byte(s))}
}
