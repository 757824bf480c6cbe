package cli

import (
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/latticekv/lattice/migrate/redis"
)

// migrateRedisCmd migrates the keys of a Redis server.
type migrateRedisCmd struct {
	migrateFlags
	address

	DB           *int     `name:"db" help:"Number of the database; that of the address if not given." placeholder:"N" group:"Source"`
	Match        string   `help:"Only keys that match: \"user:*\"." placeholder:"PATTERN" group:"Source"`
	Type         []string `help:"Only values of these types: string, hash, list, set, zset, stream, ReJSON-RL." placeholder:"TYPE" group:"Source"`
	ScanCount    int64    `default:"1000" help:"About how many keys the server lists at a time." placeholder:"N" group:"Source"`
	BinaryKeys   string   `enum:"reject,percent,hex,base64url" default:"reject" help:"What becomes of keys that are not UTF-8: reject, percent, hex or base64url." group:"Source"`
	SourceCACert string   `name:"source-cacert" help:"Also trust the certificates in this file (PEM) at the source." placeholder:"FILE" group:"Source"`
}

// Help implements kong.HelpProvider.
func (migrateRedisCmd) Help() string {
	return `The address is redis://, rediss:// (TLS) or unix://, with user, password and number of the database:
redis://user:password@host:6379/0. Of a cluster any server will do: all masters are read. Keys are listed
with SCAN, which does not hold up the server; value and expiry are read together.

The fields of a record are key, type and db; the key stays as it is unless --key-template says otherwise. A
string keeps its bytes. Other types become JSON: a hash an object with its fields sorted; a list an array; a
set a sorted array; a sorted set an array of {"member","score"} in rank order; a stream an array of
{"id","fields"}. What is not UTF-8 in them becomes {"base64":"..."}; a hash with such field names becomes an
array of pairs. Consumer groups and the expiry of single fields are not carried.

With --binary-keys=percent bytes that are no characters become %XX, and every % becomes %25, so that no two
keys meet; hex and base64url write such keys whole, and a text key that is the same is told as a duplicate.

Examples:

    export REDIS_URL=redis://:secret@10.0.0.5:6379/0
    lattice migrate redis sessions --source-env REDIS_URL --dry-run
    lattice migrate redis sessions --source-env REDIS_URL --match 'session:*' --binary-keys percent`
}

// Run carries the command out.
func (c *migrateRedisCmd) Run(e *env) error {
	url, err := c.resolve(e, os.LookupEnv)
	if err != nil {
		return err
	}
	db, err := c.bounds()
	if err != nil {
		return err
	}
	roots, err := sourceRoots(c.SourceCACert)
	if err != nil {
		return err
	}
	src, err := redis.New(redis.Options{
		URL: url, DB: db, Match: c.Match, Types: c.Type, ScanCount: c.ScanCount, BinaryKeys: redis.KeyForm(c.BinaryKeys),
		MaxValueBytes: int64(c.MaxValueBytes), RetryFor: c.RetryFor, RootCAs: roots, OnWait: c.waits(),
	})
	if err != nil {
		return usagef("%v", err)
	}
	c.shape = map[string]string{"binary-keys": c.BinaryKeys}
	return c.run(e, src)
}

// bounds checks numbers where the source has a meaning of its own for one, and
// returns that of the database, -1 if none is given.
func (c *migrateRedisCmd) bounds() (db int, err error) {
	if c.ScanCount < 1 {
		return 0, usagef("--scan-count must be 1 to 100,000")
	}
	if c.DB == nil {
		return -1, nil
	}
	if *c.DB < 0 {
		return 0, usagef("--db must not be negative")
	}
	return *c.DB, nil
}

// sourceRoots are the authorities that a source is checked by; nil is those of
// the system alone.
func sourceRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	return trusted("--source-cacert", file)
}

// A wait of a source is told if it is long, and then not again for a while.
const (
	longWait   = time.Second
	quietAfter = 15 * time.Second
)

// waits returns what tells that the source is waited for.
func (f *migrateFlags) waits() func(wait time.Duration, cause error) {
	var told time.Time
	return func(wait time.Duration, cause error) {
		if now := time.Now(); wait >= longWait && now.Sub(told) >= quietAfter {
			told = now
			f.note(fmt.Sprintf("waiting %s for the source: %v", wait.Round(100*time.Millisecond), cause))
		}
	}
}
