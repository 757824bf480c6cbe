// Command bench compares this project with the plain client of the table
// service on the same Azurite in the same run, and measures how many bytes are
// written for each byte of user data. It prints tables in Markdown.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

// settings are the command line.
type settings struct {
	duration, warmup time.Duration
	clients          []int
	keys, valueBytes int
	seed             uint64
	parts            string
	entries          []int
	rounds           int
	// bulkEntries and streamEntries are the lengths of loads.
	bulkEntries, streamEntries int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, s, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.DurationVar(&s.duration, "duration", 3*time.Second, "time for each cell of the comparison")
	f.DurationVar(&s.warmup, "warmup", time.Second, "time before each cell that does not count")
	f.IntVar(&s.keys, "keys", 1000, "number of keys")
	f.IntVar(&s.valueBytes, "value", 100, "bytes of a value")
	f.IntVar(&s.rounds, "rounds", 4, "how many times over the entries are updated")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the order of keys and of the values")
	f.StringVar(&s.parts, "parts", "compare,memory,amplify,bulk,atomic,coldstart", "what to run: compare, memory, amplify, bulk, atomic, coldstart")
	f.IntVar(&s.bulkEntries, "bulk", 1_000_000, "entries of a one-shot load")
	f.IntVar(&s.streamEntries, "stream", 10_000_000, "entries of a stream and of a sort")
	clients := f.String("clients", "1,16,64,256", "numbers of concurrent clients")
	entries := f.String("entries", "100000,1000000", "numbers of entries for the bytes written")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if s.clients, err = numbers("clients", *clients); err != nil {
		return nil, err
	}
	s.entries, err = numbers("entries", *entries)
	if err == nil && (s.keys < 1 || s.valueBytes < 1 || s.rounds < 1 || s.duration <= 0 || s.bulkEntries < 1 || s.streamEntries < 1) {
		err = fmt.Errorf("keys, value, rounds, bulk, stream and duration must be positive")
	}
	return s, err
}

func numbers(name, list string) ([]int, error) {
	var out []int
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q is not a positive number", name, field)
		}
		out = append(out, n)
	}
	return out, nil
}

func run(ctx context.Context, s *settings, out io.Writer) error {
	for part := range strings.SplitSeq(s.parts, ",") {
		var err error
		switch part {
		case "compare":
			err = compare(ctx, s, out)
		case "memory":
			err = inMemory(ctx, s, out)
		case "amplify":
			err = amplify(ctx, s, out)
		case "bulk":
			err = bulk(ctx, s, out)
		case "atomic":
			err = atomicBatches(ctx, s, out)
		case "coldstart":
			err = coldStart(ctx, s, out)
		default:
			err = fmt.Errorf("parts: %q is not one of compare, memory, amplify, bulk, atomic, coldstart", part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
