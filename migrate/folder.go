package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// ErrFolder: the folder is somebody else's.
var ErrFolder = errors.New("the folder is not that of a migration")

// CheckFolder refuses a folder that holds other files and nothing of a
// migration, a comparison or a delta pass. One that is not there will do.
func CheckFolder(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the folder of the state: %w", err)
	}
	strange := ""
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == stateName || name == reportName || name == "comparison" || strings.HasPrefix(name, "ledger") || strings.HasPrefix(name, "delta"):
			return nil
		case strings.HasPrefix(name, ".") || name == "lock" || name == "lost+found" || name == spoolName || ours(name):
		case strange == "":
			strange = name
		}
	}
	if strange == "" {
		return nil
	}
	return fmt.Errorf("%w: %s holds other things, such as %s; give an empty folder with --state, or one that is not there yet", ErrFolder, path, strange)
}
