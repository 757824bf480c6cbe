//go:build !race

package run

// raceEnabled says whether the race detector is on.
const raceEnabled = false
