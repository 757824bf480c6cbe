package rounds_test

import (
	"testing"

	"github.com/latticekv/lattice/tests/history"
)

func TestMain(m *testing.M) {
	history.UseOneCore()
	m.Run()
}
