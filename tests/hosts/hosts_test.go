// Package hosts runs the programs of the cloud hosts as those hosts would: the
// custom handler over HTTP, the Lambda function under the runtime interface
// emulator.
package hosts

import (
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }
