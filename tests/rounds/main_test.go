package rounds_test

import (
	"os"
	"testing"

	"github.com/latticekv/lattice/tests/history"
)

func TestMain(m *testing.M) {
	history.UseOneCore()
	os.Exit(m.Run())
}
