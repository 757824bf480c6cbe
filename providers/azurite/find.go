package azurite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotInstalled says that there is no Azurite to run. The error that wraps it
// says what to do.
var ErrNotInstalled = errors.New("azurite is not installed")

// ProgramVariable is the environment variable that overrides the search for the
// program.
const ProgramVariable = "LATTICE_AZURITE"

const (
	toolsFolder = ".tools/azurite"
	// installedMark is written last, so an installation under way is not used.
	installedMark = toolsFolder + "/.installed"
	programInside = "node_modules/azurite/dist/src/azurite.js"
	installScript = "scripts/install-azurite.sh"
)

// Find returns the program to run: the one named by LATTICE_AZURITE, else the one
// that scripts/install-azurite.sh put into a checkout that holds dir, else
// "azurite" on the path. ErrNotInstalled if there is none.
func Find(dir string) (string, error) {
	if named := os.Getenv(ProgramVariable); named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNotInstalled, ProgramVariable, err)
		}
		return named, nil
	}
	if found, err := inTools(dir); err == nil {
		return found, nil
	}
	if found, err := exec.LookPath("azurite"); err == nil {
		return found, nil
	}
	return "", fmt.Errorf("%w: run %s of a checkout (it needs Node.js 20 and npm), "+
		"or install azurite on the path, or name it in %s", ErrNotInstalled, installScript, ProgramVariable)
}

// Install runs scripts/install-azurite.sh of the checkout that holds dir and
// returns the program. It does little when that is installed already, and waits
// for another process that installs it at the moment.
func Install(ctx context.Context, dir string) (string, error) {
	script, err := above(dir, installScript)
	if err != nil {
		return "", fmt.Errorf("%w: no %s above %s: %w", ErrNotInstalled, installScript, dir, err)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", script)
	messages := newOutput()
	cmd.Stderr = messages
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s: %w: %s", ErrNotInstalled, installScript, err, messages.tail())
	}
	return inTools(dir)
}

func inTools(dir string) (string, error) {
	mark, err := above(dir, installedMark)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(mark), programInside), nil
}

// above looks for a file relative to dir and to each of its parents.
func above(dir, name string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		candidate := filepath.Join(at, name)
		if _, err := os.Stat(candidate); err == nil {
			return candidate, nil
		}
		parent := filepath.Dir(at)
		if parent == at {
			return "", fmt.Errorf("find %s: %w", name, os.ErrNotExist)
		}
		at = parent
	}
}
