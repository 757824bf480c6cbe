package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
)

// crashes is an import into a service that is killed again and again, beside
// writers of the test's own.
type crashes struct {
	*node
	src   source
	tree  string
	rng   *rand.Rand
	own   *writers
	byKey map[string]*Row
	// settled is how many rows from the start the tool said are durable.
	settled int64
	// caught is how many imports a crash cut off.
	caught int
}

func newCrashes(n *node, src source, tree string, seed uint64) *crashes {
	c := &crashes{node: n, src: src, tree: tree, rng: rand.New(rand.NewPCG(seed, 1)), own: newWriters(tree, seed)}
	c.byKey = make(map[string]*Row, len(src.rows))
	for i := range src.rows {
		c.byKey[src.rows[i].Key] = &src.rows[i]
	}
	return c
}

// moment draws after how many acknowledgements of the writers the service
// dies: an import takes longer than that as a rule.
func (c *crashes) moment() int64 { return 60 + c.rng.Int64N(300) }

// givingUp kills the service during an import that does not wait for it, and
// goes on with what the tool says is missing.
func (c *crashes) givingUp(t *testing.T) {
	t.Helper()
	l := c.tool(t, c.src.args(c.tree, "--retry-for=100ms", fmt.Sprintf("--skip-rows=%d", c.settled))...)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.own.run(t, c.node, c.moment(), c.Kill)
	err := l.cmd.Wait()
	a := l.account(t)
	if a.Complete != (err == nil) || a.Settled < c.settled || a.Rejected != 0 {
		t.Errorf("an import that was cut off says %s, %v", l.out.String(), err)
	}
	if !a.Complete {
		c.caught++
	}
	c.settled = a.Settled
	c.start(t)
	c.check(t)
	if a.Complete {
		// Once more: importing again changes nothing.
		c.settled = 0
	}
}

// waiting kills the service several times during one import that waits for it
// to come back.
func (c *crashes) waiting(t *testing.T, times int) {
	t.Helper()
	l := c.tool(t, c.src.args(c.tree, "--retry-for=2m", fmt.Sprintf("--skip-rows=%d", c.settled))...)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range times {
		c.own.run(t, c.node, c.moment(), c.Kill)
		c.start(t)
		c.check(t)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Fatalf("the import did not wait: %v: %s%s", err, l.out.String(), l.err.String())
	}
	a, rows := l.account(t), int64(len(c.src.rows))
	if !a.Complete || a.Settled != rows || a.Written != rows-c.settled {
		t.Errorf("an import that had to wait, of rows %d to %d, says %s", c.settled, rows, l.out.String())
	}
	c.settled = a.Settled
}

// check compares what is there after a crash with what must be and what may.
func (c *crashes) check(t *testing.T) {
	t.Helper()
	c.own.check(t, c.node)
	found := c.imported(t)
	for i, r := range c.src.rows[:c.settled] {
		if !found[r.Key] {
			t.Fatalf("row %d of the %d that were acknowledged is lost: %s", i+1, c.settled, pick(r.Key))
		}
	}
	t.Logf("%d rows acknowledged, %d there", c.settled, len(found))
}

// imported returns the keys of the dataset that are there; every value is
// compared.
func (c *crashes) imported(t *testing.T) map[string]bool {
	t.Helper()
	query := url.Values{"end": {ownPrefix}, "as": {"text"}}
	resp, err := c.do(t.Context(), "GET", treePath(c.tree, "entries", query), "", "Accept", "application/x-ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	found, last, end := map[string]bool{}, "", -1
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l, err := c.decode(s.Bytes())
		if err != nil || end >= 0 {
			t.Fatalf("%s after %s: %v", s.Bytes(), pick(last), err)
		}
		if l.End {
			end = l.Count
			continue
		}
		if r := c.byKey[l.Key]; last >= l.Key || r == nil || r.Value != l.Text {
			t.Fatalf("%s after %s", s.Bytes(), pick(last))
		}
		last, found[l.Key] = l.Key, true
	}
	if s.Err() != nil || end != len(found) {
		t.Fatalf("%d rows, the end line counts %d, %v", len(found), end, s.Err())
	}
	return found
}

// decode reads a line, by its beginning if it is as a row's usually is.
func (c *crashes) decode(text []byte) (l line, err error) {
	head, _, _ := bytes.Cut(text, []byte(`,"text":`))
	if json.Unmarshal(append(head[:len(head):len(head)], '}'), &l) == nil {
		if r := c.byKey[l.Key]; r != nil && isRow(text, r) {
			l.Text = r.Value
			return l, nil
		}
	}
	l = line{}
	return l, json.Unmarshal(text, &l)
}

// withCrashes imports a source into a new tree through both kinds of crashes,
// and surveys what came of it.
func withCrashes(t *testing.T, n *node, src source, sorted []Row, seed uint64) {
	t.Helper()
	c := newCrashes(n, src, "second", seed)
	resp, err := n.do(t.Context(), "PUT", "/v1/trees/"+c.tree, "")
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("create a tree: %v, %v", resp, err)
	}
	resp.Body.Close()
	for range 3 {
		timed(t, "a crash", 0, func() { c.givingUp(t) })
	}
	timed(t, "an import through three crashes", 0, func() { c.waiting(t, 3) })
	if c.caught == 0 {
		t.Error("no crash came during an import")
	}
	c.own.check(t, n)
	v := &survey{node: n, tree: c.tree, rows: sorted, rng: c.rng, end: ownPrefix}
	v.brief(t)
	n.stop(t)
	n.start(t)
	v.brief(t)
	c.own.check(t, n)
}
