package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/latticekv/lattice/migrate/source"
)

type pages = iter.Seq2[source.Page, error]

// position is where an enumeration stands: before a reply of SCAN.
type position struct {
	// Node is the index of the server, Cursor that of SCAN on it, in decimal.
	Node   int    `json:"node"`
	Cursor string `json:"cursor"`
	// Run is the process that gave the cursor, Topology the layout of the cluster.
	Run      string `json:"run,omitempty"`
	Topology string `json:"topology,omitempty"`
}

// maxReplies of SCAN are joined at most, so that a page comes even where few
// keys match.
const maxReplies = 64

// errStopped: the consumer wants no more pages.
var errStopped = errors.New("stopped")

// Read implements source.Source. The position of a page is a cursor of SCAN,
// which is only good on the process that gave it: after a restart, and after
// slots of a cluster have moved, it ends with source.ErrRestart.
func (s *Source) Read(ctx context.Context, from source.Position) pages {
	return func(yield func(source.Page, error) bool) {
		err := s.read(ctx, from, func(p source.Page) error {
			if !yield(p, nil) {
				return errStopped
			}
			return nil
		})
		if isRestart(err) {
			// The next enumeration is to meet whichever servers there are by then.
			err = errors.Join(err, s.Close())
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(source.Page{}, err)
		}
	}
}

func (s *Source) read(ctx context.Context, from source.Position, emit func(source.Page) error) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	node, cursor, err := s.begin(from)
	for err == nil && node < len(s.nodes) {
		if err = s.use(ctx, node); err != nil {
			return err
		}
		if err = s.onProcess(from); err != nil {
			return err
		}
		var here, after source.Position
		if here, err = s.position(node, cursor); err != nil {
			return err
		}
		var keys []string
		if keys, cursor, err = s.list(ctx, cursor); err != nil {
			return err
		}
		if cursor == 0 {
			node++
		}
		if node == len(s.nodes) {
			err = s.settled(ctx)
		} else {
			after, err = s.position(node, cursor)
		}
		if err == nil {
			err = s.fetch(ctx, keys, func(p source.Page, last bool) error {
				// Until the last of its keys is out, a reply must be asked for again.
				if p.Next = here; last {
					p.Next = after
				}
				return emit(p)
			})
		}
		from = nil
	}
	return err
}

// begin returns where to go on.
func (s *Source) begin(from source.Position) (node int, cursor uint64, err error) {
	if from == nil {
		return 0, 0, nil
	}
	var p position
	if err := json.Unmarshal(from, &p); err != nil {
		return 0, 0, fmt.Errorf("the saved position is no position of a Redis source: %w", err)
	}
	cursor, err = strconv.ParseUint(p.Cursor, 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("the saved position holds no cursor of SCAN: %w", err)
	}
	if p.Topology != s.topology {
		return 0, 0, errReshaped
	}
	if p.Node < 0 || p.Node >= len(s.nodes) {
		return 0, 0, restart("server %d of the position does not exist", p.Node)
	}
	return p.Node, cursor, nil
}

// onProcess checks that a cursor belongs to the process at hand. The beginning
// fits any.
func (s *Source) onProcess(from source.Position) error {
	if from == nil {
		return nil
	}
	var p position
	if err := json.Unmarshal(from, &p); err != nil {
		return fmt.Errorf("the saved position is no position of a Redis source: %w", err)
	}
	if p.Cursor == "0" {
		return nil
	}
	if run := s.runID(); p.Run == "" || p.Run != run {
		return restart("the server was restarted since, or another one has taken its place")
	}
	return nil
}

func (s *Source) position(node int, cursor uint64) (source.Position, error) {
	p := position{Node: node, Cursor: strconv.FormatUint(cursor, 10), Topology: s.topology}
	if cursor != 0 {
		p.Run = s.runID()
	}
	return json.Marshal(p)
}

// list joins replies of SCAN until there are enough keys for a page, and
// returns each key once, and the cursor to go on with, 0 at the end.
func (s *Source) list(ctx context.Context, cursor uint64) ([]string, uint64, error) {
	var keys []string
	seen := map[string]struct{}{}
	for range maxReplies {
		var found []string
		var next uint64
		err := s.retry(ctx, func() (err error) {
			found, next, err = s.client.Scan(ctx, cursor, s.opts.Match, s.opts.ScanCount).Result()
			return err
		})
		if err != nil {
			return nil, 0, s.explain(err)
		}
		for _, k := range found {
			if _, twice := seen[k]; !twice {
				seen[k] = struct{}{}
				keys = append(keys, k)
			}
		}
		if cursor = next; cursor == 0 || int64(len(keys)) >= s.opts.ScanCount/2+1 {
			break
		}
	}
	return keys, cursor, nil
}
