package auth

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// reloadInterval is how often a keys file is looked at, by the first request
// after it.
const reloadInterval = 2 * time.Second

// keyring holds the static keys, of the environment and of a file that is read
// again when it has changed. No goroutine watches it: a host that freezes
// between requests would not run one.
type keyring struct {
	// fixed are the keys of the environment.
	fixed  []Key
	file   string
	clock  clock.Source
	logger *slog.Logger

	keys atomic.Pointer[[]Key]

	// mu is held by whoever looks at the file; others go on with what is known.
	mu      sync.Mutex
	checked clock.Instant
	seen    fileState
	// fault is what was last told of, so that it is told once.
	fault string
}

// fileState tells one content of a file from another. A file that was changed
// just before it was read may change again within the same tick of the clock
// that stamps it, and so is read once more.
type fileState struct {
	modified time.Time
	size     int64
	settled  bool
	// content is the fingerprint of the text.
	content fingerprint
}

// newKeyring reads all keys. Every fault is an error: a service does not start
// with half of its keys.
func newKeyring(env, file string, c clock.Source, logger *slog.Logger) (*keyring, error) {
	k := &keyring{file: file, clock: c, logger: logger}
	fixed, err := parseKeys(strings.ReplaceAll(env, ";", "\n"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeysVariable, err)
	}
	k.fixed = fixed
	if file == "" {
		k.keys.Store(&k.fixed)
		return k, nil
	}
	k.checked = c.Now()
	return k, k.load()
}

// find returns the key that a token is, nil if it is none. All keys are
// compared, whichever matches, so that the time tells nothing.
func (k *keyring) find(token string) *Key {
	k.reload()
	keys := *k.keys.Load()
	if len(token) > maxKeyLength {
		return nil
	}
	f := fingerprintOf(token)
	found := -1
	for i := range keys {
		found = subtle.ConstantTimeSelect(keys[i].hash.matches(f), i, found)
	}
	if found < 0 {
		return nil
	}
	return &keys[found]
}

// reload reads the file if it has changed since it was looked at, and if that
// is long enough ago. A file that cannot be read, or is not valid, is told of
// and leaves the keys as they are: a slip of an editor must not lock everybody
// out. Keys end by leaving a valid file.
func (k *keyring) reload() {
	if k.file == "" || !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	now := k.clock.Now()
	if elapsed(k.checked, now) < reloadInterval {
		return
	}
	k.checked = now
	info, err := os.Stat(k.file)
	if err == nil && k.seen.settled && info.ModTime().Equal(k.seen.modified) && info.Size() == k.seen.size {
		return
	}
	before := k.seen.content
	if err := k.load(); err != nil {
		if k.fault != err.Error() {
			k.fault = err.Error()
			k.logger.Error("the keys file was not taken over; the keys before it stay valid", "error", err)
		}
		return
	}
	k.fault = ""
	if k.seen.content != before {
		k.logger.Info("the keys file was taken over", "keys", len(*k.keys.Load()))
	}
}

// load reads the file and puts its keys in place.
func (k *keyring) load() error {
	text, state, err := k.read()
	if err != nil {
		return fmt.Errorf("read the keys file: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("keys file %s: %w", k.file, err)
	}
	all := append(keys[:len(keys):len(keys)], k.fixed...)
	if len(all) > maxKeys {
		return fmt.Errorf("keys file %s and %s: more than %d keys", k.file, KeysVariable, maxKeys)
	}
	names := map[string]bool{}
	for i := range all {
		if names[all[i].Name] {
			return fmt.Errorf("keys file %s and %s: both have a key of the name %s", k.file, KeysVariable, all[i].Name)
		}
		names[all[i].Name] = true
	}
	k.keys.Store(&all)
	k.seen = state
	return nil
}

// read returns the text of the file, and its state before it was read.
func (k *keyring) read() (string, fileState, error) {
	// Asked first, since opening a pipe would wait for its writer.
	info, err := os.Stat(k.file)
	if err != nil {
		return "", fileState{}, err
	}
	if !info.Mode().IsRegular() {
		return "", fileState{}, fmt.Errorf("%s is not a regular file", k.file)
	}
	f, err := os.Open(k.file)
	if err != nil {
		return "", fileState{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeysBytes+1))
	if err != nil {
		return "", fileState{}, err
	}
	age := k.clock.Now().Time().Sub(info.ModTime())
	return string(b), fileState{info.ModTime(), info.Size(), age > reloadInterval, fingerprintOf(string(b))}, nil
}

// elapsed is the longer of what both clocks say has gone by: the monotonic one
// stops while a process is frozen, the wall clock may be set back.
func elapsed(from, to clock.Instant) time.Duration {
	return max(to.Mono-from.Mono, time.Duration(to.Wall-from.Wall))
}
