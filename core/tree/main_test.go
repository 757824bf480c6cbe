package tree

import (
	"os"
	"runtime"
	"testing"
)

// TestMain gives the tests one core. Nearly all run in virtual time, where the
// doubles' delays order the goroutines, and a second core costs a quarter more for
// waking it up than it brings. A soak has all of them.
func TestMain(m *testing.M) {
	if os.Getenv("LATTICE_SOAK") == "" {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}
