package service

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"
)

// lines keep a log of JSON.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

// about returns the lines with a message.
func (l *lines) about(t *testing.T, message string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for _, text := range bytes.Split(bytes.TrimSpace(l.all.Bytes()), []byte("\n")) {
		var line map[string]any
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		if line["msg"] == message {
			found = append(found, line)
		}
	}
	return found
}
