package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// register is the state of one key: its value, "" if it is absent, and what
// keeps the search for an order short without excluding any.
//
// There is one place for each write whose version is known. And there is one
// for each of those who only saw a value, or saw that there was none, in the
// order of their calls: of two such operations the one called first can always
// go first, for it may move up to just before the other, where the state is the
// same and its call lies behind it. And of two deletes without a condition that
// removed something, one that was called first and returned first can go first:
// they may change places. So may two lost writes of one kind that nobody saw.
type register struct {
	value string
	// place is how many writes of known version there were.
	place int
	// reads is how many operations saw the value so far.
	reads int
	// misses is how many operations saw that there was none, ever.
	misses int
	// deletes are those done, of the first maxDeletes.
	deletes deleteSet
	// lost is how many of the lost writes that nobody saw were made, by kind.
	lost [lostKinds]int
}

// lostKinds are puts, writes that only create, and deletes, none with a version
// as a condition.
const lostKinds = 3

// lostKind returns the kind of a lost write, -1 if it is of none.
func lostKind(op *Op) int {
	switch {
	case op.joined || !op.Unknown || op.IfVersion != "" || op.Kind == Get:
		return -1
	case op.Kind == Delete:
		return 2
	case op.Kind == GetOrSet || op.IfAbsent:
		return 1
	}
	return 0
}

// maxDeletes bounds the deletes of one key whose order is fixed in advance as far
// as that excludes nothing.
const maxDeletes = 256

// deleteSet is a set of deletes by their number.
type deleteSet [maxDeletes / 64]uint64

func (s *deleteSet) add(n int) { s[n/64] |= 1 << (n % 64) }

func (s *deleteSet) holds(all *deleteSet) bool {
	for i := range s {
		if all[i]&^s[i] != 0 {
			return false
		}
	}
	return true
}

// book says what is known of the values of one key, each of which is written by
// one operation. (Two keys may have values of the same version.)
type book struct {
	// version of a value, as far as somebody has told.
	version map[string]string
	// known versions.
	known map[string]bool
	// place of a value with a version among those, from 1.
	place map[string]int
	// reads is how many operations saw a value.
	reads map[string]int
	// turn of an operation among those that saw the same, from 0, by its call.
	turn map[int]int
	// number of an unconditional delete that removed something, and those that
	// go before it.
	number map[int]int
	before []deleteSet
	// of is the value of a version.
	of map[string]string
}

// newBook learns from those who saw a value. A value nobody saw may have any
// version that no other value has.
func newBook(ops []Op) book {
	b := book{
		version: map[string]string{}, known: map[string]bool{}, of: map[string]string{},
		place: map[string]int{}, reads: map[string]int{}, turn: map[int]int{}, number: map[int]int{},
	}
	var values []string
	for i := range ops {
		op := &ops[i]
		value := op.Value
		if op.Seen != "" {
			value = op.Seen
		}
		if op.Version == "" || op.Unknown || op.Mismatch || value == "" {
			continue
		}
		if b.version[value] == "" {
			values = append(values, value)
		}
		b.version[value], b.known[op.Version], b.of[op.Version] = op.Version, true, value
	}
	slices.SortFunc(values, func(x, y string) int { return cmp.Compare(b.version[x], b.version[y]) })
	for i, value := range values {
		b.place[value] = i + 1
	}
	b.takeTurns(ops)
	b.lineUp(ops)
	return b
}

// lineUp numbers the deletes and says which go before which.
func (b *book) lineUp(ops []Op) {
	var deletes []*Op
	for i := range ops {
		op := &ops[i]
		plain := !op.joined && op.Kind == Delete && op.IfVersion == "" && op.Found && !op.Unknown && !op.Mismatch
		if plain && len(deletes) < maxDeletes {
			b.number[op.id] = len(deletes)
			deletes = append(deletes, op)
		}
	}
	b.before = make([]deleteSet, len(deletes))
	for i, op := range deletes {
		for j, other := range deletes {
			first := cmp.Or(cmp.Compare(other.Call, op.Call), cmp.Compare(other.Return, op.Return), cmp.Compare(j, i)) < 0
			if first && other.Return <= op.Return {
				b.before[i].add(j)
			}
		}
	}
}

func (b *book) takeTurns(ops []Op) {
	sorted := slices.Clone(ops)
	slices.SortStableFunc(sorted, func(x, y Op) int { return cmp.Compare(x.Call, y.Call) })
	for i := range sorted {
		op := &sorted[i]
		if value, ok := b.saw(op); ok {
			b.turn[op.id] = b.reads[value]
			b.reads[value]++
		}
	}
	var lost [lostKinds]int
	for i := range sorted {
		op := &sorted[i]
		if kind := lostKind(op); kind >= 0 && !b.seen(op.Value) {
			b.turn[op.id] = lost[kind]
			lost[kind]++
		}
	}
}

