package operate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/providers/metered"
)

// cost is a row of the table in the document.
type cost struct {
	what string
	// upTo says that the figures are bounds: who meets whom is left to chance.
	upTo bool
	// run prepares, and then measures with spend.
	run func(t *testing.T) metered.Snapshot
}

// warm measures on a process that has served the tree before.
func warm(do func(p *process)) func(t *testing.T) metered.Snapshot {
	return func(t *testing.T) metered.Snapshot {
		p := newWorld(t, nil).start()
		p.fill("t", 4)
		warmUp(p)
		return p.spend(func() { do(p) })
	}
}

// warmUp reads everything once.
func warmUp(p *process) {
	p.do("GET", "/v1/trees/t/entries?limit=5000", "")
	p.do("GET", "/v1/trees/t/entries?limit=1", "") // the token of its next page
	p.do("GET", "/v1/trees/t/keys/"+key(1), "")
	p.do("PUT", "/v1/trees/t/keys/"+key(1), value(1))
}

// after prepares and measures on a process that is warm.
func after(prepare func(p *process) string, do func(p *process, found string)) func(t *testing.T) metered.Snapshot {
	return func(t *testing.T) metered.Snapshot {
		p := newWorld(t, nil).start()
		p.fill("t", 4)
		warmUp(p)
		found := prepare(p)
		return p.spend(func() { do(p, found) })
	}
}

// onCold measures a process's first request.
func onCold(do func(p *process)) func(t *testing.T) metered.Snapshot {
	return func(t *testing.T) metered.Snapshot {
		w := newWorld(t, nil)
		w.start().fill("t", 4)
		p := w.start()
		return p.spend(func() { do(p) })
	}
}

func costs() []cost {
	k := "/v1/trees/t/keys/"
	get := func(n int) func(*process) { return func(p *process) { p.do("GET", k+key(n), "") } }
	put := func(n int) func(*process) { return func(p *process) { p.do("PUT", k+key(n), value(n)) } }
	large := strings.Repeat("x", 300<<10)
	etag := func(p *process) string { _, h := p.do("GET", k+key(1), ""); return h.Get("ETag") }
	rows := []cost{
		{what: "get", run: warm(get(1))},
		{what: "get with `max-age` that memory satisfies", run: warm(func(p *process) { p.do("GET", k+key(1), "", "Cache-Control", "max-age=60") })},
		{what: "get under a lease", run: func(t *testing.T) metered.Snapshot {
			p := newWorld(t, func(o *options.Options) { o.Leases = true }).start()
			p.fill("t", 4)
			warmUp(p)
			return p.spend(func() { p.do("GET", k+key(1), "") })
		}},
		{what: "64 gets at once of one shard", upTo: true, run: warm(func(p *process) { together(64, func(int) { get(1)(p) }) })},
		{what: "get whose leaf is not in memory", run: func(t *testing.T) metered.Snapshot {
			w := newWorld(t, nil)
			w.start().fill("t", 1)
			p := w.start()
			get(1)(p)
			return p.spend(func() { get(900)(p) })
		}},
		{what: "get of a value of more than 256 KiB", run: after(func(p *process) string { p.do("PUT", k+"large", large); return "" }, func(p *process, _ string) { p.do("GET", k+"large", "") })},
		{what: "first get of a process", run: onCold(get(500))},
		{what: "put", run: warm(put(1))},
		{what: "64 puts at once to one shard", upTo: true, run: warm(func(p *process) {
			together(64, func(int) { put(1)(p) })
		})},
		{what: "put with `If-Match` or `If-None-Match`", run: after(etag, func(p *process, tag string) { p.do("PUT", k+key(1), "x", "If-Match", tag) })},
		{what: "the same, refused with 412", run: warm(func(p *process) { p.refused(412, "PUT", k+key(1), "x", "If-None-Match", "*") })},
		{what: "put of a value of more than 256 KiB", run: warm(func(p *process) { p.do("PUT", k+"large", large) })},
		{what: "first put of a process", run: onCold(put(500))},
		{what: "delete", run: warm(func(p *process) { p.do("DELETE", k+key(1), "") })},
		{what: "delete of an absent key", run: warm(func(p *process) { p.do("DELETE", k+"absent", "") })},
		{what: "batch of 100 over 4 shards", run: warm(func(p *process) { p.do("POST", "/v1/trees/t/batch", `{"operations":[`+sets(0, 100, setForm)+`]}`) })},
		{what: "batch-get of 100 over 4 shards", run: warm(func(p *process) {
			var keys []string
			for i := range 100 {
				keys = append(keys, key(i))
			}
			list, _ := json.Marshal(map[string]any{"keys": keys})
			p.do("POST", "/v1/trees/t/batch-get", string(list))
		})},
		{what: "atomic batch on 1 shard", run: warm(func(p *process) {
			p.do("POST", "/v1/trees/t/batch", `{"atomic":true,"operations":[`+sets(1, 2, setForm)+`]}`)
		})},
		{what: "atomic batch of 100 over 4 shards", run: warm(func(p *process) {
			p.do("POST", "/v1/trees/t/batch", `{"atomic":true,"operations":[`+sets(0, 100, setForm)+`]}`)
		})},
		{what: "scan page of 4 shards", run: warm(func(p *process) { p.do("GET", "/v1/trees/t/entries?limit=100", "") })},
		{what: "first scan page of a process, 4 shards", run: onCold(func(p *process) { p.do("GET", "/v1/trees/t/entries?start="+key(100)+"&end="+key(110), "") })},
		{what: "count of 4 shards", run: warm(func(p *process) { p.do("GET", "/v1/trees/t/count", "") })},
		{what: "range delete of 1,000 keys in 4 shards", run: warm(func(p *process) { p.do("DELETE", "/v1/trees/t/entries?all=true", "") })},
		{what: "cursor opened", run: warm(func(p *process) { openCursor(p, false) })},
		{what: "cursor page of 4 shards", run: after(func(p *process) string { return openCursor(p, false) }, nextPage)},
		{what: "snapshot opened, 4 shards", run: warm(func(p *process) { openCursor(p, true) })},
		{what: "snapshot page of 4 shards", run: after(func(p *process) string { return openCursor(p, true) }, nextPage)},
		{what: "snapshot closed, 4 shards", run: after(func(p *process) string { return openCursor(p, true) }, func(p *process, id string) { p.do("DELETE", "/v1/trees/t/cursors/"+id, "") })},
		{what: "bulk chunk of 1,000 entries into 4 shards", run: after(func(p *process) string {
			p.do("PUT", "/v1/trees/b/bulk-loads/load", "")
			return ""
		}, func(p *process, _ string) {
			p.do("PUT", "/v1/trees/b/bulk-loads/load/chunks/0", `{"entries":[`+sets(0, 1000, entryForm)+`]}`)
		})},
		{what: "checkpoint of 1 shard of 4 that was written to", run: checkpoint},
		{what: "split of a shard of 1,000 keys, begin to end", upTo: true, run: split},
		{what: "`/readyz`", run: warm(func(p *process) { p.do("GET", "/readyz", "") })},
		{what: "`/healthz`", run: warm(func(p *process) { p.do("GET", "/healthz", "") })},
		{what: "`/metrics`", run: warm(func(p *process) { p.do("GET", "/metrics", "") })},
	}
	for _, timer := range schedule.Names() {
		for _, trees := range []int{1, 2} {
			rows = append(rows, cost{what: idleRow(timer, trees), run: idle(timer, trees)})
		}
	}
	return rows
}

func idleRow(timer string, trees int) string {
	return fmt.Sprintf("tick of `%s`, nothing to do, %d × 4 shards", timer, trees)
}

// idle measures a tick that finds nothing to do, on a process that has run it
// before.
func idle(timer string, trees int) func(t *testing.T) metered.Snapshot {
	return func(t *testing.T) metered.Snapshot {
		p := newWorld(t, nil).start()
		for i := range trees {
			p.fill(fmt.Sprint("t", i), 4)
		}
		for range 3 {
			p.wait(time.Hour)
			for _, name := range schedule.Names() {
				p.tick(name)
			}
		}
		p.wait(time.Minute)
		return p.spend(func() { p.tick(timer) })
	}
}

func openCursor(p *process, snapshot bool) string {
	body, _ := p.do("POST", "/v1/trees/t/cursors", fmt.Sprintf(`{"kind":"entries","snapshot":%v}`, snapshot))
	var made struct{ CursorID string }
	if err := json.Unmarshal([]byte(body), &made); err != nil {
		p.t.Errorf("%s: %v", body, err)
	}
	return made.CursorID
}

func nextPage(p *process, id string) {
	p.do("POST", "/v1/trees/t/cursors/"+id+"/next", `{"limit":100}`)
}

