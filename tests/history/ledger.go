package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Batch is an atomic batch: its operations, puts and deletes of different keys,
// happen at one moment or not at all.
type Batch struct {
	Client int
	// Operation is its name, empty if it has none. A batch that was sent more
	// than once under its name is one Batch, from the first call to the first
	// return that told the outcome.
	Operation string
	Ops       []Op
	// Call and Return are times on the clock of the operations.
	Call, Return int64
	// Unknown says that its client does not know the outcome, Void that it is
	// known not to have been carried out, for no reason that the keys give.
	Unknown, Void bool
	// Mismatch says that conditions did not hold: those of the operations that
	// are Mismatch as well.
	Mismatch bool
}

// AtomicStore is a Store with atomic batches.
type AtomicStore interface {
	Store
	// AtomicBatch fills in the outcome of a batch.
	AtomicBatch(ctx context.Context, b *Batch)
}

// AddBatch records a finished batch. One that was refused tells, for each failed
// condition, what its key held at some moment: that is recorded.
func (r *Recorder) AddBatch(b Batch) {
	switch {
	case b.Void:
		return
	case b.Mismatch:
		for _, op := range b.Ops {
			if op.Mismatch {
				op.Client, op.Call, op.Return = b.Client, b.Call, b.Return
				r.Add(op)
			}
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, b)
}

// Batches returns the batches recorded.
func (r *Recorder) Batches() []Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Batch(nil), r.batches...)
}

// CheckLedger looks for one order of the operations on all keys, of the batches
// and of the surveys, that explains them and respects that what returned before
// another's call goes first: strict serializability. It is for short histories of
// at most 8 keys, for at most limit.
func CheckLedger(ops []Op, batches []Batch, surveys []Survey, limit time.Duration) Verdict {
	all := append([]Op(nil), ops...)
	batches = append([]Batch(nil), batches...)
	for i := range batches {
		b := &batches[i]
		for _, op := range b.Ops {
			op.Client, op.Call, op.Return, op.Unknown, op.joined = b.Client, b.Call, b.Return, b.Unknown, true
			all = append(all, op)
		}
	}
	all = numbered(all)
	rest := all[len(ops):]
	for i := range batches {
		b := &batches[i]
		b.Ops, rest = rest[:len(b.Ops)], rest[len(b.Ops):]
	}
	index := keysOf(all, surveys)
	v := Verdict{Checked: len(ops) + len(batches) + len(surveys), model: jointModel(index, all)}
	if len(index) > maxTogether {
		v.Undecided = true
		return v
	}
	history := operations(all[:len(ops)])
	for i := range batches {
		b := &batches[i]
		o := porcupine.Operation{ClientId: b.Client, Input: *b, Output: *b, Call: b.Call, Return: b.Return}
		if b.Unknown {
			o.Return = math.MaxInt64
		}
		history = append(history, o)
	}
	for _, s := range surveys {
		history = append(history, porcupine.Operation{ClientId: s.Client, Input: s, Output: s, Call: s.Call, Return: s.Return})
	}
	result, info := porcupine.CheckOperationsVerbose(v.model, distinctClients(history), limit)
	switch result {
	case porcupine.Illegal:
		v.Key, v.info = "all keys together", info
	case porcupine.Unknown:
		v.Undecided = true
	}
	return v
}

// step carries a batch out, if it fits the state. One of unknown outcome has no
// effect where a condition does not hold.
func (b *Batch) step(now *joint, index map[string]int, books []book) bool {
	effect := true
	for i := range b.Ops {
		op := &b.Ops[i]
		at := index[op.Key]
		value := now[at].value
		effect = effect && !(op.IfAbsent && value != "") && (op.IfVersion == "" || books[at].may(value, op.IfVersion))
	}
	if !effect && !b.Unknown {
		return false
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		at := index[op.Key]
		var ok bool
		switch {
		case !effect:
			ok = !books[at].seen(op.Value) // what somebody saw was written
		case b.Unknown:
			ok, now[at] = now[at].write(op, &books[at])
		default:
			ok, now[at] = step(now[at], op, &books[at])
		}
		if !ok {
			return false
		}
	}
	return true
}

func (b *Batch) describe() string {
	var parts []string
	for i := range b.Ops {
		parts = append(parts, b.Ops[i].Key+": "+describe(b.Ops[i]))
	}
	return fmt.Sprintf("batch %s of %s", b.Operation, strings.Join(parts, "; "))
}

