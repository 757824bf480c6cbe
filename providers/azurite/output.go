package azurite

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// maxOutput bounds what is kept of the program's messages: the start, where the
// addresses stand, and enough of an error to show.
const maxOutput = 16 << 10

// output collects what the program prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newOutput() *output { return &output{} }

// Write implements io.Writer. It never fails, so that the program never blocks on
// a full pipe.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := maxOutput - o.buf.Len(); room > 0 {
		o.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

var listening = regexp.MustCompile(`(?m)^Azurite (Blob|Table) service is successfully listening at (http://\S+)\r?\n`)

// address returns where a service listens, or "" while it has not said so.
func (o *output) address(service string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range listening.FindAllSubmatch(o.buf.Bytes(), -1) {
		if string(m[1]) == service {
			return string(m[2])
		}
	}
	return ""
}

// tail returns the last lines, for an error.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(o.buf.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}
