package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/tests/tap"
)

const (
	// coldRuns is how often each host is started.
	coldRuns = 11
	// coldKeys fill several leaves of each shard.
	coldKeys = 40_000
	// startExpected is how soon a host is to be ready for its first request.
	startExpected = 100 * time.Millisecond
	// tripsExpected is how many round trips to the storage the first get may need.
	tripsExpected = 4
)

// cold is one start of a host.
type cold struct {
	// ready is when it took requests: accepted connections, or asked for its first
	// event. healthy is when it had answered one that needs no storage, zero if
	// that was not asked; answered when the first get was.
	ready, healthy, answered time.Duration
	trips                    []tap.Exchange
}

// coldHost is a program of a cloud host.
type coldHost struct {
	name, pkg string
	flags     []string
	start     func(ctx context.Context, program string, c *coldAccount) (cold, error)
}

func coldHosts() []coldHost {
	return []coldHost{
		{"azurefunc", "functions/azurefunc", nil, startHandler},
		{"awslambda", "functions/awslambda", []string{"-tags", "lambda.norpc"}, startFunction},
	}
}

// coldAccount is a storage account with a checkpointed tree, and the tap before it.
type coldAccount struct {
	*tap.Tap
	env []string
	key string
}

// coldStart measures how soon the hosts answer when nothing of them is warm.
func coldStart(ctx context.Context, s *settings, out io.Writer) (err error) {
	at, err := azurite.Install(ctx, ".")
	if err != nil {
		return err
	}
	emulator, err := azurite.Start(ctx, azurite.Options{Program: at})
	if err != nil {
		return err
	}
	defer emulator.Stop()
	between, err := tap.Open(emulator.TableURL(), emulator.BlobURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, between.Close()) }()
	key, err := fillCold(ctx, s, emulator.ConnectionString())
	if err != nil {
		return err
	}
	account := &coldAccount{between, append(os.Environ(),
		"LATTICE_STORE=azure", "LATTICE_INSECURE_NO_AUTH=true", "LATTICE_LOG_LEVEL=error", "LATTICE_TABLE_NAME=cold", "LATTICE_CONTAINER_NAME=cold",
		"AZURE_STORAGE_CONNECTION_STRING="+between.Through(emulator.ConnectionString())), key}
	folder, err := os.MkdirTemp("", "lattice-cold-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	fmt.Fprintf(out, "\ncold starts, median and worst of %d, one Azurite, %d processors for everything; a tree of %d keys in 4 shards, checkpointed\n\n",
		coldRuns, runtime.NumCPU(), coldKeys)
	fmt.Fprintln(out, "| host      |   MB | start to ready, ms | to first health, ms | to first get, ms | round trips | expected |")
	fmt.Fprintln(out, "|:----------|-----:|-------------------:|--------------------:|-----------------:|------------:|:---------|")
	trips := map[string][]tap.Exchange{}
	for _, h := range coldHosts() {
		if trips[h.name], err = h.measure(ctx, folder, account, out); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	for _, h := range coldHosts() {
		fmt.Fprintf(out, "\nround trips of %s, from its start to the answer to the first get:\n\n", h.name)
		for _, e := range trips[h.name] {
			fmt.Fprintf(out, "- `%s`\n", e)
		}
	}
	return nil
}

// fillCold makes the tree, folds its log into leaves, and returns one of its keys.
func fillCold(ctx context.Context, s *settings, connection string) (string, error) {
	table, blobs, err := emulated(ctx, connection, "cold")
	if err != nil {
		return "", err
	}
	o := options.Default()
	o.CheckpointTailRows = 1
	db, err := tree.New(tree.Config{Table: table, Blobs: blobs, Clock: clock.NewSystem(), Options: o})
	if err != nil {
		return "", err
	}
	t, err := db.OpenOrCreate(ctx, "bench")
	if err != nil {
		return "", err
	}
	keys, value := keyNames(coldKeys), values(s.seed, s.valueBytes)
	for ops := range slices.Chunk(keys, 2000) {
		batch := make([]tree.BatchOp, len(ops))
		for i, key := range ops {
			batch[i] = tree.BatchOp{Key: key, Value: value()}
		}
		if _, err := t.Batch(ctx, batch); err != nil {
			return "", err
		}
	}
	if _, err := db.Checkpoint(ctx, time.Minute); err != nil {
		return "", err
	}
	return keys[coldKeys/3], db.Close(ctx)
}

// measure builds the program as it is deployed, starts it some times and prints a
// line. It returns the round trips of the start that needed the most.
func (h *coldHost) measure(ctx context.Context, folder string, account *coldAccount, out io.Writer) ([]tap.Exchange, error) {
	program := filepath.Join(folder, h.name)
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", program}, h.flags...)
	build := exec.CommandContext(ctx, "go", append(args, "github.com/latticekv/lattice/"+h.pkg)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, text)
	}
	size, err := os.Stat(program)
	if err != nil {
		return nil, err
	}
	var runs []cold
	for range coldRuns {
		account.Take()
		r, err := h.start(ctx, program, account)
		if err != nil {
			return nil, err
		}
		r.trips = account.Take()
		runs = append(runs, r)
	}
	return printCold(out, h.name, size.Size(), runs), nil
}

func printCold(out io.Writer, name string, size int64, runs []cold) []tap.Exchange {
	ready, worst := spread(runs, func(c cold) time.Duration { return c.ready })
	most := slices.MaxFunc(runs, func(a, b cold) int { return len(a.trips) - len(b.trips) }).trips
	word := "pass"
	if ready > startExpected || len(most) > tripsExpected {
		word = "short"
	}
	health := "-"
	if runs[0].healthy > 0 {
		health = both(spread(runs, func(c cold) time.Duration { return c.healthy }))
	}
	fmt.Fprintf(out, "| %-9s | %4.1f | %18s | %19s | %16s | %11d | ≤ %d ms, ≤ %d: %s |\n", name, float64(size)/1e6, both(ready, worst), health,
		both(spread(runs, func(c cold) time.Duration { return c.answered })), len(most), startExpected.Milliseconds(), tripsExpected, word)
	return most
}

// spread returns median and worst.
func spread(runs []cold, of func(cold) time.Duration) (median, worst time.Duration) {
	var all []time.Duration
	for _, r := range runs {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1]
}

func both(median, worst time.Duration) string {
	return fmt.Sprintf("%.1f, %.1f", float64(median.Microseconds())/1000, float64(worst.Microseconds())/1000)
}
