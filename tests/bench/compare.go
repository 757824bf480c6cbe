package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/latticekv/lattice/providers/azurite"
)

// expectation is how many times the plain client's figure a subject is to reach
// with the most clients.
type expectation struct{ put, get float64 }

// entrant is a subject, made when its turn comes.
type entrant struct {
	open   func(ctx context.Context, connection string, value func() []byte) (*subject, error)
	expect expectation
}

// atClients is the number of clients for which there are expectations.
const atClients = 256

func entrants() []entrant {
	local := func(id string, shards int, leases bool) func(context.Context, string, func() []byte) (*subject, error) {
		return func(ctx context.Context, connection string, value func() []byte) (*subject, error) {
			return inProcess(ctx, connection, id, shards, leases, value)
		}
	}
	remote := func(id string, leases bool) func(context.Context, string, func() []byte) (*subject, error) {
		return func(ctx context.Context, connection string, value func() []byte) (*subject, error) {
			return overHTTP(ctx, connection, id, leases, value)
		}
	}
	return []entrant{
		{open: plain},
		{open: local("four", 4, false), expect: expectation{put: 10, get: 5}},
		{open: local("one", 1, false), expect: expectation{put: 20, get: 5}},
		{open: local("fourleased", 4, true), expect: expectation{get: 50}},
		{open: local("oneleased", 1, true), expect: expectation{get: 50}},
		{open: remote("http", false)},
		{open: remote("httpleased", true)},
	}
}

// row is what one subject did with a number of clients.
type row struct {
	name     string
	clients  int
	puts     result
	gets     result
	expected expectation
}

// compare measures every subject on one emulator.
func compare(ctx context.Context, s *settings, out io.Writer) (err error) {
	at, err := azurite.Install(ctx, ".")
	if err != nil {
		return err
	}
	emulator, err := azurite.Start(ctx, azurite.Options{Program: at})
	if err != nil {
		return err
	}
	defer emulator.Stop()
	defer func() { err = errors.Join(err, removeProgram()) }()
	fmt.Fprintf(out, "\nseed %d, %d keys, values of %d bytes, %s a cell after %s of warm-up, one Azurite, %d processors for everything\n",
		s.seed, s.keys, s.valueBytes, s.duration, s.warmup, runtime.NumCPU())
	var rows []row
	for _, e := range entrants() {
		some, err := e.measure(ctx, s, emulator.ConnectionString())
		if err != nil {
			return err
		}
		rows = append(rows, some...)
	}
	print(out, rows)
	return nil
}

// measure gives a subject its turn, with every number of clients.
func (e entrant) measure(ctx context.Context, s *settings, connection string) (rows []row, err error) {
	sub, err := e.open(ctx, connection, values(s.seed, s.valueBytes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sub.close()) }()
	if err := fill(ctx, s, sub); err != nil {
		return nil, fmt.Errorf("%s: fill: %w", sub.name, err)
	}
	for _, clients := range s.clients {
		r := row{name: sub.name, clients: clients}
		if clients == atClients {
			r.expected = e.expect
		}
		if r.puts, err = measure(ctx, s, clients, sub.put); err != nil {
			return nil, fmt.Errorf("%s: put: %w", sub.name, err)
		}
		if r.gets, err = measure(ctx, s, clients, sub.get); err != nil {
			return nil, fmt.Errorf("%s: get: %w", sub.name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// fill writes every key once.
func fill(ctx context.Context, s *settings, sub *subject) error {
	names := make(chan string, s.keys)
	for _, name := range keyNames(s.keys) {
		names <- name
	}
	close(names)
	var all sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		all.Go(func() {
			for name := range names {
				if errs[i] = sub.put(ctx, name); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// print writes two tables, each figure beside that of the plain client.
func print(out io.Writer, rows []row) {
	base := map[int]row{}
	for _, r := range rows {
		if r.name == rows[0].name {
			base[r.clients] = r
		}
	}
	for _, kind := range []struct {
		name   string
		of     func(row) result
		expect func(expectation) float64
	}{
		{"puts", func(r row) result { return r.puts }, func(e expectation) float64 { return e.put }},
		{"gets", func(r row) result { return r.gets }, func(e expectation) float64 { return e.get }},
	} {
		fmt.Fprintf(out, "\n| %-34s | clients | %8s/s |  p50 ms |  p99 ms | × plain | expected |\n", kind.name, kind.name)
		fmt.Fprintln(out, "|:-----------------------------------|--------:|-----------:|--------:|--------:|--------:|:---------|")
		for _, r := range rows {
			got := kind.of(r)
			ratio := got.perSecond / kind.of(base[r.clients]).perSecond
			fmt.Fprintf(out, "| %-34s | %7d | %10.0f | %7.3f | %7.3f | %7.1f | %s |\n", r.name, r.clients, got.perSecond,
				milliseconds(got.p50), milliseconds(got.p99), ratio, verdict(ratio, kind.expect(r.expected)))
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// verdict says in words whether an expectation is met, if there is one.
func verdict(ratio, expected float64) string {
	switch {
	case expected == 0:
		return ""
	case ratio >= expected:
		return fmt.Sprintf("≥ %.0f: pass", expected)
	}
	return fmt.Sprintf("≥ %.0f: short", expected)
}
