package service

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadsOfCheckpointedKeysShowInTheCache(t *testing.T) {
	i := onMemory(t, func(c *Config) { c.Options.CheckpointTailRows = 1 })
	for n := range 50 {
		i.want(201, "PUT", fmt.Sprintf("/v1/trees/t/keys/k%02d", n), "value")
	}
	i.tick("checkpoint")
	for range 2 {
		i.want(200, "GET", "/v1/trees/t/entries", "")
	}
	figures := i.want(200, "GET", "/metrics", "")
	for _, name := range []string{"lattice_cache_hits_total", "lattice_cache_pages", "lattice_cache_bytes"} {
		if !strings.Contains(figures, "\n"+name+" ") || strings.Contains(figures, "\n"+name+" 0\n") {
			t.Errorf("%s does not count:\n%s", name, lineOf(figures, name))
		}
	}
}

// lineOf returns the sample of a metric.
func lineOf(figures, name string) string {
	for line := range strings.Lines(figures) {
		if strings.HasPrefix(line, name) {
			return line
		}
	}
	return "not there"
}
