// Package durabletest gives tests that write much, and sync often, a place.
package durabletest

import (
	"os"
	"testing"
)

// Folder returns a new folder that goes with the test: in memory where the
// system has such a place.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lattice-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