// StepAtomic lets a client do one random thing with some of the keys, an atomic
// batch among them.
func (w *Workload) StepAtomic(ctx context.Context, client int, s AtomicStore, keys []string) {
	if w.Draw(100) < 45 {
		w.Atomic(ctx, client, s, keys)
		return
	}
	op := w.operation(client, keys[w.Draw(len(keys))])
	op.Call = w.Now()
	s.Do(ctx, &op)
	w.finish(op)
}

// Atomic lets a client send a random atomic batch. One in three has a name; of
// those many are sent twice.
func (w *Workload) Atomic(ctx context.Context, client int, s AtomicStore, keys []string) {
	b := Batch{Client: client}
	chosen := w.some(keys, 2+w.Draw(3))
	for w.Wide != nil && !w.Wide(chosen) {
		chosen = w.some(keys, 2+w.Draw(3))
	}
	for _, key := range chosen {
		op := w.operation(client, key)
		for op.Kind != Put && op.Kind != Delete || (op.IfAbsent || op.IfVersion != "") && w.Draw(3) > 0 {
			op = w.operation(client, key)
		}
		b.Ops = append(b.Ops, op)
	}
	if w.Draw(3) == 0 {
		b.Operation = fmt.Sprintf("op-%d", w.Draw(1<<30))
	}
	b.Call = w.Now()
	s.AtomicBatch(ctx, &b)
	b.Return = w.Now()
	w.tally("atomic", !b.Unknown && !b.Void)
	if b.Operation != "" && w.Draw(2) == 0 {
		b = w.repeat(ctx, s, b)
	}
	if !b.Unknown && !b.Void {
		for _, op := range b.Ops {
			if op.Version != "" {
				w.mu.Lock()
				w.seen[op.Key] = op.Version
				w.mu.Unlock()
			}
		}
	}
	w.AddBatch(b)
}

// repeat sends a batch again under its name, and makes one of both. An outcome
// that was told stands: another one is no history that has an explanation.
func (w *Workload) repeat(ctx context.Context, s AtomicStore, b Batch) Batch {
	again := b
	again.Unknown, again.Void, again.Mismatch = false, false, false
	again.Ops = nil
	for _, op := range b.Ops {
		again.Ops = append(again.Ops, Op{
			Client: op.Client, Kind: op.Kind, Key: op.Key, Value: op.Value, IfAbsent: op.IfAbsent, IfVersion: op.IfVersion,
		})
	}
	s.AtomicBatch(ctx, &again)
	again.Return = w.Now()
	w.tally("repeated", !again.Unknown && !again.Void)
	switch {
	case again.Void || again.Unknown:
		b.Unknown = b.Unknown || b.Void && again.Unknown
		b.Void = b.Void && again.Void
		return b
	case b.Void || b.Unknown:
		return again // from the first call to the second return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if again.describe() != b.describe() || again.Mismatch != b.Mismatch {
		w.contradictions = append(w.contradictions, fmt.Sprintf("first %s, then %s", b.describe(), again.describe()))
	}
	return b
}

// Contradictions returns the batches that were told two outcomes.
func (w *Workload) Contradictions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.contradictions...)
}

// Describe lists a history in the order of calls, for whoever looks for the
// reason why it has no explanation.
func Describe(ops []Op, batches []Batch) string {
	type line struct {
		call int64
		text string
	}
	var lines []line
	for i := range ops {
		op := &ops[i]
		lines = append(lines, line{op.Call, fmt.Sprintf("%d to %d client %d: %s: %s", op.Call, op.Return, op.Client, op.Key, describe(*op))})
	}
	for i := range batches {
		b := &batches[i]
		lines = append(lines, line{b.Call, fmt.Sprintf("%d to %d client %d: %s unknown %v", b.Call, b.Return, b.Client, b.describe(), b.Unknown)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.call, b.call) })
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.text + "\n")
	}
	return out.String()
}

// StepBatches lets a client send an atomic batch, or look at all keys at once.
func (w *Workload) StepBatches(ctx context.Context, client int, s AtomicStore, keys []string) {
	if w.Draw(2) == 0 {
		w.Atomic(ctx, client, s, keys)
		return
	}
	w.survey(client, Survey{Keys: keys}, "look", func(v *Survey) bool { return s.Look(ctx, v) })
}
