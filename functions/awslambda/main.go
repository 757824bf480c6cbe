// Command awslambda is the service as an AWS Lambda function, behind a function
// URL or an HTTP API, with schedules as further triggers.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/hostenv"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/providers/backend"
)

func main() {
	f, err := assemble(context.Background(), os.LookupEnv)
	if err != nil {
		slog.Error("function cannot start", "error", err)
		os.Exit(1)
	}
	lambda.Start(f.handle)
}

// assemble wires one instance. The stores stay open as long as the process.
func assemble(ctx context.Context, lookup func(string) (string, bool)) (*function, error) {
	set, invalid := readSettings(lookup)
	base := options.Default()
	base.MaxPageBytes = set.pageBytes(base.MaxPageBytes)
	env, err := hostenv.Read(lookup, base, os.Stderr)
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	tel, err := telemetry.Open(lookup, env.Logger, service.Version())
	if err != nil {
		return nil, err
	}
	stores, err := backend.OpenLazily(ctx, backend.FromEnv(lookup, backend.Azure))
	if err != nil {
		return nil, err
	}
	svc, err := service.New(service.Config{
		Table: stores.Table, Blobs: stores.Blobs, Exclusive: stores.Exclusive,
		Options: env.Options, InternalToken: env.Token, Auth: env.Auth, Logger: env.Logger,
		Telemetry: tel,
	})
	if err != nil {
		return nil, err
	}
	return &function{
		service: svc.Handler(), token: env.Token, logger: env.Logger, settings: set, telemetry: tel,
		fits: warnOfMisfits(&env.Options, set.timeout, env.Logger),
	}, nil
}
