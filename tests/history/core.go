package history

import (
	"os"
	"runtime"
)

// UseOneCore gives the tests of a package in virtual time one core, for its
// TestMain. The doubles' delays order the goroutines there, and a second core costs
// a quarter more for waking it up than it brings. Processes that are started have
// all cores, and under LATTICE_SOAK everybody has.
func UseOneCore() {
	if os.Getenv("LATTICE_SOAK") == "" {
		runtime.GOMAXPROCS(1)
	}
}
