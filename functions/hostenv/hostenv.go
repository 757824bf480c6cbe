// Package hostenv reads what a cloud host tells the service: everything is in
// the environment there.
package hostenv

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/telemetry"
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
	// Auth tells who calls; nil if the environment says that nobody needs to.
	Auth *auth.Authenticator
	// Token is the internal credential, never empty.
	Token string
	// Logger writes JSON, which is what the hosts' log services read.
	Logger *slog.Logger
}

// errOpen: a cloud host can be reached by everybody who knows its name.
var errOpen = errors.New("no credentials are configured: set LATTICE_AUTH_KEYS, LATTICE_AUTH_KEYS_FILE or LATTICE_AUTH_JWT_ISSUER and what belongs to it, " +
	"or " + auth.InsecureVariable + "=true if something in front of the service checks who calls")

// errArguments: whoever gave arguments would be wrong to think that they count.
var errArguments = errors.New("this program takes no arguments: settings are in the environment")

// NoArguments refuses arguments of a program, without its name.
func NoArguments(args []string) error {
	if len(args) > 0 {
		return errArguments
	}
	return nil
}

// Read lays the environment over the given options. Without credentials, and
// without the wish to do so, it refuses. The error joins every fault.
func Read(lookup func(string) (string, bool), base options.Options, log io.Writer) (s Settings, err error) {
	s.Options = base
	faults := []error{s.Options.SetFromEnv(lookup), s.Options.Validate()}
	var level slog.Level
	if text, ok := lookup(LevelVariable); ok && text != "" {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			faults = append(faults, fmt.Errorf("%s=%q is not one of debug, info, warn, error", LevelVariable, text))
		}
	}
	s.Logger = slog.New(telemetry.LogHandler(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level})))
	if s.Token, _ = lookup(TokenVariable); s.Token == "" {
		s.Token = rand.Text()
	}
	s.Auth, err = credentials(lookup, s.Logger)
	return s, errors.Join(append(faults, err)...)
}

// credentials makes what tells who calls.
func credentials(lookup func(string) (string, bool), logger *slog.Logger) (*auth.Authenticator, error) {
	cfg, err := auth.FromEnv(lookup)
	if err != nil {
		return nil, err
	}
	a, err := auth.New(cfg, clock.NewSystem(), logger)
	if err == nil && a == nil && !cfg.InsecureNoAuth {
		err = errOpen
	}
	return a, err
}
