package hosts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// frozenFor is longer than the lease of the instances of these tests, with the
// skew that they allow for.
const frozenFor = 1500 * time.Millisecond

// winter is a function that is frozen in the middle of requests, and an instance
// that is awake meanwhile. Both take leases.
type winter struct {
	function *lambda
	awake    *peer
	gate     *tableGate
}

func newWinter(t *testing.T) *winter {
	t.Helper()
	c := newCloud(t, "LATTICE_LEASES=true", "LATTICE_LEASE_DURATION=1s", "LATTICE_MAX_CLOCK_SKEW=100ms",
		"LATTICE_LEASE_CONTENTION_BACKOFF=0s", "LATTICE_TX_TIMEOUT=1s")
	g := c.gate(t)
	return &winter{startLambda(t, c.through(g)...), c.peer(t), g}
}

// during makes a call of the function, freezes it when its call to the storage is
// held, runs meanwhile, and thaws it. The freeze lasts longer than a lease; the
// storage goes on just before it ends.
func (w *winter) during(t *testing.T, h *hold, call func() (answer, error), meanwhile func()) answer {
	t.Helper()
	type result struct {
		answer answer
		err    error
	}
	w.gate.arm(h)
	done := make(chan result, 1)
	go func() {
		a, err := call()
		done <- result{a, err}
	}()
	h.await(t)
	thaw := w.function.freeze(t)
	long := time.After(frozenFor)
	meanwhile()
	<-long
	h.let()
	thaw()
	r := <-done
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, w.function.process.Output())
	}
	return r.answer
}

// held names the two ways to hold a call.
var held = map[string]bool{"before it is applied": false, "after it is applied": true}

// write is a write that was acknowledged, or a value that was read.
type write struct {
	version clock.Version
	value   string
}

// versionOf reads an ETag.
func versionOf(t *testing.T, a answer) clock.Version {
	t.Helper()
	v, err := clock.ParseVersion(strings.Trim(a.header.Get("ETag"), `"`))
	if err != nil {
		t.Fatalf("%s has the ETag %q: %v", a, a.header.Get("ETag"), err)
	}
	return v
}

// chain reads a key and overwrites it a few times, each time under the condition
// that it has not changed: what it returns is the history of the key, without
// gaps. Versions must increase from one to the next.
func (p *peer) chain(t *testing.T, path string) (history []write) {
	t.Helper()
	a := p.insist(t, "GET", path, "", "")
	if a.status != 200 {
		t.Fatalf("read %s: %s", path, a)
	}
	history = append(history, write{versionOf(t, a), a.body})
	for n := 0; n < 3; {
		value := fmt.Sprintf("awake %d", n)
		a := p.insist(t, "PUT", path, "", value, "If-Match", `"`+history[len(history)-1].version.String()+`"`)
		switch a.status {
		case 200:
			history = append(history, write{versionOf(t, a), value})
			n++
		case 412:
			// Somebody else's write, which must be the function's.
			now := p.insist(t, "GET", path, "", "")
			history = append(history, write{versionOf(t, now), now.body})
		default:
			t.Fatalf("overwrite %s: %s", path, a)
		}
	}
	return history
}

// settled checks a key after a freeze: the history, the answer to the frozen
// write, and what both instances read now must be of one piece.
func (w *winter) settled(t *testing.T, path, value string, history []write, a answer) {
	t.Helper()
	now := w.awake.insist(t, "GET", path, "", "")
	if last := history[len(history)-1]; versionOf(t, now) != last.version {
		history = append(history, write{versionOf(t, now), now.body})
	}
	seen := -1
	for i, h := range history {
		if i > 0 && h.version.Compare(history[i-1].version) <= 0 {
			t.Errorf("the version of %q is not above that of %q", h.value, history[i-1].value)
		}
		if h.value == value {
			seen = i
		}
	}
	switch {
	case a.status == 200 && (seen < 0 || history[seen].version != versionOf(t, a)):
		t.Errorf("the frozen write was acknowledged as %s and is not in the history: %+v", a.header.Get("ETag"), history)
	case (a.status == 412 || a.status == 503 && a.field("outcomeUnknown") == "") && seen >= 0:
		t.Errorf("the frozen write was refused with %s and is in the history", a)
	case a.status != 200 && a.status != 412 && a.status != 503:
		t.Errorf("the frozen write was answered with %s", a)
	}
	if after := w.function.call(t, "GET", path, "", ""); after.status != 200 || after.body != now.body || versionOf(t, after) != versionOf(t, now) {
		t.Errorf("the thawed function reads %s, the other one %s", after, now)
	}
	again := w.function.call(t, "PUT", path, "", "thawed")
	if again.status != 200 || versionOf(t, again).Compare(versionOf(t, now)) <= 0 {
		t.Errorf("the thawed function writes %s over %s", again, now)
	}
	if now := w.awake.insist(t, "GET", path, "", ""); now.body != "thawed" {
		t.Errorf("the other instance reads %s", now)
	}
}

