package splits

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

var update = flag.Bool("update", false, "write what the tests of this package measure into the documentation")

const (
	benefitPage = "splitting-benefit.md"
	benefitPlot = "splitting-pays.svg"
)

// benefit is the page of the documentation; the table goes in between.
const benefit = `# What splitting a hot shard brings

![Requests per second and their 99th percentile, before, while and after a hot shard is divided](%s)

%s
A test takes these figures, in virtual time, on the in-memory storage with the limits of an Azure storage account: 2,000
entities per second from one partition, 20,000 requests per second from the account, 3 to 7 ms for a query and 5 to
11 ms for a transaction.

- **The load.** %d instances without leases, %d clients each, one request after another: %.0f %% reads and %.0f %% writes
  of single keys. %.0f %% of the requests go to the keys of one of four shards, some keys more often than others.
- **What binds before.** An instance without a lease asks the shard's log with every read whether what it remembers is
  current, and reads what others have appended: one entity, or a few. All of that comes from one partition. Its limit
  is reached, requests over it are refused, and wait.
- **What happens.** The monitor looks every second (a default installation: every 30 seconds) and divides whatever is
  hotter than the rules allow, two shards at a time, up to %d shards. A split needs the same partition as the requests,
  so the first ones are the slowest.
- **After.** Each shard has a partition, and a limit, of its own. What comes into sight next is the limit of the account.

Run it again, and write this page anew:

    go test ./tests/splits -run TestSplittingPays -update
`

// publish writes the page and its plot, or sees that they are there.
func publish(t *testing.T, s *series, phases []phase) {
	t.Helper()
	docs := filepath.Join(running.Root(t), "docs")
	if *update {
		page := fmt.Sprintf(benefit, benefitPlot, table(phases), payInstances, payClients, 100*(1-payWrites), 100*payWrites, 100*payHotShare, payShards())
		for name, text := range map[string]string{benefitPage: page, benefitPlot: draw(s, phases)} {
			if err := os.WriteFile(filepath.Join(docs, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(docs, benefitPage))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "]("+benefitPlot+")") {
		t.Error("the page does not show the plot")
	}
	if _, err := os.Stat(filepath.Join(docs, benefitPlot)); err != nil {
		t.Error(err)
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	var s series
	for i := range 3000 {
		s.add(time.Duration(i)*time.Millisecond, time.Duration(i%100)*time.Millisecond)
	}
	phases := []phase{s.phase("before", 0, time.Second), s.phase("during", time.Second, 2*time.Second), s.phase("after", 2*time.Second, 3*time.Second)}
	if got := phases[1]; got.rate() != 1000 || got.quantile(0.99) != 99*time.Millisecond || got.quantile(0.5) != 50*time.Millisecond {
		t.Errorf("%.0f requests/s, p99 %s, median %s", got.rate(), got.quantile(0.99), got.quantile(0.5))
	}
	const row = "| during | 1.0 | 1000 | 50 ms | 99 ms |"
	if text := table(phases); !strings.Contains(text, row) {
		t.Errorf("no row %s in\n%s", row, text)
	}
	dec, paths := xml.NewDecoder(strings.NewReader(draw(&s, phases))), 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "path" {
			paths++
		}
	}
	if paths != 7 {
		t.Errorf("%d paths: 5 lines of the grid and 2 curves are wanted", paths)
	}
}
