// Package redis reads the keys of a Redis server, one database of it or a whole
// cluster, for a migration. Valkey, KeyDB and others that speak its protocol
// are read alike.
//
// Keys are enumerated with SCAN, never with KEYS, and each becomes one record.
// The value of a record is made by its type:
//
//	string      its bytes, application/octet-stream
//	hash        JSON object, fields sorted: {"a":"1","b":"2"}
//	list        JSON array: ["first","second"]
//	set         JSON array, sorted: ["a","b"]
//	sorted set  JSON array in rank order: [{"member":"a","score":1.5}]; an
//	            infinite score is "inf" or "-inf"
//	stream      JSON array: [{"id":"1700000000000-0","fields":{"a":"1"}}]
//	ReJSON      the document, as JSON.GET returns it
//
// JSON is application/json. Members of collections are JSON strings; those that
// are not UTF-8 become {"base64":"…"}. A hash, or an entry of a stream, with a
// field name that is not UTF-8 or, in a stream, comes twice, is an array of
// pairs instead of an object: [["field","value"]]. Other types are faults that
// name the type.
//
// Value and expiry of a key are read in one transaction, so that they belong
// together, and a large collection is read in parts under WATCH, so that it is
// never a mixture. Expiry of the fields of a hash and consumer groups of a
// stream are not carried.
//
// SCAN returns every key that exists all the while at least once, and may
// return a key twice: the records of one key have the same Origin.
package redis

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/source"
)

// The defaults of Options.
const (
	DefaultScanCount     = 1000
	DefaultMaxValueBytes = 64 << 20
	DefaultRetryFor      = 2 * time.Minute
)

// Options say what to read.
type Options struct {
	// URL is redis://, rediss:// (TLS) or unix://, with user and password.
	URL string
	// DB is the number of the database; negative is that of the URL.
	DB int
	// Match is a pattern of SCAN that keys must match; empty is all.
	Match string
	// Types are the types to read, in any case of letters: string, hash, list,
	// set, zset, stream or ReJSON-RL; none is all.
	Types []string
	// ScanCount is about how many keys a reply of SCAN lists, 1 to 100,000; 0 is
	// DefaultScanCount.
	ScanCount int64
	// MaxValueBytes is the largest value that is read, in the source as well as
	// in its JSON form; 0 is DefaultMaxValueBytes.
	MaxValueBytes int64
	// BinaryKeys says what becomes of keys that are not UTF-8.
	BinaryKeys KeyForm
	// RetryFor is how long a server that is loading, busy or away is waited for,
	// each time; 0 is DefaultRetryFor.
	RetryFor time.Duration
	// RootCAs are trusted besides the system's; nil is the system's alone.
	RootCAs *x509.CertPool
	// OnWait, if not nil, is told of each wait and its cause.
	OnWait func(wait time.Duration, cause error)
}

// Source reads a Redis server. It implements source.Source. Redis does not tell
// what has changed: to follow it, all keys are read again and compared.
type Source struct {
	opts  Options
	dial  *goredis.Options
	label string
	types map[string]bool

	// at is the server in use; nodes are all of them, in order of their slots.
	client   *goredis.Client
	nodes    []node
	at       int
	topology string
	caps     capabilities
	// answered: a server has said something.
	answered bool

	// mu guards what the hook of a new connection reads.
	mu       sync.Mutex
	run      string
	learning bool
}

// New checks options; it does not connect. Its errors hold no secret.
func New(o Options) (*Source, error) {
	dial, label, err := parseURL(o.URL, o.DB, o.RootCAs)
	if err != nil {
		return nil, err
	}
	if o.ScanCount == 0 {
		o.ScanCount = DefaultScanCount
	}
	if o.MaxValueBytes == 0 {
		o.MaxValueBytes = DefaultMaxValueBytes
	}
	if o.RetryFor == 0 {
		o.RetryFor = DefaultRetryFor
	}
	switch {
	case o.ScanCount < 1 || o.ScanCount > 100_000:
		return nil, fmt.Errorf("the count of SCAN is %d, it must be 1 to 100,000", o.ScanCount)
	case o.MaxValueBytes < 1:
		return nil, fmt.Errorf("the largest value is %d bytes, it must be at least 1", o.MaxValueBytes)
	case o.RetryFor < 0:
		return nil, fmt.Errorf("the time to retry is %s, it must be positive", o.RetryFor)
	}
	if !o.BinaryKeys.valid() {
		return nil, fmt.Errorf("unknown form of binary keys %q", string(o.BinaryKeys))
	}
	types, err := typesOf(o.Types)
	if err != nil {
		return nil, err
	}
	quiet()
	s := &Source{opts: o, dial: dial, label: label, types: types}
	s.dial.OnConnect = s.sameServer
	return s, nil
}

// typesOf is the set of the types that are named, nil for all.
func typesOf(names []string) (map[string]bool, error) {
	if len(names) == 0 {
		return nil, nil
	}
	types := map[string]bool{}
	for _, name := range names {
		i := slices.IndexFunc(kinds, func(kind string) bool { return strings.EqualFold(kind, name) })
		if i < 0 {
			return nil, fmt.Errorf("unknown type %q: those that can be read are %s", name, strings.Join(kinds, ", "))
		}
		types[kinds[i]] = true
	}
	return types, nil
}

// quiet keeps the library from writing to standard error: what matters is
// returned.
var quiet = sync.OnceFunc(func() { goredis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Inspect implements source.Source.
func (s *Source) Inspect(ctx context.Context) (source.Info, error) {
	if err := s.connect(ctx); err != nil {
		return source.Info{}, err
	}
	info := source.Info{
		Kind: "redis", Identity: s.identity(), Version: s.caps.version,
		Fields: []string{"key", "type", "db"}, KeyFields: []string{"key"}, KeyTemplate: "{key}",
		Estimate: -1,
	}
	keys, counted, err := s.countKeys(ctx)
	if err != nil {
		return source.Info{}, err
	}
	if counted && s.opts.Match == "" && s.types == nil {
		info.Estimate = keys
	}
	info.Notes, info.Lossy = s.notes(), s.losses()
	return info, nil
}

// Close implements source.Source.
func (s *Source) Close() error {
	if s.client == nil {
		return nil
	}
	err := s.client.Close()
	s.client = nil
	return err
}

// countKeys adds up the keys of all servers.
func (s *Source) countKeys(ctx context.Context) (total int64, counted bool, err error) {
	for i := range s.nodes {
		if err := s.use(ctx, i); err != nil {
			return 0, false, err
		}
		var n int64
		err := s.retry(ctx, func() (err error) {
			n, err = s.client.DBSize(ctx).Result()
			return err
		})
		if refused(err) {
			return 0, false, s.use(ctx, 0)
		}
		if err != nil {
			return 0, false, s.explain(err)
		}
		total += n
	}
	return total, true, s.use(ctx, 0)
}
