//go:build race

package run

// raceEnabled says that the race detector slows the test down by a factor of
// twenty or so.
const raceEnabled = true