// TestLambdaFrozenInTheMiddleOfARequest freezes the function where it hurts: with
// a write of its own on the way to the storage, or the answer on the way back.
func TestLambdaFrozenInTheMiddleOfARequest(t *testing.T) {
	for where, applied := range held {
		t.Run("held "+where, func(t *testing.T) {
			t.Parallel()
			w := newWinter(t)
			holds := func(skip int) *hold { return &hold{matches: transactions, applied: applied, skip: skip} }
			t.Run("put", func(t *testing.T) { w.put(t, "put", holds(0), false) })
			t.Run("conditional put", func(t *testing.T) { w.put(t, "conditional", holds(0), true) })
			t.Run("atomic batch", func(t *testing.T) {
				for skip := range 4 {
					w.atomicBatch(t, fmt.Sprintf("atomic-%d", skip), holds(skip))
				}
			})
			t.Run("bulk chunk", func(t *testing.T) {
				for skip := range 2 {
					w.bulkChunk(t, fmt.Sprintf("bulk-%d", skip), holds(skip))
				}
			})
			t.Run("split", func(t *testing.T) {
				for _, skip := range []int{1, 4} {
					w.split(t, fmt.Sprintf("split-%d", skip), holds(skip))
				}
			})
			t.Run("get", w.heldGet)
			t.Run("leased get", w.leasedGet)
		})
	}
}

func (w *winter) put(t *testing.T, tree string, h *hold, conditional bool) {
	path := "/v1/trees/" + tree + "/keys/k"
	first := w.function.call(t, "PUT", path, "", "first")
	if first.status != 201 {
		t.Fatalf("put: %s", first)
	}
	var headers []string
	if conditional {
		headers = []string{"if-match", first.header.Get("ETag")}
	}
	var history []write
	a := w.during(t, h,
		func() (answer, error) { return w.function.try("PUT", path, "", "frozen", headers...) },
		func() { history = w.awake.chain(t, path) })
	if conditional && !h.applied && a.status == 200 {
		t.Errorf("a condition that did not hold any more was taken for met: %s", a)
	}
	w.settled(t, path, "frozen", history, a)
}

// batchOf sets keys of all shards to one value, as one, each under the condition
// that it has the version given; no versions are no conditions.
func batchOf(value string, versions []string) string {
	var ops []string
	for n := range 8 {
		condition := ""
		if versions != nil {
			condition = fmt.Sprintf(`,"ifVersion":%q`, versions[n])
		}
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%d","text":%q%s}`, n, value, condition))
	}
	return `{"atomic":true,"operations":[` + strings.Join(ops, ",") + `]}`
}

// keysOfBatch asks for the keys of batchOf.
const keysOfBatch = `{"keys":["k0","k1","k2","k3","k4","k5","k6","k7"]}`

