package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/latticekv/lattice/functions/auth"
)

// apiKeysCmd makes credentials. It talks to no service.
type apiKeysCmd struct {
	New apiKeysNewCmd `cmd:"" help:"Make an API key, and the line for the keys file."`
}

// Help implements kong.HelpProvider.
func (apiKeysCmd) Help() string {
	return `The service reads API keys from the file of --auth-keys-file, which holds their hashes alone.

Examples:

    lattice keys new --name orders-1 --role writer --trees 'orders*'`
}

// apiKeysNewCmd makes one key.
type apiKeysNewCmd struct {
	Name       string        `required:"" help:"What logs call the key." placeholder:"NAME"`
	Role       string        `required:"" help:"reader, writer, admin or internal." placeholder:"ROLE"`
	Trees      string        `help:"Patterns of the trees it is for, such as 'orders*,invoices'; '*' is for all. Not for the role internal." placeholder:"PATTERNS"`
	Rate       float64       `help:"Requests a second, over time." placeholder:"NUMBER"`
	Burst      int           `help:"Requests that may come at once, with --rate." placeholder:"NUMBER"`
	Concurrent int           `help:"Requests in work at once." placeholder:"NUMBER"`
	Lifetime   time.Duration `help:"End the key after this time." placeholder:"DURATION"`
	KeyFile    string        `help:"Take the key from this file (- is standard input) instead of drawing one." placeholder:"FILE"`
}

// Help implements kong.HelpProvider.
func (apiKeysNewCmd) Help() string {
	return `The key has 256 random bits. It is printed once and kept nowhere: give it to the client, as
LATTICE_TOKEN for this tool, and add the line to the keys file of the service, which takes it over
without a restart. To rotate a key, make one under another name, and remove the old line when
all clients have the new one.

Examples:

    lattice keys new --name reports --role reader --trees '*'
    lattice keys new --name orders-1 --role writer --trees 'orders*,invoices' --rate 200 --burst 400
    lattice keys new --name from-vault --role admin --trees '*' --key-file - < key.txt`
}

// newAPIKey is what the command prints as JSON.
type newAPIKey struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// Key is left out if it was given.
	Key  string `json:"key,omitempty"`
	Line string `json:"line"`
}

// Run carries the command out.
func (c *apiKeysNewCmd) Run(e *env) error {
	k, err := c.parse()
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	out := newAPIKey{Name: c.Name, Role: c.Role}
	if c.KeyFile == "" {
		out.Key, out.Line, err = auth.NewKey(k)
	} else {
		var given string
		if given, err = c.read(e); err != nil {
			return err
		}
		out.Line, err = auth.HashKey(k, given)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if e.json {
		return e.printJSON(out)
	}
	text := "The line for the keys file of the service:\n" + out.Line + "\n"
	if out.Key != "" {
		text = "The key, shown this once:\n" + out.Key + "\n\n" + text
	}
	return e.print(text)
}

func (c *apiKeysNewCmd) parse() (k auth.Key, err error) {
	k = auth.Key{Name: c.Name, Limits: auth.Limits{Rate: c.Rate, Burst: c.Burst, Concurrent: c.Concurrent}}
	if k.Role, err = auth.ParseRole(c.Role); err != nil {
		return k, err
	}
	if c.Trees != "" {
		if k.Trees, err = auth.ParsePatterns(c.Trees); err != nil {
			return k, err
		}
	}
	if c.Lifetime < 0 {
		return k, fmt.Errorf("a lifetime of %s is over", c.Lifetime)
	}
	if c.Lifetime > 0 {
		k.Expires = time.Now().Add(c.Lifetime)
	}
	return k, nil
}

// maxKeyFile bounds what is read of a key; auth refuses a long one by itself.
const maxKeyFile = 4 << 10

// read returns the key of a file, without the line end that editors add.
func (c *apiKeysNewCmd) read(e *env) (string, error) {
	in := e.In
	if c.KeyFile != "-" {
		f, err := os.Open(c.KeyFile)
		if err != nil {
			return "", fmt.Errorf("read --key-file: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxKeyFile))
	if err != nil {
		return "", fmt.Errorf("read --key-file: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
