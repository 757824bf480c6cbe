// Package hostenv reads what a cloud host tells the service: everything is in
// the environment there.
package hostenv

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/latticekv/lattice/core/options"
)

// TokenVariable sets the internal credential, for those who call the timers
// from outside. Without it every process draws its own.
const TokenVariable = "LATTICE_INTERNAL_TOKEN"

// LevelVariable is the least level that is logged: debug, info, warn or error.
const LevelVariable = "LATTICE_LOG_LEVEL"

// Settings of a service on a cloud host.
type Settings struct {
	// Options are valid.
	Options options.Options
	// Token is the internal credential, never empty.
	Token string
	// Logger writes JSON, which is what the hosts' log services read.
	Logger *slog.Logger
}

// Read lays the environment over the given options. The error joins every
// fault.
func Read(lookup func(string) (string, bool), base options.Options, log io.Writer) (Settings, error) {
	s := Settings{Options: base}
	faults := []error{s.Options.SetFromEnv(lookup), s.Options.Validate()}
	var level slog.Level
	if text, ok := lookup(LevelVariable); ok && text != "" {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			faults = append(faults, fmt.Errorf("%s=%q is not one of debug, info, warn, error", LevelVariable, text))
		}
	}
	s.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
	if s.Token, _ = lookup(TokenVariable); s.Token == "" {
		s.Token = rand.Text()
	}
	return s, errors.Join(faults...)
}