// oneValue returns the value of the keys of batchOf, which must be the same, and
// their versions.
func oneValue(t *testing.T, a answer) (value string, versions []string) {
	t.Helper()
	var got struct {
		Entries []struct{ Text, Version string }
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || len(got.Entries) != 8 {
		t.Fatalf("the keys of the batch: %s, %v", a, err)
	}
	for _, e := range got.Entries {
		if e.Text != got.Entries[0].Text {
			t.Fatalf("half a batch: %s", a)
		}
		versions = append(versions, e.Version)
	}
	return got.Entries[0].Text, versions
}

// atomicBatch freezes a batch over all shards. The other instance overwrites what
// it reads, under the condition that it has not changed: the values it met are the
// history, without gaps.
func (w *winter) atomicBatch(t *testing.T, tree string, h *hold) {
	path := "/v1/trees/" + tree
	if a := w.function.call(t, "POST", path+"/batch", "", batchOf("first", nil)); a.status != 200 {
		t.Fatalf("batch: %s", a)
	}
	var history []string
	read := func() []string {
		value, versions := oneValue(t, w.awake.insist(t, "POST", path+"/batch-get", "as=text", keysOfBatch))
		if len(history) == 0 || history[len(history)-1] != value {
			history = append(history, value)
		}
		return versions
	}
	a := w.during(t, h,
		func() (answer, error) { return w.function.try("POST", path+"/batch", "", batchOf("frozen", nil)) },
		func() {
			for {
				a := w.awake.insist(t, "POST", path+"/batch", "", batchOf("awake", read()))
				if a.status == 200 {
					break
				}
				if a.status != 412 {
					t.Fatalf("batch of the other instance: %s", a)
				}
			}
			history = append(history, "awake")
		})
	read()
	now := history[len(history)-1]
	if got, _ := oneValue(t, w.function.call(t, "POST", path+"/batch-get", "as=text", keysOfBatch)); got != now {
		t.Errorf("%s: the thawed function reads %q, the other one %q", tree, got, now)
	}
	times := 0
	for _, value := range history {
		if value == "frozen" {
			times++
		}
	}
	refused := a.status == 412 || a.status == 503 && a.field("outcomeUnknown") == ""
	switch {
	case a.status != 200 && a.status != 412 && a.status != 503:
		t.Errorf("%s: the frozen batch was answered with %s", tree, a)
	case times > 1 || a.status == 200 && times != 1 || refused && times != 0:
		t.Errorf("%s: the frozen batch was answered with %s and is %d times in the history %q", tree, a, times, history)
	}
}

func (w *winter) bulkChunk(t *testing.T, tree string, h *hold) {
	load := "/v1/trees/" + tree + "/bulk-loads/op"
	ndjson := []string{"content-type", "application/x-ndjson"}
	if a := w.function.call(t, "PUT", load, "", ""); a.status != 201 {
		t.Fatalf("begin: %s", a)
	}
	var acknowledged string
	a := w.during(t, h,
		func() (answer, error) { return w.function.try("PUT", load+"/chunks/0", "", chunkOf(0, 400), ndjson...) },
		func() {
			a := w.awake.insist(t, "PUT", load+"/chunks/0", "", chunkOf(0, 400), ndjson...)
			if a.status != 200 {
				t.Fatalf("%s: the chunk by the other instance: %s", tree, a)
			}
			acknowledged = a.body
		})
	if a.status != 200 && a.status != 503 || a.status == 200 && a.body != acknowledged {
		t.Errorf("%s: the frozen chunk was answered with %s, the other one with %s", tree, a, acknowledged)
	}
	if a := w.function.call(t, "PUT", load+"/chunks/1", "", chunkOf(400, 500), ndjson...); a.status != 200 {
		t.Fatalf("%s: the next chunk: %s", tree, a)
	}
	if a := w.awake.insist(t, "POST", load+"/commit", "", ""); a.status != 200 || a.field("totalLiveKeys") != "500" {
		t.Fatalf("%s: commit: %s", tree, a)
	}
	for _, i := range []interface {
		call(*testing.T, string, string, string, string, ...string) answer
	}{w.function, w.awake} {
		if a := i.call(t, "GET", "/v1/trees/"+tree+"/count", "", ""); a.field("count") != "500" {
			t.Errorf("%s: count: %s", tree, a)
		}
	}
}

// split freezes a tick in the middle of a split, which the other instance carries
// on while it writes.
func (w *winter) split(t *testing.T, tree string, h *hold) {
	path := "/v1/trees/" + tree
	if a := w.function.call(t, "PUT", path, "", `{"shardCount":1}`); a.status != 201 {
		t.Fatalf("create: %s", a)
	}
	const keys = 60
	var ops []string
	for n := range keys {
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":"%02d","text":"first"}`, n))
	}
	if a := w.function.call(t, "POST", path+"/batch", "", `{"operations":[`+strings.Join(ops, ",")+`]}`); a.status != 200 {
		t.Fatalf("fill: %s", a)
	}
	// The shard is nobody's when the split begins.
	if a := w.function.call(t, "POST", path+"/reshard", "", `{"shardCount":2}`); a.status != 202 {
		t.Fatalf("reshard: %s", a)
	}
	written := map[string]string{}
	complete := func() bool {
		return strings.Contains(w.awake.insist(t, "GET", path+"/reshard", "", "").body, `"complete":true`)
	}
	overwrite := func(n int) {
		key, value := fmt.Sprintf("%02d", n%keys), fmt.Sprintf("awake %d", n)
		if a := w.awake.insist(t, "PUT", path+"/keys/"+key, "", value); a.status != 200 {
			t.Fatalf("%s: put meanwhile: %s", tree, a)
		}
		written[key] = value
	}
	a := w.during(t, h,
		func() (answer, error) {
			text, err := w.function.send(json.RawMessage(`{"timer":"migrations"}`))
			return answer{body: text}, err
		},
		func() {
			for n := 0; n < 20 || n < 200 && !complete(); n++ {
				overwrite(n)
				w.awake.tick(t, "migrations")
			}
		})
	if !strings.Contains(a.body, `"timer":"migrations"`) && !strings.Contains(a.body, "answered 503") {
		t.Errorf("%s: the frozen tick returned %s", tree, a)
	}
	for n := 1000; n < 1200 && !complete(); n++ {
		overwrite(n)
		w.function.invoke(t, json.RawMessage(`{"timer":"migrations"}`))
	}
	if !complete() {
		t.Fatalf("%s: the split does not end: %s", tree, w.awake.call(t, "GET", path+"/splits", "", ""))
	}
	for n := range keys {
		key := fmt.Sprintf("%02d", n)
		want := "first"
		if written[key] != "" {
			want = written[key]
		}
		if a := w.function.call(t, "GET", path+"/keys/"+key, "", ""); a.body != want {
			t.Errorf("%s: key %s is %s, last written was %q", tree, key, a, want)
		}
	}
	if a := w.awake.insist(t, "GET", path+"/count", "", ""); a.field("count") != fmt.Sprint(keys) {
		t.Errorf("%s: count: %s", tree, a)
	}
}

// leasedGet freezes the holder of a lease between two requests, and writes in its
// place: the lease must count as lost when it thaws.
func (w *winter) leasedGet(t *testing.T) {
	const path = "/v1/trees/leased/keys/k"
	leased := false
	for n := 0; n < 20 && !leased; n++ {
		if a := w.function.call(t, "PUT", path, "", "first"); a.status != 201 && a.status != 200 {
			t.Fatalf("put: %s", a)
		}
		before := w.gate.seen()
		if a := w.function.call(t, "GET", path, "", ""); a.body != "first" {
			t.Fatalf("get: %s", a)
		}
		leased = w.gate.seen() == before
	}
	if !leased {
		t.Fatal("no read is answered from memory: the function takes no lease")
	}
	thaw := w.function.freeze(t)
	long := time.After(frozenFor)
	if a := w.awake.insist(t, "PUT", path, "", "second"); a.status != 200 {
		t.Fatalf("put by the other instance: %s", a)
	}
	<-long
	got := make(chan string, 1)
	go func() {
		a, err := w.function.try("GET", path, "", "")
		got <- fmt.Sprint(a.body, err)
	}()
	thaw()
	if a := <-got; a != "second<nil>" {
		t.Errorf("the thawed function reads %q; what was written before it was asked is \"second\"", a)
	}
}

// heldGet freezes a read whose proof is on its way back. It may tell the state of
// that moment, but the next one may not.
func (w *winter) heldGet(t *testing.T) {
	const path = "/v1/trees/held/keys/k"
	if a := w.awake.insist(t, "PUT", path, "", "first"); a.status != 201 {
		t.Fatalf("put: %s", a)
	}
	a := w.during(t, &hold{matches: queries, applied: true},
		func() (answer, error) { return w.function.try("GET", path, "", "") },
		func() {
			if a := w.awake.insist(t, "PUT", path, "", "second"); a.status != 200 {
				t.Fatalf("put meanwhile: %s", a)
			}
		})
	if a.status != 200 || a.body != "first" && a.body != "second" {
		t.Errorf("the frozen read: %s", a)
	}
	if a := w.function.call(t, "GET", path, "", ""); a.body != "second" {
		t.Errorf("the read after it: %s", a)
	}
}