// checkpoint folds the log of the one shard that was written to. What the tick
// asks of every tree, whether there is work or not, is a row of its own and taken
// off.
func checkpoint(t *testing.T) metered.Snapshot {
	p := newWorld(t, nil).start()
	p.fill("t", 4)
	warmUp(p)
	p.foldSoon("t", true)
	p.do("GET", "/v1/trees/t/keys/"+key(1), "")
	p.tick("checkpoint")
	idle := p.spend(func() { p.tick("checkpoint") })
	p.do("PUT", "/v1/trees/t/keys/"+key(1), value(1))
	return p.spend(func() { p.tick("checkpoint") }).Sub(idle)
}

// split divides a shard by the ticks that do it.
func split(t *testing.T) metered.Snapshot {
	p := newWorld(t, nil).start()
	p.fill("t", 1)
	return p.spend(func() {
		p.do("POST", "/v1/trees/t/reshard", `{"shardCount":2}`)
		for range 100 {
			p.tick("migrations")
			if state, _ := p.do("GET", "/v1/trees/t/reshard", ""); strings.Contains(state, `"complete":true`) {
				return
			}
			p.wait(time.Second)
		}
		t.Error("the split does not end")
	})
}

// columns are the kinds of operations that the table tells apart.
func columns(s metered.Snapshot) [4]int64 {
	return [4]int64{s.Gets + s.Ranges, s.Applies, s.BlobGets + s.BlobRanges, s.BlobPuts + s.BlobLists}
}

// shown is a row of the document.
func (c *cost) shown(n [4]int64) string {
	cells := make([]string, len(n))
	for i := range n {
		cells[i] = fmt.Sprint(n[i])
	}
	return "| " + c.what + " | " + strings.Join(cells, " | ") + " |"
}

// TestRequestsCostWhatTheDocumentSays measures every row of its table.
func TestRequestsCostWhatTheDocumentSays(t *testing.T) {
	document := read(t)
	_, table, _ := strings.Cut(document, "<!-- costs -->\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:]
	measured := map[string][4]int64{}
	for i, c := range costs() {
		synctest.Test(t, func(t *testing.T) {
			s := c.run(t)
			measured[c.what] = columns(s)
			if s.Failures > 0 || s.Conflicts > 0 {
				t.Errorf("%s: %+v", c.what, s)
			}
		})
		got := c.shown(measured[c.what])
		switch {
		case i >= len(rows):
			t.Errorf("the table lacks the row\n%s", got)
		case c.upTo && !within(rows[i], c.what, measured[c.what]):
			t.Errorf("the table says\n%s, measured\n%s", rows[i], got)
		case !c.upTo && rows[i] != got:
			t.Errorf("the table says\n%s, measured\n%s", rows[i], got)
		}
	}
	if len(rows) != len(measured) {
		t.Errorf("%d rows in the table, %d measured", len(rows), len(measured))
	}
	if want := month(measured); !strings.Contains(document, want) {
		t.Errorf("the document does not say\n%s", want)
	}
}

// within reports whether a row of bounds holds for figures.
func within(row, what string, n [4]int64) bool {
	cells := strings.Split(strings.Trim(row, "| "), " | ")
	if len(cells) != 1+len(n) || cells[0] != what {
		return false
	}
	for i, cell := range cells[1:] {
		bound, err := strconv.ParseInt(strings.TrimPrefix(cell, "≤ "), 10, 64)
		if err != nil || n[i] > bound {
			return false
		}
	}
	return true
}

const (
	daysOfMonth = 30
	// dollarsTable and dollarsBlob are for a million operations.
	dollarsTable, dollarsBlob = 0.036, 5.0
)

// month is what the schedule of the cloud hosts costs where nobody does anything.
func month(measured map[string][4]int64) string {
	total := func(trees int) (table, blobs int64) {
		for _, timer := range schedule.All() {
			ticks := int64(daysOfMonth * 24 * time.Hour / timer.Cloud)
			n := measured[idleRow(timer.Name, trees)]
			table += ticks * (n[0] + n[1])
			blobs += ticks * n[3]
		}
		return table, blobs
	}
	one, oneBlobs := total(1)
	two, twoBlobs := total(2)
	return fmt.Sprintf("- the timers of a cloud host with nothing to do: %s table operations and %s listings with one tree of 4 shards, $%.2f; "+
		"%s and %s more for each further such tree, $%.2f.\n",
		group(one), group(oneBlobs), dollars(one, oneBlobs), group(two-one), group(twoBlobs-oneBlobs), dollars(two-one, twoBlobs-oneBlobs))
}

func dollars(table, blobs int64) float64 {
	return float64(table)/1e6*dollarsTable + float64(blobs)/1e6*dollarsBlob
}

// group writes a number with commas.
func group(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