// seen reports whether anybody told of the value, with its version or without.
func (b *book) seen(value string) bool {
	return value != "" && (b.place[value] != 0 || b.reads[value] != 0)
}

// saw returns the value that an operation found, "" for none, if it left things
// as they were and what it found is known.
func (b *book) saw(op *Op) (value string, ok bool) {
	switch {
	case op.Unknown || op.joined:
		return "", false
	case op.Mismatch && op.Version == "":
		return "", !op.IfAbsent && !op.VersionUnset
	case op.Mismatch:
		value = b.of[op.Version]
		return value, value != ""
	case op.Kind == Delete:
		return "", !op.Found && !op.FoundUnset
	}
	return op.Seen, op.Kind == Get || op.Seen != ""
}

// must reports whether the value certainly has the version, may whether it can.
func (b *book) must(value, version string) bool { return value != "" && b.version[value] == version }

func (b *book) may(value, version string) bool {
	return b.must(value, version) || value != "" && b.version[value] == "" && !b.known[version]
}

// model is a register with conditional writes.
func model(b *book) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			op := input.(Op)
			return step(state.(register), &op, b)
		},
		DescribeOperation: func(input, _ any) string { return describe(input.(Op)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// step says whether an operation with its outcome fits the state, and what it
// leaves behind.
func step(r register, op *Op, b *book) (bool, register) {
	found := r.value != ""
	may := !(op.IfAbsent && found) && (op.IfVersion == "" || b.may(r.value, op.IfVersion))
	switch {
	case op.Unknown:
		return r.lose(op, b, may && !(op.Kind == GetOrSet && found))
	case op.Kind == Get:
		return r.read(op, b, op.Seen == r.value && (!found || op.VersionUnset || b.may(r.value, op.Version)))
	case op.Mismatch:
		return r.read(op, b, op.refused(r.value, b))
	case !may:
		return false, r
	case op.Kind == GetOrSet && op.Seen != "":
		return r.read(op, b, op.Seen == r.value)
	case op.Kind == GetOrSet && found, op.Kind != GetOrSet && !op.FoundUnset && op.Found != found:
		return false, r
	case op.Kind == Delete && !found:
		return r.read(op, b, true)
	}
	return r.write(op, b)
}

// read leaves things as they are, if it fits and is the operation's turn.
func (r register) read(op *Op, b *book, fits bool) (bool, register) {
	value, ok := b.saw(op)
	if !ok {
		return fits, r
	}
	count := &r.reads
	if value == "" {
		count = &r.misses
	}
	fits = fits && b.turn[op.id] == *count
	*count++
	return fits, r
}

// lose carries out a lost write, or finds that it has no effect.
func (r register) lose(op *Op, b *book, effect bool) (bool, register) {
	ok, next := !b.seen(op.Value), r // what somebody saw was written
	if effect {
		ok, next = r.write(op, b)
	}
	if kind := lostKind(op); kind >= 0 && !b.seen(op.Value) {
		ok = ok && b.turn[op.id] == r.lost[kind]
		next.lost[kind]++
	}
	return ok, next
}

// write replaces the value; a delete has none.
func (r register) write(op *Op, b *book) (bool, register) {
	if r.value != "" && r.reads < b.reads[r.value] || b.contradicts(op) {
		return false, r
	}
	next := register{value: op.Value, place: r.place, misses: r.misses, deletes: r.deletes, lost: r.lost}
	if n, ok := b.number[op.id]; ok {
		next.deletes.add(n)
		return r.deletes.holds(&b.before[n]), next
	}
	if place := b.place[op.Value]; place != 0 {
		next.place++
		return next.place == place, next
	}
	return true, next
}

// contradicts reports whether a write was given another version than its value
// was seen with.
func (b *book) contradicts(op *Op) bool {
	return !op.Unknown && op.Value != "" && op.Version != "" && b.version[op.Value] != op.Version
}

// refused reports whether the condition fails on the state, and what the caller
// was told of the state is right.
func (op *Op) refused(state string, b *book) bool {
	must := !(op.IfAbsent && state != "") && (op.IfVersion == "" || b.must(state, op.IfVersion))
	if must || op.VersionUnset {
		return !must
	}
	if op.Version == "" {
		return state == "" || op.IfAbsent
	}
	return b.may(state, op.Version)
}
