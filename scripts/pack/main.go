// Command pack puts a folder into a zip file that a cloud host deploys:
//
//	go run ./scripts/pack -out dist/function.zip dist/function
//
// The same files give the same zip, byte for byte, whoever packs them and when:
// entries are sorted by name, carry one fixed time, and have one of two modes,
// 0755 if anybody may run the file and 0644 otherwise. What has no place in a
// deployment is refused: hidden files, settings of a developer's machine, links
// and devices.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// run packs what the arguments say and prints name and size of the result.
func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	out := flags.String("out", "", "the zip `file` to write; it is replaced whole or not at all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() != 1 {
		return fmt.Errorf("usage: pack -out FILE.zip FOLDER")
	}
	size, err := pack(flags.Arg(0), *out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %.1f MB\n", *out, float64(size)/1e6)
	return err
}
